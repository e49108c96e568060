//! Ranges that must not be written before their bytes have been relayed.

use std::{fmt, ops::Range, sync::Arc};

use crate::{bytes::Bytes, ledger::LeaseError};

/// Ranges of a region for which no write lease is granted until the reservation is dropped. The ranges may be
/// read.
///
/// A reservation holds any number of ranges. Adjacent ranges are merged, so that the cost of a message depends
/// on its gaps, not on its blocks in place. Write leases that exist when a range is added are not affected.
///
/// Regions in memory and in files are reserved in the same way. A reservation does not keep other processes
/// from writing a file.
pub struct Reservation {
    region: Arc<Bytes>,
    /// The part of `region` that the ranges lie in.
    part: Range<usize>,
    key: u64,
}

impl Reservation {
    /// Makes a reservation without ranges, of this part of a region.
    pub(crate) fn new(region: Arc<Bytes>, part: Range<usize>) -> Self {
        let key = region.leases().reserve();
        Self { region, part, key }
    }

    /// Adds a range.
    ///
    /// # Errors
    /// [`LeaseError::OutOfRange`].
    pub fn add(&mut self, range: Range<usize>) -> Result<(), LeaseError> {
        let bytes = self.part.len();
        if range.start > range.end || range.end > bytes {
            return Err(LeaseError::OutOfRange { range, bytes });
        }
        let start = self.part.start;
        self.region.leases().add_reserved(self.key, start + range.start..start + range.end);
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.region.leases().give_up_reserved(self.key);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reservation")
    }
}

#[cfg(test)]
mod tests {
    use crate::{LeaseError, Region};

    #[test]
    fn what_is_reserved_is_read_and_not_written() {
        let region = Region::zeroed(100);
        let mut reservation = region.slice(10..90).unwrap().reserve();
        assert!(region.write(0..100).is_ok(), "nothing is reserved yet");
        reservation.add(0..10).unwrap();
        reservation.add(20..30).unwrap();
        assert_eq!(region.write(19..21).unwrap_err(), LeaseError::InUse { range: 19..21 });
        assert!(region.write(29..41).is_err() && region.write(39..40).is_err());
        assert!(region.write(0..10).is_ok() && region.write(20..30).is_ok());
        assert!(region.write(40..100).is_ok());
        assert!(region.read(0..100).is_ok());
        reservation.add(10..20).unwrap();
        assert!(region.write(20..30).is_err());
        assert_eq!(
            reservation.add(70..81).unwrap_err(),
            LeaseError::OutOfRange { range: 70..81, bytes: 80 }
        );
        drop(reservation);
        assert!(region.write(0..100).is_ok());
        assert!(region.try_into_vec().is_ok());
    }

    #[test]
    fn a_writer_may_end_and_others_reserve_the_same() {
        let region = Region::zeroed(10);
        let writer = region.write(0..10).unwrap();
        let (mut first, mut second) = (region.reserve(), region.reserve());
        first.add(0..10).unwrap();
        second.add(4..6).unwrap();
        drop(writer);
        drop(first);
        assert!(region.write(5..6).is_err() && region.write(6..10).is_ok());
        drop(second);
        assert!(region.write(5..6).is_ok());
    }

    #[test]
    fn blocks_in_any_order_leave_one_range() {
        let region = Region::zeroed(1_000);
        let mut reservation = region.reserve();
        for block in (0..100).map(|index| index * 37 % 100) {
            reservation.add(block * 10..block * 10 + 10).unwrap();
        }
        // Again, and one that overlaps.
        reservation.add(15..35).unwrap();
        assert_eq!(region.reserved_ranges(), 1);
        reservation.add(5..5).unwrap();
        assert_eq!(region.reserved_ranges(), 1);
    }

    /// Every two ranges and a third that lies anywhere beside, across or around them.
    #[test]
    fn ranges_of_any_lengths_reserve_their_bytes_and_no_others() {
        let ranges = || (0..7).flat_map(|start| (start..7).map(move |end| start..end));
        for third in ranges() {
            for (first, second) in [(1..2, 4..6), (0..3, 3..4), (2..5, 3..4), (5..6, 0..1)] {
                let region = Region::zeroed(7);
                let mut reservation = region.reserve();
                let all = [first, second, third.clone()];
                all.iter().for_each(|range| reservation.add(range.clone()).unwrap());
                for byte in 0..7 {
                    let is_reserved = all.iter().any(|range| range.contains(&byte));
                    let written = region.write(byte..byte + 1);
                    assert_eq!(written.is_err(), is_reserved, "byte {byte} of {all:?}");
                }
            }
        }
    }
}
