//! Errors of the system, and what it tells of this process.

use std::io;

use rdmc::Error;

/// An error of the system during this operation.
pub(crate) fn system(what: &str, error: io::Error) -> Error {
    Error::System { what: what.to_owned(), error }
}

/// The mode bits that new files do not get; the usual ones if the system does not tell.
pub(crate) fn umask() -> u32 {
    const USUAL: u32 = 0o022;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(USUAL)
}
