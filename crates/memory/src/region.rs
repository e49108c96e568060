//! Memory that blocks are sent from and received into.

use std::{
    any::Any,
    fmt,
    fs::File,
    io,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use rustix::fs::OFlags;

use crate::{
    bytes::{Access, Bytes, Memory, Owner},
    lease::{FutureRead, ReadLease, WriteLease},
    ledger::LeaseError,
    reservation::Reservation,
    storage::{Part, Storage},
    stored::{StoredRead, StoredWrite},
    zeros::{try_zeros, zeros},
};

/// Memory that the application, the library and the network use in turn, or a part of a file.
///
/// A `Region` is a cheap handle; clones share the memory. The memory is read and written only
/// through leases of byte ranges ([`ReadLease`], [`WriteLease`]), which are checked when they
/// are taken: a writer excludes all other leases, readers share. Taking a lease costs about 50 ns;
/// transferring a block takes microseconds.
///
/// Other processes can change the bytes of a file ([`Region::from_file`], [`Region::is_stored`]) at
/// any time. Regions of files therefore have their own leases ([`StoredRead`], [`StoredWrite`]), which
/// copy bytes and give no references.
#[derive(Clone)]
pub struct Region {
    inner: Arc<Bytes>,
    /// The range of `inner` that this region covers.
    part: Range<usize>,
}

/// Why a region could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The file cannot be used.
    #[error("the file cannot be read and written in blocks: {0}")]
    File(io::Error),
    /// The object does not fit into this machine's address space.
    #[error("{0} bytes do not fit into this machine's address space")]
    TooLarge(u64),
    /// The system cannot allocate this many bytes.
    #[error("{0} bytes of memory cannot be allocated")]
    OutOfMemory(u64),
}

impl Region {
    /// Takes ownership of a vector; [`Region::try_into_vec`] returns it.
    pub fn from_vec(vector: Vec<u8>) -> Self {
        let bytes = vector.len();
        let start = Box::into_raw(vector.into_boxed_slice()).cast::<u8>();
        Self::new(start, bytes, Access::ReadWrite, Owner::Heap)
    }

    /// Allocates zeroed memory, whose pages the system populates when they are first touched: with
    /// huge pages where available, which makes copies between processes 20% faster.
    ///
    /// # Errors
    /// [`RegionError::OutOfMemory`], [`RegionError::TooLarge`].
    pub fn allocate(bytes: u64) -> Result<Self, RegionError> {
        let length = usize::try_from(bytes).map_err(|_| RegionError::TooLarge(bytes))?;
        try_zeros(length).map(Self::from_vec).ok_or(RegionError::OutOfMemory(bytes))
    }

    /// Allocates memory as [`Region::allocate`] does, but aborts the process if memory is exhausted: only
    /// for lengths that no peer can choose.
    pub fn zeroed(bytes: usize) -> Self {
        Self::from_vec(zeros(bytes))
    }

    /// Makes a region of read-only memory that `owner` keeps alive and unchanged: `Arc<[u8]>`,
    /// `&'static [u8]`, ...
    pub fn from_shared<O>(owner: O) -> Self
    where
        O: AsRef<[u8]> + Send + Sync + 'static,
    {
        // A slice inside `owner` must not move once its address is taken. Not in a box: moving
        // one asserts that there is no other reference to its contents.
        let owner = Arc::new(owner);
        let slice: &[u8] = (*owner).as_ref();
        let (start, bytes) = (slice.as_ptr().cast_mut(), slice.len());
        Self::new(start, bytes, Access::Read, Owner::Shared(owner))
    }

    /// Makes a region of memory that another language or library owns.
    ///
    /// # Safety
    /// `start` is valid for reads (and for writes, if `writable`) of `bytes` bytes until `owner` is
    /// dropped. Until then no other code writes these bytes (or, if `writable`, reads them). `start` does not
    /// point into the box `owner`, which has to be the only pointer to its own contents.
    pub unsafe fn from_raw(
        start: *mut u8,
        bytes: usize,
        writable: bool,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let access = if writable { Access::ReadWrite } else { Access::Read };
        Self::new(start, bytes, access, Owner::Foreign(owner))
    }

