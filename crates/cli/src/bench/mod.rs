//! `rdmc bench`: latency and bandwidth between hosts, from memory to memory.

mod args;
mod collective;
mod report;
mod run;
mod table;

pub use args::Args;
pub use run::run;
