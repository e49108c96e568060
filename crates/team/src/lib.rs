//! Collective operations of a team over any [`transport::Transport`] with one-sided writes, without threads and sockets.
//!
//! [`Team`] connects a member of `collective` and a transport: it writes pieces into the slots of others, folds what
//! others have written, and reports results and failures. The caller drives the network: nothing happens between calls of
//! [`Team::progress`].
//!
//! The path of a message through the files: [`Team::start`] (`team`) -> a piece in a staged slot (`staging`) -> a write into a
//! slot of the other member (`outgoing`) -> its report or its flag there (`slots`) -> memory of the operation (`operations`).

#![forbid(unsafe_code)]

mod blocks;
mod counters;
mod ends;
mod error;
mod failure;
mod flags;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod operations;
mod outgoing;
mod peers;
mod phase;
mod settings;
mod slots;
mod staging;
mod team;
mod told;
mod waits;
mod words;

pub use counters::Counters;
pub use ends::WriteEnds;
pub use error::Error;
pub use failure::Failure;
#[doc(hidden)]
pub use flags::PlantedBug;
pub use operations::Memory;
pub use settings::TeamSettings;
pub use team::Team;
