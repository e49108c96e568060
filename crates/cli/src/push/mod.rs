//! `rdmc push`: one file to many hosts.

mod args;
mod destinations;
mod progress;
mod run;
pub mod summary;
mod switches;

pub use args::Args;
pub use destinations::local_hosts;
pub use progress::Display;
pub use run::run;
