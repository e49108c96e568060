//! How many files this process may open.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::outcome::Outcome;

/// Raises the limit to the highest that is allowed: each connection is a file descriptor or several.
pub fn raise_file_limit() -> Outcome<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
