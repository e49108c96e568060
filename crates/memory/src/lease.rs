//! Leases of memory: the right to access a range of a region until the lease is dropped.

use std::{
    fmt,
    ops::{Deref, DerefMut, Range},
    slice,
    sync::Arc,
};

use crate::{
    arriving::Arriving,
    bytes::{Bytes, Memory},
    ledger::{LeaseError, give_back, give_back_first},
};

/// The right to read a range of a region until the lease is dropped; dereferences to the bytes.
pub struct ReadLease {
    region: Arc<Bytes>,
    range: Range<usize>,
}

/// The exclusive right to read and write a range of a region until the lease is dropped; dereferences to
/// the bytes.
pub struct WriteLease {
    region: Arc<Bytes>,
    /// Without the bytes that the lease has given up.
    range: Range<usize>,
    /// Set once [`WriteLease::arriving`] was called.
    arriving: Option<Arriving>,
}

/// The right to have the network read a range once the data being written there has arrived. Unlike
/// a [`ReadLease`], a `FutureRead` may be taken while a [`WriteLease`] of the range exists, and gives no
/// reference to the bytes.
pub struct FutureRead {
    region: Arc<Bytes>,
    range: Range<usize>,
}

impl FutureRead {
    pub(crate) fn new(region: Arc<Bytes>, range: Range<usize>) -> Self {
        Self { region, range }
    }

    /// Returns the whole region.
    pub fn memory(&self) -> Memory<'_> {
        self.region.memory()
    }

    /// Returns a pointer to the first byte, for a system call or a NIC; valid while the lease
    /// exists. The bytes must not be read before all write leases of the range have been dropped.
    pub fn as_ptr(&self) -> *const u8 {
        // SAFETY: the range was checked to lie in the region.
        unsafe { self.region.start().add(self.range.start) }
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// Takes a read lease of the same range.
    ///
    /// # Errors
    /// A part of the range is leased for writing.
    pub fn read_now(&self) -> Result<ReadLease, LeaseError> {
        let bytes = self.region.bytes();
        self.region.leases().take_read(self.range.clone(), bytes)?;
        Ok(ReadLease::new(Arc::clone(&self.region), self.range.clone()))
    }
}

impl ReadLease {
    pub(crate) fn new(region: Arc<Bytes>, range: Range<usize>) -> Self {
        Self { region, range }
    }

    /// Returns the whole region.
    pub fn memory(&self) -> Memory<'_> {
        self.region.memory()
    }

    /// Returns a pointer to the first byte, for a system call or a NIC; valid while the lease
    /// exists.
    pub fn as_ptr(&self) -> *const u8 {
        // SAFETY: the range was checked to lie in the region.
        unsafe { self.region.start().add(self.range.start) }
    }

    /// Returns the length in bytes, without accessing them.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }
}

impl WriteLease {
    pub(crate) fn new(region: Arc<Bytes>, range: Range<usize>) -> Self {
        Self { region, range, arriving: None }
    }

    /// Returns a handle for reading the bytes that this lease has given up by [`WriteLease::advance`], before
    /// the rest is written.
    pub fn arriving(&mut self) -> Arriving {
        let make = || Arriving::new(Arc::clone(&self.region), self.range.clone());
        self.arriving.get_or_insert_with(make).clone()
    }

    /// Returns whether [`WriteLease::arriving`] was called.
    pub fn is_followed(&self) -> bool {
        self.arriving.is_some()
    }

    /// Gives up the first `bytes` bytes (at most all): they are in place, and can now be read through other
    /// leases. This lease covers the rest.
    pub fn advance(&mut self, bytes: usize) {
        let bytes = bytes.min(self.range.len());
        let mut leases = self.region.leases();
        give_back_first(&mut leases.writers, &self.range, bytes);
        // Before anybody else can write them: see `Arriving::read`.
        if let Some(arriving) = &self.arriving {
            arriving.add(bytes);
        }
        drop(leases);
        self.range.start += bytes;
    }

