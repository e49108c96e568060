//! A receiver's side of a session.
//!
//! Connect to the root by [`call`] or [`join`], or accept its connection, then [`serve`] the connection. A session
//! leaves a published copy or nothing. If the root is lost or gives this receiver up, or the receiver is stopped, it
//! leaves its partial copy, hidden, for the next session.
//!
//! `machine::ReceiverMachine` makes all decisions. The caller's thread drives it in [`serve`]: `dispatch` passes events in,
//! which other threads queue, and `io::Io` carries out its effects.

mod announced;
mod backlog;
mod call;
mod command;
#[doc(hidden)]
mod deferred;
mod destination;
#[doc(hidden)]
mod dispatch;
mod error;
#[doc(hidden)]
mod event;
#[cfg(test)]
mod evil;
mod gathering;
#[cfg(test)]
mod hostile_roots;
#[cfg(test)]
mod hostile_servers;
mod io;
mod limits;
mod link;
#[doc(hidden)]
mod listing;
mod listings;
#[doc(hidden)]
mod machine;
#[doc(hidden)]
mod membership;
mod output;
mod placement;
mod reading;
mod reception;
mod root_link;
mod serve;
mod settings;
mod sink;
mod stream;
mod writing;

#[doc(hidden)]
pub use announced::{Announcements, Found};
pub use call::{call, join, status};
#[doc(hidden)]
pub use deferred::{Deferred, Free};
#[doc(hidden)]
pub use dispatch::{first, handle};
pub use error::ReceiveError;
#[doc(hidden)]
pub use event::Event;
pub use gathering::{GatheringReceiver, GatheringSender, TakePart};
pub use limits::{IN_SWITCH, RootLimits};
#[doc(hidden)]
pub use listing::ListingMember;
pub use listings::Listings;
#[doc(hidden)]
pub use machine::{Effects, ListingComes, ReceiverMachine};
#[doc(hidden)]
pub use membership::{Copy, Member, MemberEvent};
pub use output::Output;
pub use placement::Placement;
pub use reception::{Reception, Record};
pub use serve::{serve, serve_with};
pub use settings::{Fetch, FoundAtUrl, ReadsUrls, ReceiverSettings};

pub use crate::copy::VerifiedFile;