    /// Makes a region of the first `bytes` bytes of `storage`.
    ///
    /// # Errors
    /// [`RegionError::TooLarge`].
    pub fn from_storage(
        storage: Arc<dyn Storage>,
        bytes: u64,
        writable: bool,
    ) -> Result<Self, RegionError> {
        let length = usize::try_from(bytes).map_err(|_| RegionError::TooLarge(bytes))?;
        let access = if writable { Access::ReadWrite } else { Access::Read };
        Ok(Self::new(std::ptr::dangling_mut(), length, access, Owner::Stored(storage)))
    }

    /// Makes a region of the first `bytes` bytes of a file that is open for reading; for a root.
    ///
    /// The file may change while it is sent: each block has the contents at the time it is read. If the file
    /// has become shorter, the read returns an error, which fails the group.
    ///
    /// # Errors
    /// The file is open with `O_DIRECT` or `O_APPEND`, or the process has no file descriptors left.
    pub fn from_file(file: &File, bytes: u64) -> Result<Self, RegionError> {
        Self::of_part(file, bytes, false)
    }

    /// Makes a region of the first `bytes` bytes of a file that is open for reading and writing,
    /// and already has that length; for a receiver.
    ///
    /// # Errors
    /// As for [`Region::from_file`].
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

    fn new(start: *mut u8, bytes: usize, access: Access, owner: Owner) -> Self {
        let inner = Bytes::new(start, bytes, access, owner);
        Self { inner: Arc::new(inner), part: 0..bytes }
    }

