//! Leases of regions whose bytes are in a file. They copy bytes and give no references.

use std::{fmt, io, ops::Range, sync::Arc};

use crate::{bytes::Bytes, ledger::give_back, storage::Storage};

/// The right to read a range of a stored region until the lease is dropped.
pub struct StoredRead {
    region: Arc<Bytes>,
    range: Range<usize>,
}

/// The exclusive right to write a range of a stored region until the lease is dropped.
pub struct StoredWrite {
    region: Arc<Bytes>,
    range: Range<usize>,
}

impl StoredRead {
    pub(crate) fn new(region: Arc<Bytes>, range: Range<usize>) -> Self {
        Self { region, range }
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// Reads the whole range into `into`, which must have the same length. May block on the device.
    ///
    /// # Errors
    /// Those of [`Storage::read_at`]; the length of `into` is wrong.
    pub fn copy_to(&self, into: &mut [u8]) -> io::Result<()> {
        check_length(into.len(), self.range.len())?;
        storage(&self.region)?.read_at(into, self.range.start as u64)
    }
}

impl StoredWrite {
    pub(crate) fn new(region: Arc<Bytes>, range: Range<usize>) -> Self {
        Self { region, range }
    }

    /// Writes `bytes` to the start of the range, which must be at least as long. May block on the device.
    ///
    /// # Errors
    /// Those of [`Storage::write_at`]; `bytes` is longer than the range.
    pub fn copy_from(&self, bytes: &[u8]) -> io::Result<()> {
        check_length(bytes.len().max(self.range.len()), self.range.len())?;
        storage(&self.region)?.write_at(bytes, self.range.start as u64)
    }
}

fn storage(region: &Bytes) -> io::Result<&dyn Storage> {
    region.storage().ok_or_else(|| io::Error::other("the region is memory"))
}

fn check_length(bytes: usize, leased: usize) -> io::Result<()> {
    if bytes == leased {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "the length differs from the lease's"))
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
    use std::{fs::File, io::Write};

    use crate::{LeaseError, Region};

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

    /// There is no way to a reference to bytes that another process can change.
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
