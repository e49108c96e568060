//! `rdmc push`: files and directories to many hosts.

mod args;
mod changes;
mod destinations;
mod follow;
mod progress;
mod run;
mod selection;
mod sources;
mod stream;
pub mod summary;

use crate::{
    failure::{Exit, Failure},
    parent,
};
pub use args::Args;
pub use destinations::local_hosts;
pub use progress::Display;

/// Replicates and prints the summary.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if let Some(process) = args.end_with {
        parent::end_with(process)?;
    }
    let is_stream = args.follow || args.sources.iter().any(|source| source.as_os_str() == "-");
    if args.pipe_to.is_some() && !is_stream {
        let what = "--pipe-to takes a stream: - for standard input, or a file with --follow";
        return Err(Failure::Usage(what.into()));
    }
    if is_stream { stream::run(args) } else { run::run(args) }
}