    /// Returns the memory that this region is a part of, and the range of the part in bytes; for
    /// transports.
    pub fn memory(&self) -> (Memory<'_>, Range<usize>) {
        (self.inner.memory(), self.part.clone())
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// Returns whether the bytes are in a file or other [`Storage`] rather than in memory. Such a region
    /// has no leases of memory.
    pub fn is_stored(&self) -> bool {
        self.storage().is_some()
    }

    fn storage(&self) -> Option<&dyn Storage> {
        self.inner.storage()
    }

    /// Returns whether blocks may be received into the region.
    pub fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    /// Returns a part of the same memory as a separate region. Leases of both regions exclude each other.
    ///
    /// # Errors
    /// [`LeaseError::OutOfRange`].
    pub fn slice(&self, range: Range<usize>) -> Result<Self, LeaseError> {
        Ok(Self { inner: Arc::clone(&self.inner), part: self.locate(range)? })
    }

    /// Translates a range of this region to a range of the whole memory.
    fn locate(&self, range: Range<usize>) -> Result<Range<usize>, LeaseError> {
        let bytes = self.part.len();
        if range.start > range.end || range.end > bytes {
            return Err(LeaseError::OutOfRange { range, bytes });
        }
        Ok(self.part.start + range.start..self.part.start + range.end)
    }

    /// Leases a range for reading; shared with other readers.
    ///
    /// # Errors
    /// The range is outside the region, a part of it is leased for writing, or the bytes are in a file.
    pub fn read(&self, range: Range<usize>) -> Result<ReadLease, LeaseError> {
        self.check_memory()?;
        let range = self.locate(range)?;
        self.inner.leases().take_read(range.clone(), self.inner.bytes())?;
        Ok(ReadLease::new(Arc::clone(&self.inner), range))
    }

    /// Leases a range that the network will read once the current writer, if any, is done.
    ///
    /// # Errors
    /// The range is outside the region, or the bytes are in a file.
    pub fn future_read(&self, range: Range<usize>) -> Result<FutureRead, LeaseError> {
        self.check_memory()?;
        let range = self.locate(range)?;
        self.inner.leases().take_future_read(range.clone(), self.inner.bytes())?;
        Ok(FutureRead::new(Arc::clone(&self.inner), range))
    }

    /// Makes a reservation without ranges: see [`Reservation`].
    pub fn reserve(&self) -> Reservation {
        Reservation::new(Arc::clone(&self.inner), self.part.clone())
    }

    /// Returns how many ranges are reserved.
    #[cfg(test)]
    pub(crate) fn reserved_ranges(&self) -> usize {
        self.inner.leases().reserved_ranges()
    }

    /// Leases a range for writing; excludes all other leases.
    ///
    /// # Errors
    /// The range is outside the region, a part of it is leased or reserved, the region is read-only, or
    /// its bytes are in a file.
    pub fn write(&self, range: Range<usize>) -> Result<WriteLease, LeaseError> {
        self.check_memory()?;
        if !self.inner.is_writable() {
            return Err(LeaseError::ReadOnly);
        }
        let range = self.locate(range)?;
        self.inner.leases().take_write(range.clone(), self.inner.bytes())?;
        Ok(WriteLease::new(Arc::clone(&self.inner), range))
    }

    /// Returns the name of the file or other storage, for errors; `None` for memory. Catches panics of
    /// [`Storage::name`], so that other groups are not affected.
    pub fn stored_name(&self) -> Option<String> {
        let storage = self.storage()?;
        let name = catch_unwind(AssertUnwindSafe(|| storage.name()));
        Some(name.unwrap_or_else(|_| "a storage whose name panics".to_owned()))
    }

    /// Leases a range of a stored region for reading; shared with other readers.
    ///
    /// # Errors
    /// The range is outside the region, a part of it is leased for writing, or the region is memory.
    pub fn read_stored(&self, range: Range<usize>) -> Result<StoredRead, LeaseError> {
        let (region, range) = self.lease_stored(range, false)?;
        Ok(StoredRead::new(region, range))
    }

    /// Leases a range of a stored region for writing; excludes all other leases.
    ///
    /// # Errors
    /// The range is outside the region, a part of it is leased or reserved, the region is read-only, or it
    /// is memory.
    pub fn write_stored(&self, range: Range<usize>) -> Result<StoredWrite, LeaseError> {
        let (region, range) = self.lease_stored(range, true)?;
        Ok(StoredWrite::new(region, range))
    }

    /// Returns the memory as a vector: that of [`Region::from_vec`], or that of [`Region::allocate`].
    ///
    /// # Errors
    /// Returns the region itself if it is other memory or only a part, or if a clone, part or lease of the
    /// region still exists.
    pub fn try_into_vec(self) -> Result<Vec<u8>, Self> {
        if self.part != (0..self.inner.bytes()) {
            return Err(self);
        }
        let part = self.part;
        self.inner.try_into_vec().map_err(|inner| Self { inner, part })
    }

    fn check_memory(&self) -> Result<(), LeaseError> {
        if self.is_stored() { Err(LeaseError::Stored) } else { Ok(()) }
    }

    /// Takes a lease and returns the components of a [`StoredRead`] or [`StoredWrite`].
    fn lease_stored(
        &self,
        range: Range<usize>,
        writing: bool,
    ) -> Result<(Arc<Bytes>, Range<usize>), LeaseError> {
        if !self.is_stored() {
            return Err(LeaseError::NotStored);
        }
        if writing && !self.inner.is_writable() {
            return Err(LeaseError::ReadOnly);
        }
        let range = self.locate(range)?;
        let mut leases = self.inner.leases();
        if writing {
            leases.take_write(range.clone(), self.inner.bytes())?;
        } else {
            leases.take_read(range.clone(), self.inner.bytes())?;
        }
        drop(leases);
        Ok((Arc::clone(&self.inner), range))
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("bytes", &self.len())
            .field("writable", &self.is_writable())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_returned_with_what_was_written() {
        let region = Region::zeroed(8);
        region.write(2..4).unwrap().copy_from_slice(&[7, 9]);
        assert_eq!(&*region.read(0..8).unwrap(), &[0, 0, 7, 9, 0, 0, 0, 0]);
        assert_eq!(region.try_into_vec().unwrap(), [0, 0, 7, 9, 0, 0, 0, 0]);
    }

    #[test]
    fn a_failed_allocation_is_an_error() {
        assert_eq!(Region::allocate(0).unwrap().try_into_vec().unwrap(), [0_u8; 0]);
        assert_eq!(Region::allocate(5).unwrap().try_into_vec().unwrap(), [0; 5]);
        let error = Region::allocate(u64::MAX).unwrap_err();
        assert!(matches!(error, RegionError::OutOfMemory(u64::MAX)), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads /proc/self/smaps, which Miri does not have")]
    fn long_fresh_memory_asks_for_huge_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            eprintln!("SKIPPED: this kernel has no huge pages to ask for");
            return;
        }
        let asked =
            |region: &Region| has_flag(region.inner.start() as usize + region.len() / 2, "hg");
        assert!(asked(&Region::zeroed(64 << 20)));
        assert!(!asked(&Region::from_vec(vec![0; 64 << 20])));
    }

    /// Returns whether the mapping at this address has a flag (proc(5), "VmFlags").
    fn has_flag(address: usize, flag: &str) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_inside = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text: &str| usize::from_str_radix(text, 16).ok();
            if let Some((start, end)) = range.and_then(|(a, b)| Some((number(a)?, number(b)?))) {
                is_inside = (start..end).contains(&address);
            } else if is_inside && line.starts_with("VmFlags:") {
                return line.split(' ').any(|word| word == flag);
            }
        }
        panic!("no mapping has address {address:x}");
    }

