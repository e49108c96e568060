//! Standard output.

use std::io::{self, ErrorKind, Write};

/// Writes to standard output. A closed pipe, as in `rdmc plan ... | head`, is no error.
///
/// Errors: any other reason.
pub fn write(write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
