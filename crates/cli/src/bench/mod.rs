//! `rdmc bench`: what the network between hosts gives, from memory to memory.

mod args;
mod report;
mod run;
mod table;

pub use args::Args;
pub use run::run;
