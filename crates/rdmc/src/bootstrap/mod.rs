//! How members find each other and connect, before any block moves.
//!
//! - [`Channel`]: a connection between two processes that know the same [`crate::Secret`], for
//!   small typed messages with deadlines.
//! - [`rendezvous`]: members meet at one address and get the list of all.
//! - `terms`: what both ends of a link must have been told alike.
//! - `links`: connects a group's neighbours, and only those (docs/decisions/neighbours-only.md).
//!
//! Everything here blocks, always with a deadline, and runs on the caller's threads.

mod channel;
mod links;
pub mod rendezvous;
mod terms;

pub use channel::{Channel, Deadline, MESSAGE_BYTES_MAX};
pub(crate) use links::{Listener, connect_neighbours};
pub use terms::Terms;

/// The version of everything that members say to each other. Different versions refuse each other.
pub const PROTOCOL_VERSION: u16 = 2;
