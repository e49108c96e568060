//! Errors of the system, and what it tells of this process.

use std::io;

use rdmc::Error;

/// An error of the system during this operation.
pub(crate) fn system(what: &str, error: io::Error) -> Error {
    Error::System { what: what.to_owned(), error }
}

/// This process's umask. Where it cannot be read without setting it, nobody but the owner gets anything.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    umask_of(&status).unwrap_or(0o077)
}

/// From the text of proc(5).
fn umask_of(status: &str) -> Option<u32> {
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(umask.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_umask_is_read() {
        assert_eq!(umask_of("Name:\tx\nUmask:\t0027\nState:\tR\n"), Some(0o27));
        assert_eq!(umask_of("Name:\tx\n"), None);
    }
}
