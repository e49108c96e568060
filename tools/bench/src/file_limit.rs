//! The limit of open files.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::outcome::Outcome;

/// Raises the soft limit of open files to the hard limit: each connection has one or more.
pub fn raise_file_limit() -> Outcome<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
