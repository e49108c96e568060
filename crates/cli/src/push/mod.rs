//! `rdmc push`: files and directories to many hosts.

mod args;
mod destinations;
mod progress;
mod run;
mod selection;
mod sources;
pub mod summary;
mod switches;

pub use args::Args;
pub use destinations::local_hosts;
pub use progress::Display;
pub use run::run;
