//! Regions whose bytes lie in a file: read and written by copies only, never mapped.
//!
//! Other processes may change or shorten a file at any time. A mapping of it would change under a
//! reference, and kill the process that touches what is gone; a copy is a copy, or an error.

use std::{fmt, fs::File, io, ops::Range, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

use rustix::fs::OFlags;

use crate::{
    lease::{LeaseError, give_back},
    region::{Inner, Region, RegionError},
};

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
struct Part {
    file: File,
    bytes: u64,
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
        // It may have shrunk since; of the last block alone this cannot tell.
        self.check_length()
    }

    /// By the kernel's notes on the open file.
    fn name(&self) -> String {
        use std::os::fd::AsRawFd;
        let link = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        std::fs::read_link(link).map_or_else(|_| "a file".into(), |path| path.display().to_string())
    }
}

impl Region {
    /// The first `bytes` bytes of a file that is open for reading; for a root.
    ///
    /// The file may change meanwhile: what is sent is what is there when a block is read. One that
    /// has become shorter fails the group with [`crate::Cause::Memory`]'s kind of error.
    ///
    /// Errors: it is open with `O_DIRECT`, or the process has no descriptors left.
    pub fn from_file(file: &File, bytes: u64) -> Result<Self, RegionError> {
        Self::of_part(file, bytes, false)
    }

    /// The first `bytes` bytes of a file that is open for reading and writing, and already has that
    /// length; for a receiver.
    ///
    /// Errors: as [`Region::from_file`]; or it is open with `O_APPEND`.
    pub fn from_file_writable(file: &File, bytes: u64) -> Result<Self, RegionError> {
        Self::of_part(file, bytes, true)
    }

    fn of_part(file: &File, bytes: u64, writable: bool) -> Result<Self, RegionError> {
        let flags =
            rustix::fs::fcntl_getfl(file).map_err(|error| RegionError::File(error.into()))?;
        if flags.intersects(OFlags::APPEND | OFlags::DIRECT) {
            let words = "open it without O_APPEND and O_DIRECT";
            return Err(RegionError::File(io::Error::new(io::ErrorKind::InvalidInput, words)));
        }
        let file = file.try_clone().map_err(RegionError::File)?;
        Self::from_storage(Arc::new(Part { file, bytes }), bytes, writable)
    }

    /// What errors call what the bytes lie in; `None` of memory.
    pub fn stored_name(&self) -> Option<String> {
        self.storage().map(Storage::name)
    }

    /// Leases a range of a stored region for reading; shared with other readers.
    ///
    /// Errors: out of range, in use by a writer, or the region is memory.
    pub fn read_stored(&self, range: Range<usize>) -> Result<StoredRead, LeaseError> {
        let (region, range) = self.lease_stored(range, false)?;
        Ok(StoredRead { region, range })
    }

    /// Leases a range of a stored region for writing; excludes everybody else.
    ///
    /// Errors: out of range, read-only, in use, or the region is memory.
    pub fn write_stored(&self, range: Range<usize>) -> Result<StoredWrite, LeaseError> {
        let (region, range) = self.lease_stored(range, true)?;
        Ok(StoredWrite { region, range })
    }
}

/// The right to read a range of a stored region until it is dropped.
pub struct StoredRead {
    region: Arc<Inner>,
    range: Range<usize>,
}

/// The right to write a range of a stored region, alone, until it is dropped.
pub struct StoredWrite {
    region: Arc<Inner>,
    range: Range<usize>,
}

impl StoredRead {
    /// Reads all of the range into `into`, which has its length. Blocks as long as the device takes.
    ///
    /// Errors: [`Storage::read_at`]; another length.
    pub fn copy_to(&self, into: &mut [u8]) -> io::Result<()> {
        check_length(into.len(), self.range.len())?;
        storage(&self.region)?.read_at(into, self.range.start as u64)
    }
}

impl StoredWrite {
    /// Writes `bytes` to the start of the range, which is at least as long. Blocks as long as the
    /// device takes.
    ///
    /// Errors: [`Storage::write_at`]; too many bytes.
    pub fn copy_from(&self, bytes: &[u8]) -> io::Result<()> {
        check_length(bytes.len().max(self.range.len()), self.range.len())?;
        storage(&self.region)?.write_at(bytes, self.range.start as u64)
    }
}

