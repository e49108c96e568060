//! What tests of several crates share. Everything here panics when something is not as it should be.

#![forbid(unsafe_code)]

mod authority;
mod places;
mod replay;
mod shared_memory;

pub use authority::{Authority, Issued};
pub use places::{Place, places};
pub use replay::replay;
pub use shared_memory::{remove_shared_memory_of, shared_memory_of};
