//! Memory that blocks are sent from and received into.

use std::{
    any::Any,
    fmt, io,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

use rustix::mm::{Advice, madvise};

use crate::{
    lease::{FutureRead, LeaseError, Leases, ReadLease, WriteLease},
    stored::Storage,
};

/// Of x86-64, and of arm64 with pages of 4 KiB; where they are larger, asking does no harm.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A piece of memory that the application, the library and the network share by turns; or a part of
/// a file that stands in its place.
///
/// A `Region` is a cheap handle (clones share the memory). Nobody reads or writes the memory
/// but through leases of byte ranges ([`ReadLease`], [`WriteLease`]), which are checked when they
/// are taken: writers exclude everybody, readers share. That makes "nobody can touch it" a fact
/// instead of a promise, for some 50 ns a lease against the microseconds that a block takes.
///
/// What is in a file ([`Region::from_file`], [`Region::is_stored`]) can be changed by others at any
/// time, so it has leases of its own ([`crate::StoredRead`], [`crate::StoredWrite`]), which copy and
/// give no references.
#[derive(Clone)]
pub struct Region {
    inner: Arc<Inner>,
    /// The part that this region is, of the memory that it was made of.
    part: Range<usize>,
}

pub(crate) struct Inner {
    start: *mut u8,
    bytes: usize,
    access: Access,
    leases: Mutex<Leases>,
    /// Goes before the memory: fields are dropped in this order.
    attachments: Mutex<Vec<Attachment>>,
    owner: Owner,
}

/// Something that a transport keeps with a region as long as its memory exists, such as its
/// registration with a network.
pub type Attachment = Box<dyn Any + Send + Sync>;

/// The whole memory that a lease is a part of, as a transport that registers memory sees it.
pub struct Memory<'a>(&'a Inner);

impl Memory<'_> {
    /// First byte of the region.
    pub fn start(&self) -> *mut u8 {
        self.0.start
    }

    /// Length of the region.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.0.access == Access::ReadWrite
    }

    /// What transports have attached; dropped just before the memory is let go.
    pub fn attachments(&self) -> MutexGuard<'_, Vec<Attachment>> {
        self.0.attachments.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    ReadWrite,
}

enum Owner {
    /// A boxed slice turned into a raw pointer; freed, or given back, as a whole.
    Heap,
    /// No memory at all: the bytes lie elsewhere.
    Stored(Arc<dyn Storage>),
    Shared(#[allow(dead_code, reason = "keeps the memory alive")] Arc<dyn Any + Send + Sync>),
    Foreign(#[allow(dead_code, reason = "keeps the memory alive")] Box<dyn Any + Send + Sync>),
}

// SAFETY: the memory is reached only through leases, which `Leases` hands out under a mutex and
// which exclude a writer from everybody else; the owner is Send and is only dropped.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Why memory could not be made into a region, or a region could not be given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The file cannot be used.
    #[error("the file cannot be read and written in blocks: {0}")]
    File(io::Error),
    /// The object does not fit into this machine's address space.
    #[error("{0} bytes do not fit into this machine's address space")]
    TooLarge(u64),
}

impl Region {
    /// Takes over a vector; [`Region::try_into_vec`] gives it back.
    pub fn from_vec(vector: Vec<u8>) -> Self {
        let bytes = vector.len();
        let start = Box::into_raw(vector.into_boxed_slice()).cast::<u8>();
        Self::new(start, bytes, Access::ReadWrite, Owner::Heap)
    }

    /// Fresh memory, all zeros, given by the system page by page as it is first touched: by huge
    /// pages where it has them to give, which makes copies between processes a fifth faster.
    pub fn zeroed(bytes: usize) -> Self {
        Self::from_vec(zeros(bytes))
    }

    /// Read-only memory that `owner` keeps alive and unchanged: `Arc<[u8]>`, `&'static [u8]`, ...
    pub fn from_shared<O>(owner: O) -> Self
    where
        O: AsRef<[u8]> + Send + Sync + 'static,
    {
        // A slice inside `owner` must not move once its address is taken. Not in a box: that says,
        // each time that it is moved, that nobody else has its contents.
        let owner = Arc::new(owner);
        let slice: &[u8] = (*owner).as_ref();
        let (start, bytes) = (slice.as_ptr().cast_mut(), slice.len());
        Self::new(start, bytes, Access::Read, Owner::Shared(owner))
    }

