//! `rdmc push`: files and directories to many hosts.

mod args;
mod changes;
mod destinations;
mod follow;
mod progress;
#[cfg(feature = "remote")]
mod remote;
mod run;
mod selection;
mod sources;
mod stream;
pub mod summary;
mod url;
#[cfg(not(feature = "remote"))]
mod without_remote;

use crate::{
    failure::{Exit, Failure},
    parent,
};
pub use args::Args;
pub use destinations::local_hosts;
pub use progress::Display;
pub use remote::reads_urls;
#[cfg(not(feature = "remote"))]
use without_remote as remote;

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
    if let Some(url) = args.sources.iter().find(|source| url::is_url(source)) {
        let refuse = |what: &str| Err(Failure::Usage(format!("{}: {what}", url::shown(url))));
        if is_stream || args.sources.len() > 1 {
            return refuse(
                "a URL is the only source of a push, and no stream; push one after the other",
            );
        }
        if args.together && url::may_be_secret(url) {
            return refuse(
                "with --together hosts get the URL, and what is behind ? or # in it may be secret; give one without that, or leave \
                 out --together",
            );
        }
        if args.source_hosts.is_some() {
            return refuse(
                "what hosts have is not compared with a URL, so that they cannot be sources; leave out --source-hosts",
            );
        }
    }
    if args.together && !args.sources.iter().any(|source| url::is_url(source)) {
        return Err(Failure::Usage("--together is for a source at a URL".into()));
    }
    if is_stream { stream::run(args) } else { run::run(args) }
}
