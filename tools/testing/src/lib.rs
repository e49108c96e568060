//! What tests of several crates share. Everything here panics when something is not as it should be.

#![forbid(unsafe_code)]

mod authority;
mod places;
mod replay;

pub use authority::{Authority, Issued};
pub use places::{Place, places};
pub use replay::replay;
