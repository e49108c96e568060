//! What holds bytes that are not in memory: a file, read and written by copies only, never mapped.
//!
//! Other processes may change or shorten a file at any time. A mapping of it would change under a
//! reference, and kill the process that touches what is gone; a copy is a copy, or an error.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf};

/// What holds the bytes of a region that is not memory: a file, or what stands for one in tests.
///
/// Both calls block for as long as the device takes, and may be made from any thread.
pub trait Storage: Send + Sync {
    /// Fills `into` with the bytes from `offset` on.
    ///
    /// Errors: the device's; there are fewer bytes.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` from `offset` on.
    ///
    /// Errors: the device's; the object has become shorter.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// What errors call it. Does not wait for the device.
    fn name(&self) -> String;
}

/// The first bytes of a file.
pub(crate) struct Part {
    pub(crate) file: File,
    pub(crate) bytes: u64,
}

impl Part {
    /// A write behind the end of a file that has shrunk would make it longer again, with a hole
    /// where bytes have been.
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
        // It may have shrunk since; within its last block that cannot be detected.
        self.check_length()
    }

    /// By the kernel's notes on the open file.
    fn name(&self) -> String {
        use std::os::fd::AsRawFd;
        let link = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        std::fs::read_link(link).map_or_else(|_| "a file".into(), |path| path.display().to_string())
    }
}