    /// Returns the whole region.
    pub fn memory(&self) -> Memory<'_> {
        self.region.memory()
    }

    /// Returns a pointer to the first byte, for a system call or a NIC; valid while the lease
    /// exists.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: the range was checked to lie in the region.
        unsafe { self.region.start().add(self.range.start) }
    }

    /// Returns the length in bytes, without accessing them.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }
}

impl Deref for ReadLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: in range; initialised (regions are made of initialised memory); no write lease of
        // any part is granted while this lease exists.
        unsafe { slice::from_raw_parts(self.as_ptr(), self.range.len()) }
    }
}

impl Deref for WriteLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as for `ReadLease`; this lease excludes all others, and `&self` excludes
        // `deref_mut`.
        unsafe {
            slice::from_raw_parts(self.region.start().add(self.range.start), self.range.len())
        }
    }
}

impl DerefMut for WriteLease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, with `&mut self` making this the only reference.
        unsafe { slice::from_raw_parts_mut(self.as_mut_ptr(), self.range.len()) }
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        give_back(&mut self.region.leases().readers, &self.range);
    }
}

impl Drop for FutureRead {
    fn drop(&mut self) {
        give_back(&mut self.region.leases().readers, &self.range);
    }
}

impl Drop for WriteLease {
    fn drop(&mut self) {
        give_back(&mut self.region.leases().writers, &self.range);
    }
}

impl fmt::Debug for ReadLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadLease({}..{})", self.range.start, self.range.end)
    }
}

impl fmt::Debug for FutureRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FutureRead({}..{})", self.range.start, self.range.end)
    }
}

impl fmt::Debug for WriteLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteLease({}..{})", self.range.start, self.range.end)
    }
}

#[cfg(test)]
mod tests {
    use crate::{LeaseError, Region};

    #[test]
    fn writers_exclude_and_readers_share() {
        let region = Region::zeroed(10);
        let first = region.write(0..5).unwrap();
        let _second = region.write(5..10).unwrap();
        assert_eq!(region.read(4..6).unwrap_err(), LeaseError::InUse { range: 4..6 });
        drop(first);
        let _reader = region.read(0..5).unwrap();
        let _another = region.read(0..5).unwrap();
        assert_eq!(region.write(0..1).unwrap_err(), LeaseError::InUse { range: 0..1 });
    }

    #[test]
    fn a_future_read_lease_waits_for_the_writer_and_excludes_others() {
        let region = Region::zeroed(8);
        let writer = region.write(0..4).unwrap();
        let future = region.future_read(0..4).unwrap();
        assert!(future.read_now().is_err());
        drop(writer);
        assert_eq!(region.write(0..4).unwrap_err(), LeaseError::InUse { range: 0..4 });
        assert_eq!(*future.read_now().unwrap(), [0; 4]);
        drop(future);
        assert!(region.write(0..4).is_ok());
    }

    #[test]
    fn equal_leases_are_given_back_one_by_one() {
        let region = Region::zeroed(4);
        let first = region.read(0..4).unwrap();
        let second = region.read(0..4).unwrap();
        drop(first);
        assert!(region.write(0..4).is_err());
        drop(second);
        assert!(region.write(0..4).is_ok());
    }

    #[test]
    fn an_empty_range_conflicts_with_nothing() {
        let region = Region::zeroed(4);
        let _writer = region.write(0..4).unwrap();
        assert!(region.read(2..2).is_ok());
        assert!(region.write(4..4).is_ok());
    }

    #[test]
    #[allow(clippy::reversed_empty_ranges, reason = "the point of the test")]
    fn ranges_outside_are_named() {
        let region = Region::zeroed(4);
        assert_eq!(
            region.read(1..5).unwrap_err(),
            LeaseError::OutOfRange { range: 1..5, bytes: 4 }
        );
        assert!(region.write(3..2).is_err());
    }
}