    /// Memory of another language or library.
    ///
    /// # Safety
    /// `start` is valid for reads (and for writes, if `writable`) of `bytes` bytes until `owner`
    /// is dropped, and nobody else writes it (or, if `writable`, reads it) in that time. It is not
    /// inside of the box `owner`, which would claim it for itself.
    pub unsafe fn from_raw(
        start: *mut u8,
        bytes: usize,
        writable: bool,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let access = if writable { Access::ReadWrite } else { Access::Read };
        Self::new(start, bytes, access, Owner::Foreign(owner))
    }

    /// Bytes that lie elsewhere: `bytes` of them, from the start of `storage`.
    ///
    /// Errors: more than this machine can address.
    pub fn from_storage(
        storage: Arc<dyn Storage>,
        bytes: u64,
        writable: bool,
    ) -> Result<Self, RegionError> {
        let length = usize::try_from(bytes).map_err(|_| RegionError::TooLarge(bytes))?;
        let access = if writable { Access::ReadWrite } else { Access::Read };
        Ok(Self::new(std::ptr::dangling_mut(), length, access, Owner::Stored(storage)))
    }

    fn new(start: *mut u8, bytes: usize, access: Access, owner: Owner) -> Self {
        let (leases, attachments) = (Mutex::default(), Mutex::default());
        let inner = Inner { start, bytes, access, leases, attachments, owner };
        Self { inner: Arc::new(inner), part: 0..bytes }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// Whether there is not a single byte.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// Whether its bytes lie in a file or the like, and not in memory: then it has no leases of
    /// memory.
    pub fn is_stored(&self) -> bool {
        self.storage().is_some()
    }

    pub(crate) fn storage(&self) -> Option<&dyn Storage> {
        self.inner.storage()
    }

    /// Whether blocks may be received into it.
    pub fn is_writable(&self) -> bool {
        self.inner.access == Access::ReadWrite
    }

    /// A part of the same memory as a region of its own. Leases of both know of each other.
    ///
    /// Errors: out of range.
    pub fn slice(&self, range: Range<usize>) -> Result<Self, LeaseError> {
        Ok(Self { inner: Arc::clone(&self.inner), part: self.locate(range)? })
    }

    /// Where a range of this region lies in the memory that it is a part of.
    fn locate(&self, range: Range<usize>) -> Result<Range<usize>, LeaseError> {
        let bytes = self.part.len();
        if range.start > range.end || range.end > bytes {
            return Err(LeaseError::OutOfRange { range, bytes });
        }
        Ok(self.part.start + range.start..self.part.start + range.end)
    }

    /// Leases a range for reading; shared with other readers.
    ///
    /// Errors: out of range, somebody holds a write lease of a part, or the bytes are in a file.
    pub fn read(&self, range: Range<usize>) -> Result<ReadLease, LeaseError> {
        self.check_memory()?;
        let range = self.locate(range)?;
        self.inner.leases().take_read(range.clone(), self.inner.bytes)?;
        Ok(ReadLease::new(Arc::clone(&self.inner), range))
    }

    /// Leases a range for being read by the network after the writer that has it now, if any.
    ///
    /// Errors: out of range, or the bytes are in a file.
    pub fn future_read(&self, range: Range<usize>) -> Result<FutureRead, LeaseError> {
        self.check_memory()?;
        let range = self.locate(range)?;
        self.inner.leases().take_future_read(range.clone(), self.inner.bytes)?;
        Ok(FutureRead::new(Arc::clone(&self.inner), range))
    }

    /// Leases a range for writing; excludes everybody else.
    ///
    /// Errors: out of range, read-only, somebody holds a lease of a part, or the bytes are in a file.
    pub fn write(&self, range: Range<usize>) -> Result<WriteLease, LeaseError> {
        self.check_memory()?;
        if self.inner.access == Access::Read {
            return Err(LeaseError::ReadOnly);
        }
        let range = self.locate(range)?;
        self.inner.leases().take_write(range.clone(), self.inner.bytes)?;
        Ok(WriteLease::new(Arc::clone(&self.inner), range))
    }

    /// Gives back the vector of [`Region::from_vec`] (or the zeros of [`Region::zeroed`]).
    ///
    /// Gives back the region itself if it was not made of a vector or is a part of one, or if a
    /// clone, part or lease of it still exists.
    pub fn try_into_vec(self) -> Result<Vec<u8>, Self> {
        if !matches!(self.inner.owner, Owner::Heap) || self.part != (0..self.inner.bytes) {
            return Err(self);
        }
        let part = self.part;
        let unwrapped = Arc::try_unwrap(self.inner);
        let mut inner = unwrapped.map_err(|inner| Self { inner, part })?;
        inner.memory().attachments().clear();
        // The memory moves to the vector; `Drop` must not free it.
        inner.owner = Owner::Foreign(Box::new(()));
        // SAFETY: made by `from_vec` of a boxed slice of this start and length; ours alone now.
        Ok(unsafe { Vec::from_raw_parts(inner.start, inner.bytes, inner.bytes) })
    }

    fn check_memory(&self) -> Result<(), LeaseError> {
        if self.is_stored() { Err(LeaseError::Stored) } else { Ok(()) }
    }

    /// What [`crate::StoredRead`] and [`crate::StoredWrite`] are made of.
    pub(crate) fn lease_stored(
        &self,
        range: Range<usize>,
        writing: bool,
    ) -> Result<(Arc<Inner>, Range<usize>), LeaseError> {
        if !self.is_stored() {
            return Err(LeaseError::NotStored);
        }
        if writing && self.inner.access == Access::Read {
            return Err(LeaseError::ReadOnly);
        }
        let range = self.locate(range)?;
        let mut leases = self.inner.leases();
        if writing {
            leases.take_write(range.clone(), self.inner.bytes)?;
        } else {
            leases.take_read(range.clone(), self.inner.bytes)?;
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

impl Inner {
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn memory(&self) -> Memory<'_> {
        Memory(self)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the bytes lie, if not in memory.
    pub(crate) fn storage(&self) -> Option<&dyn Storage> {
        match &self.owner {
            Owner::Stored(storage) => Some(&**storage),
            _ => None,
        }
    }

    pub(crate) fn leases(&self) -> MutexGuard<'_, Leases> {
        // A panic while the list was locked cannot leave it half changed: see `Leases`.
        self.leases.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.memory().attachments().clear();
        if matches!(self.owner, Owner::Heap) {
            // SAFETY: made by `from_vec` of a boxed slice of this start and length, and no lease
            // is left, since each holds an `Arc` of this.
            drop(unsafe { Vec::from_raw_parts(self.start, self.bytes, self.bytes) });
        }
    }
}

/// Zeros that nobody has touched, in huge pages if the system has them to give: fewer page faults,
/// and fewer pages to walk for whoever pins or registers them.
pub(crate) fn zeros(bytes: usize) -> Vec<u8> {
    let mut vector = vec![0; bytes];
    let page_bytes = rustix::param::page_size();
    let skip = vector.as_ptr().align_offset(page_bytes);
    let whole_bytes = bytes.saturating_sub(skip) / page_bytes * page_bytes;
    if whole_bytes >= HUGE_PAGE_BYTES {
        let start = vector[skip..].as_mut_ptr().cast();
        // SAFETY: these pages lie inside the vector, and advice changes neither their contents nor
        // who may use them. A system without huge pages refuses, which changes nothing either.
        let _ = unsafe { madvise(start, whole_bytes, Advice::LinuxHugepage) };
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_as_it_was_written() {
        let region = Region::zeroed(8);
        region.write(2..4).unwrap().copy_from_slice(&[7, 9]);
        assert_eq!(&*region.read(0..8).unwrap(), &[0, 0, 7, 9, 0, 0, 0, 0]);
        assert_eq!(region.try_into_vec().unwrap(), [0, 0, 7, 9, 0, 0, 0, 0]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no files in memory")]
    fn long_fresh_memory_asks_for_huge_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            eprintln!("SKIPPED: this kernel has no huge pages to ask for");
            return;
        }
        let asked =
            |region: &Region| has_flag(region.inner.start as usize + region.len() / 2, "hg");
        assert!(asked(&Region::zeroed(64 << 20)));
        assert!(!asked(&Region::from_vec(vec![0; 64 << 20])));
    }

    /// Whether the mapping at this address has a flag (proc(5), "VmFlags").
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
    fn attachments_go_before_the_memory_does() {
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