fn storage(region: &Inner) -> io::Result<&dyn Storage> {
    region.storage().ok_or_else(|| io::Error::other("the region is memory"))
}

fn check_length(bytes: usize, leased: usize) -> io::Result<()> {
    if bytes == leased {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "another length than that of the lease"))
}

impl Drop for StoredRead {
    fn drop(&mut self) {
        give_back(&mut self.region.leases().readers, &self.range);
    }
}

impl Drop for StoredWrite {
    fn drop(&mut self) {
        give_back(&mut self.region.leases().writers, &self.range);
    }
}

impl fmt::Debug for StoredRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredRead({}..{})", self.range.start, self.range.end)
    }
}

impl fmt::Debug for StoredWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredWrite({}..{})", self.range.start, self.range.end)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file_of(contents: &[u8]) -> File {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rdmc-stored-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(contents).unwrap();
        file
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not open files here")]
    fn copies_go_to_the_file_and_never_beyond_its_length() {
        let file = file_of(&[3; 10_000]);
        let region = Region::from_file_writable(&file, 10_000).unwrap();
        region.write_stored(6_000..6_010).unwrap().copy_from(&[4; 10]).unwrap();
        let mut copy = [0; 12];
        region.read_stored(5_999..6_011).unwrap().copy_to(&mut copy).unwrap();
        assert_eq!(copy, [3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3]);
        file.set_len(6_005).unwrap();
        assert!(region.read_stored(5_999..6_011).unwrap().copy_to(&mut copy).is_err());
        for range in [0..10, 6_000..6_010, 9_990..10_000] {
            let error = region.write_stored(range).unwrap().copy_from(&[5; 10]).unwrap_err();
            assert!(error.to_string().contains("shrunk"), "{error}");
        }
        assert_eq!(file.metadata().unwrap().len(), 6_005);
    }

    /// Nothing gives a reference to bytes that another process can change.
    #[test]
    #[cfg_attr(miri, ignore = "Miri does not open files here")]
    fn a_file_gives_no_lease_of_memory_and_memory_none_of_a_file() {
        let region = Region::from_file_writable(&file_of(&[1; 100]), 100).unwrap();
        assert!(region.is_stored() && region.slice(5..10).unwrap().is_stored());
        assert_eq!(region.read(0..1).unwrap_err(), LeaseError::Stored);
        assert_eq!(region.write(0..1).unwrap_err(), LeaseError::Stored);
        assert_eq!(region.future_read(0..1).unwrap_err(), LeaseError::Stored);
        let memory = Region::zeroed(8);
        assert_eq!(memory.read_stored(0..1).unwrap_err(), LeaseError::NotStored);
        assert_eq!(memory.write_stored(0..1).unwrap_err(), LeaseError::NotStored);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not open files here")]
    fn leases_of_a_file_exclude_each_other_as_those_of_memory_do() {
        let file = file_of(&[1; 100]);
        let readable = Region::from_file(&file, 100).unwrap();
        assert_eq!(readable.write_stored(0..1).unwrap_err(), LeaseError::ReadOnly);
        let region = Region::from_file_writable(&file, 100).unwrap();
        let part = region.slice(50..100).unwrap();
        let writer = part.write_stored(0..10).unwrap();
        assert_eq!(region.read_stored(55..56).unwrap_err(), LeaseError::InUse { range: 55..56 });
        drop(writer);
        assert!(region.read_stored(55..56).is_ok());
        assert!(part.read_stored(50..51).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not open files here")]
    fn a_file_whose_writes_would_go_elsewhere_is_refused() {
        let path = std::env::temp_dir().join(format!("rdmc-append-{}", std::process::id()));
        let file = File::options().read(true).append(true).create(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(10).unwrap();
        let error = Region::from_file_writable(&file, 10).unwrap_err();
        assert!(error.to_string().contains("without O_APPEND"), "{error}");
    }
}
