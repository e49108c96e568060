//! The leases of a region, and the check whether another lease may be granted.

use std::{collections::BTreeMap, ops::Range};

/// The leases of one region. A list suffices: windows are small, so leases are few. Reservations have one
/// list per message, with about one range per gap in the message.
///
/// Each operation pushes, removes or refuses as a whole and leaves no partial change.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) readers: Vec<Range<usize>>,
    pub(crate) writers: Vec<Range<usize>>,
    reserved: Vec<(u64, Reserved)>,
    reservations_made: u64,
}

/// The ranges of one [`crate::Reservation`]: ends by starts. No two ranges touch.
type Reserved = BTreeMap<usize, usize>;

/// Why a lease was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The range is not inside the region.
    #[error("bytes {}..{} are outside a region of {bytes} bytes", range.start, range.end)]
    OutOfRange {
        /// The requested range.
        range: Range<usize>,
        /// Length of the region in bytes.
        bytes: usize,
    },
    /// A write lease of read-only memory was requested.
    #[error("the region is read-only")]
    ReadOnly,
    /// A lease of memory was requested for a region whose bytes are in a file.
    #[error("the region's bytes are in a file; use the leases for files")]
    Stored,
    /// A lease of a file was requested for a region that is memory.
    #[error("the region is memory")]
    NotStored,
    /// Another lease excludes this one.
    #[error("bytes {}..{} are in use", range.start, range.end)]
    InUse {
        /// The requested range.
        range: Range<usize>,
    },
}

/// Returns whether two ranges share a byte; an empty range shares none.
fn overlaps(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// Returns whether a byte of `range` is reserved.
fn has_part_of(reserved: &Reserved, range: &Range<usize>) -> bool {
    let before = reserved.range(..range.end).next_back();
    before.is_some_and(|(&start, &end)| overlaps(&(start..end), range))
}

impl Ledger {
    pub(crate) fn take_read(
        &mut self,
        range: Range<usize>,
        bytes: usize,
    ) -> Result<(), LeaseError> {
        check(&range, bytes)?;
        self.check_no_writer(range.clone())?;
        self.readers.push(range);
        Ok(())
    }

    /// Errors: there is a writer of a part.
    pub(crate) fn check_no_writer(&self, range: Range<usize>) -> Result<(), LeaseError> {
        if self.writers.iter().any(|held| overlaps(held, &range)) {
            return Err(LeaseError::InUse { range });
        }
        Ok(())
    }

    /// Adds a reader that will read later: existing writers do not exclude it, and it excludes new
    /// ones.
    pub(crate) fn take_future_read(
        &mut self,
        range: Range<usize>,
        bytes: usize,
    ) -> Result<(), LeaseError> {
        check(&range, bytes)?;
        self.readers.push(range);
        Ok(())
    }

    pub(crate) fn take_write(
        &mut self,
        range: Range<usize>,
        bytes: usize,
    ) -> Result<(), LeaseError> {
        check(&range, bytes)?;
        if self.writers.iter().chain(&self.readers).any(|held| overlaps(held, &range))
            || self.reserved.iter().any(|(_, reserved)| has_part_of(reserved, &range))
        {
            return Err(LeaseError::InUse { range });
        }
        self.writers.push(range);
        Ok(())
    }

    /// Makes a reservation without ranges, and returns its key.
    pub(crate) fn reserve(&mut self) -> u64 {
        let key = self.reservations_made;
        self.reservations_made += 1;
        self.reserved.push((key, Reserved::new()));
        key
    }

    /// Adds a range, which lies in the region, to a reservation.
    pub(crate) fn add_reserved(&mut self, key: u64, range: Range<usize>) {
        let Some((_, reserved)) = self.reserved.iter_mut().find(|(other, _)| *other == key) else {
            return;
        };
        let Range { start, mut end } = range;
        if start == end {
            return;
        }
        while let Some((&before, until)) = reserved.range_mut(..=end).next_back()
            && *until >= start
        {
            end = end.max(*until);
            if before <= start {
                *until = end;
                return;
            }
            reserved.remove(&before);
        }
        reserved.insert(start, end);
    }

    pub(crate) fn give_up_reserved(&mut self, key: u64) {
        self.reserved.retain(|(other, _)| *other != key);
    }

    /// Returns how many ranges are reserved.
    #[cfg(test)]
    pub(crate) fn reserved_ranges(&self) -> usize {
        self.reserved.iter().map(|(_, reserved)| reserved.len()).sum()
    }
}

fn check(range: &Range<usize>, bytes: usize) -> Result<(), LeaseError> {
    if range.start > range.end || range.end > bytes {
        return Err(LeaseError::OutOfRange { range: range.clone(), bytes });
    }
    Ok(())
}

/// Removes the first bytes of a range that is held.
pub(crate) fn give_back_first(held: &mut [Range<usize>], range: &Range<usize>, bytes: usize) {
    if let Some(held) = held.iter_mut().find(|other| *other == range) {
        held.start += bytes;
    }
}

pub(crate) fn give_back(held: &mut Vec<Range<usize>>, range: &Range<usize>) {
    if let Some(index) = held.iter().position(|other| other == range) {
        held.swap_remove(index);
    }
}
