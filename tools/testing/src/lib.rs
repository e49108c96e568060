//! What tests of several crates share. Everything here panics when something is not as it should be.

#![forbid(unsafe_code)]

mod authority;
mod hub;
mod ordinary_user;
mod places;
mod replay;
mod shared_memory;
mod skipped;
mod web;

pub use authority::{Authority, Issued};
pub use hub::{HubFile, HubRepository};
pub use ordinary_user::{Said, USER, run_as_ordinary_user};
pub use places::{Place, places};
pub use replay::replay;
pub use shared_memory::{remove_shared_memory_of, shared_memory_of};
pub use skipped::skipped;
pub use web::{WebAnswer, WebRequest, WebServer};
