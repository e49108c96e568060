//! Storage for bytes that are not in memory: a file, accessed only by copying, never mapped.
//!
//! Other processes may change or truncate a file at any time. With a mapping, bytes would change
//! behind a reference, and access beyond the end would kill the process. A failed copy returns an
//! error instead.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf};

/// Holds the bytes of a region that is not memory: a file, or a substitute in tests.
///
/// Reads and writes may block on the device, and may be called on any thread.
pub trait Storage: Send + Sync {
    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The device's errors; the storage has fewer bytes.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` from `offset` on.
    ///
    /// # Errors
    /// The device's errors; the storage has become shorter.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns the name for errors. Must not block on the device.
    fn name(&self) -> String;
}

/// The first bytes of a file.
pub(crate) struct Part {
    pub(crate) file: File,
    pub(crate) bytes: u64,
}

impl Part {
    /// Checks that the file has not shrunk: a write beyond its end would extend the file again, with a
    /// hole.
    fn check_length(&self) -> io::Result<()> {
        if self.file.metadata()?.len() < self.bytes {
            return Err(io::Error::other("the file has shrunk"));
        }
        Ok(())
    }
}

impl Storage for Part {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(into, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("the file has shrunk"),
            _ => error,
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_length()?;
        self.file.write_all_at(bytes, offset)?;
        // The file may have shrunk since the check; within its last block that cannot be detected.
        self.check_length()
    }

    /// Returns the path that the kernel records for the open file.
    fn name(&self) -> String {
        use std::os::fd::AsRawFd;
        let link = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        std::fs::read_link(link).map_or_else(|_| "a file".into(), |path| path.display().to_string())
    }
}
