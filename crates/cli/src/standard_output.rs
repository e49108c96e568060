//! Standard output, whose reader may have gone.

use std::io::{self, ErrorKind, Write};

/// Writes to standard output. A reader that has gone, as in `rdmc plan ... | head`, has seen what it wanted.
///
/// Errors: any other reason.
pub fn write(write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
