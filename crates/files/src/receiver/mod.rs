//! A receiver's side of a session.
//!
//! Get a control connection by [`call`] (to a root that waits for it) or by accepting one, then
//! [`serve`] it. A session leaves a published copy or nothing; if its root is lost or gives this
//! receiver up, or it is asked to stop, also what has come so far, hidden, for the next session.
//!
//! `session::Session` decides everything, and `dispatch` says what each event means to it. It is driven by one
//! thread, the caller's, in [`serve`]; others only feed that thread. What the session wants done is done by
//! `scene::Scene`.

mod bench;
mod call;
#[doc(hidden)]
mod dispatch;
mod error;
#[doc(hidden)]
mod event;
#[doc(hidden)]
mod membership;
mod placement;
mod root_link;
mod scene;
mod serve;
#[doc(hidden)]
mod session;
mod settings;

pub use call::{call, join};
#[doc(hidden)]
pub use dispatch::{first, handle};
pub use error::ReceiveError;
#[doc(hidden)]
pub use event::Event;
#[doc(hidden)]
pub use membership::{Copy, Member, News};
pub use placement::Placement;
pub use serve::serve;
#[doc(hidden)]
pub use session::{Session, Stage};
pub use settings::ReceiverSettings;
