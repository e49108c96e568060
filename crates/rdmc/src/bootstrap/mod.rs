//! How members find each other and connect, before any block moves.
//!
//! - [`Channel`]: an encrypted connection between two processes that know the same
//!   [`crate::Secret`], or have certificates ([`Credentials`]), for small typed messages with
//!   deadlines.
//! - [`Door`]: a listener for such connections, which strangers cannot keep busy.
//! - [`rendezvous`]: members meet at one address and get the list of all.
//! - `terms`: what both ends of a link must have been told alike.
//! - `in_switch`: makes groups that switches copy, once their links are connected.
//! - `links`: connects a group's neighbours, and only those (docs/decisions/neighbours-only.md).
//!
//! Everything here blocks, always with a deadline, and runs on the caller's threads.

mod channel;
mod credentials;
mod deadline;
mod door;
mod gate;
pub(crate) mod in_switch;
mod line;
mod links;
mod porch;
mod refusal;
pub mod rendezvous;
mod terms;
mod tls;

pub(crate) use channel::SessionKeys;
pub use channel::{Channel, MESSAGE_BYTES_MAX};
pub use credentials::{CertificateFiles, Certificates, Credentials, is_certificate_for};
pub use deadline::Deadline;
pub use door::Door;
pub(crate) use gate::{Gate, Guest};
pub(crate) use links::{Listener, Wires, connect_neighbours};
#[cfg(any(test, fuzzing))]
pub(crate) use links::{Request, Response};
pub use terms::Terms;

/// The version of everything that members say to each other. Different versions refuse each other.
pub const PROTOCOL_VERSION: u16 = 5;
