//! Networks of this machine: the network that a push uses, its rate, and faster networks that hosts share.

mod choice;
#[expect(clippy::module_inception, reason = "the type")]
mod network;
mod own;

pub use choice::Choice;
pub use network::{Network, faster};
pub use own::own;