    #[test]
    fn a_part_is_the_same_memory() {
        let region = Region::zeroed(10);
        let part = region.slice(2..8).unwrap().slice(1..5).unwrap();
        assert_eq!((part.len(), part.is_empty()), (4, false));
        part.write(0..4).unwrap().copy_from_slice(&[1, 2, 3, 4]);
        let lease = region.read(4..5).unwrap();
        assert!(matches!(part.write(0..4), Err(LeaseError::InUse { .. })));
        assert_eq!(&*part.read(1..3).unwrap(), &[2, 3]);
        drop(lease);
        for outside in [0..5, 4..5] {
            assert!(matches!(part.read(outside), Err(LeaseError::OutOfRange { bytes: 4, .. })));
        }
        assert!(region.slice(3..11).is_err() && region.slice(10..10).unwrap().is_empty());
        let region = region.try_into_vec().unwrap_err();
        assert!(part.try_into_vec().is_err());
        assert_eq!(region.try_into_vec().unwrap(), [0, 0, 0, 1, 2, 3, 4, 0, 0, 0]);
    }

    #[test]
    fn a_region_is_not_given_back_while_a_lease_exists() {
        let region = Region::zeroed(8);
        let lease = region.read(0..1).unwrap();
        let region = region.try_into_vec().unwrap_err();
        drop(lease);
        assert!(region.try_into_vec().is_ok());
    }

    #[test]
    fn attachments_are_dropped_before_the_memory() {
        let attached = Arc::new(());
        let attach = |region: &Region| {
            let lease = region.read(0..1).unwrap();
            assert_eq!(lease.memory().bytes(), 8);
            lease.memory().attachments().push(Box::new(Arc::clone(&attached)));
        };
        let region = Region::zeroed(8);
        attach(&region);
        assert_eq!(Arc::strong_count(&attached), 2);
        let vector = region.try_into_vec().unwrap();
        assert_eq!(Arc::strong_count(&attached), 1);
        let region = Region::from_shared(vector);
        attach(&region);
        drop(region);
        assert_eq!(Arc::strong_count(&attached), 1);
    }

    #[test]
    fn shared_memory_is_read_only() {
        let region = Region::from_shared(Arc::<[u8]>::from(vec![1, 2, 3]));
        assert_eq!(&*region.read(1..3).unwrap(), &[2, 3]);
        assert_eq!(region.write(0..1).unwrap_err(), LeaseError::ReadOnly);
        assert!(region.try_into_vec().is_err());
    }

    #[test]
    fn an_inline_array_does_not_move_under_its_region() {
        let region = Region::from_shared([5_u8; 32]);
        assert_eq!(&*region.read(0..32).unwrap(), &[5; 32]);
    }
}
