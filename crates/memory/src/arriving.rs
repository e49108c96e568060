//! Memory whose bytes arrive from the network and are relayed before all bytes have arrived.

use std::{
    fmt,
    ops::Range,
    slice,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    bytes::{Bytes, Memory},
    ledger::{LeaseError, give_back},
};

/// Tracks how many bytes have arrived in memory that a [`crate::WriteLease`] covers: see
/// [`crate::WriteLease::arriving`]. Bytes count as arrived only through
/// [`crate::WriteLease::advance`], not when the lease is dropped.
#[derive(Clone)]
pub struct Arriving {
    region: Arc<Bytes>,
    /// The range that the lease covered when this handle was made.
    range: Range<usize>,
    arrived: Arc<AtomicUsize>,
}

/// The right to read the first bytes of a range as they arrive, until this lease is dropped. While the lease
/// exists, no write lease of these bytes is granted.
pub struct ArrivingRead {
    region: Arc<Bytes>,
    range: Range<usize>,
    arrived: Arc<AtomicUsize>,
}

impl Arriving {
    pub(crate) fn new(region: Arc<Bytes>, range: Range<usize>) -> Self {
        Self { region, range, arrived: Arc::default() }
    }

    /// Counts bytes that the write lease has just given up.
    pub(crate) fn add(&self, bytes: usize) {
        self.arrived.fetch_add(bytes, Ordering::Release);
    }

    /// Leases the first `bytes` bytes for reading; shared with other readers.
    ///
    /// # Errors
    /// The range is outside the region, or bytes that have arrived are leased for writing.
    pub fn read(&self, bytes: usize) -> Result<ArrivingRead, LeaseError> {
        let Range { start, end } = self.range;
        if bytes > end - start {
            return Err(LeaseError::OutOfRange { range: 0..bytes, bytes: end - start });
        }
        let range = start..start + bytes;
        let mut leases = self.region.leases();
        // The writer gave up the bytes that have arrived. If a writer holds them now, it is another
        // one: the first has ended, and no more bytes will arrive.
        let arrived = bytes.min(self.arrived.load(Ordering::Relaxed));
        leases.check_no_writer(start..start + arrived)?;
        leases.take_future_read(range.clone(), self.region.bytes())?;
        drop(leases);
        let (region, arrived) = (Arc::clone(&self.region), Arc::clone(&self.arrived));
        Ok(ArrivingRead { region, range, arrived })
    }
}

impl ArrivingRead {
    /// Returns the length in bytes of the range, including bytes that have not arrived.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// Returns the whole region.
    pub fn memory(&self) -> Memory<'_> {
        self.region.memory()
    }

    /// Returns a pointer to the first byte, for a NIC; valid while the lease exists. Only bytes that have
    /// arrived may be read.
    pub fn as_ptr(&self) -> *const u8 {
        // SAFETY: the range was checked to lie in the region.
        unsafe { self.region.start().add(self.range.start) }
    }

    /// Returns the bytes that have arrived so far, from the first byte on.
    pub fn arrived(&self) -> &[u8] {
        let bytes = self.arrived.load(Ordering::Acquire).min(self.range.len());
        // SAFETY: in range; initialised (regions are made of initialised memory). The write lease
        // has given these bytes up for good before it counted them (`WriteLease::advance`), and no
        // other is granted for any of the range while this is in the ledger; when this was made,
        // there was none of what had arrived (`Arriving::read`).
        unsafe { slice::from_raw_parts(self.region.start().add(self.range.start), bytes) }
    }
}

impl Drop for ArrivingRead {
    fn drop(&mut self) {
        give_back(&mut self.region.leases().readers, &self.range);
    }
}

impl fmt::Debug for Arriving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arriving({}..{})", self.range.start, self.range.end)
    }
}

impl fmt::Debug for ArrivingRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArrivingRead({}..{})", self.range.start, self.range.end)
    }
}

#[cfg(test)]
mod tests {
    use crate::{LeaseError, Region};

    #[test]
    fn what_has_arrived_can_be_read_while_the_rest_is_written() {
        let region = Region::zeroed(10);
        let mut lease = region.write(2..8).unwrap();
        let arriving = lease.arriving();
        let early = arriving.read(6).unwrap();
        assert!(early.arrived().is_empty());
        lease[..2].copy_from_slice(&[1, 2]);
        lease.advance(2);
        assert_eq!(lease.bytes(), 4);
        let late = arriving.read(3).unwrap();
        assert_eq!((early.arrived(), late.arrived()), (&[1, 2][..], &[1, 2][..]));
        lease.copy_from_slice(&[3, 4, 5, 6]);
        lease.advance(4);
        assert_eq!((early.arrived(), late.arrived()), (&[1, 2, 3, 4, 5, 6][..], &[1, 2, 3][..]));
        drop(lease);
        assert!(region.write(2..3).is_err(), "it is being read");
        drop((early, late));
        assert!(region.write(0..10).is_ok());
    }

    #[test]
    fn a_lease_that_is_dropped_early_has_not_brought_the_rest() {
        let region = Region::zeroed(4);
        let mut lease = region.write(0..4).unwrap();
        let arriving = lease.arriving();
        lease.advance(1);
        drop(lease);
        assert_eq!(arriving.read(4).unwrap().arrived().len(), 1);
    }

    #[test]
    fn another_writer_of_what_had_arrived_excludes_readers() {
        let region = Region::zeroed(4);
        let mut lease = region.write(0..4).unwrap();
        let arriving = lease.arriving();
        lease.advance(1);
        drop(lease);
        let _other = region.write(0..2).unwrap();
        assert_eq!(arriving.read(4).unwrap_err(), LeaseError::InUse { range: 0..1 });
        assert!(matches!(arriving.read(5), Err(LeaseError::OutOfRange { bytes: 4, .. })));
    }

    #[test]
    fn a_lease_that_is_not_followed_advances_too() {
        let region = Region::zeroed(4);
        let mut lease = region.write(1..3).unwrap();
        assert!(!lease.is_followed());
        lease.advance(1);
        assert!(region.write(1..2).is_ok() && region.write(2..3).is_err());
        lease.advance(1);
        assert_eq!(lease.bytes(), 0);
        drop(lease);
        assert!(region.write(0..4).is_ok());
    }
}
