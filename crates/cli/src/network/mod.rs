//! Networks of this machine: which one a push uses, how fast it is, and whether hosts share a faster one.

mod choice;
#[expect(clippy::module_inception, reason = "the type")]
mod network;
mod own;

pub use choice::Choice;
pub use network::{Network, faster};
pub use own::own;
