//! Where files have data: what is between is holes, which read as zeros and are not sent.
//!
//! Digests cover the data only. That verifies the whole file: unwritten parts of a new file read as zeros, the root that
//! states the holes also states the digest, and an existing file that is compared is checked for data in its holes.

use std::{collections::BTreeMap, ops::Range};

/// The data of files with holes, by the numbers of their entries: ascending ranges with holes between them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Table(BTreeMap<u32, Vec<Range<u64>>>);

/// The data of a file as it is written: of each range how many bytes of hole are before it, and its length. `None` of a file without
/// holes.
pub(crate) type Packed = Option<Vec<(u64, u64)>>;

/// Memory of a range.
const RANGE_BYTES: usize = 16;

impl Table {
    /// Adds the data of an entry with contents of this length. Returns how much memory it takes; `None` if it is no data of a
    /// file with holes.
    pub(crate) fn add(&mut self, entry: usize, bytes: u64, data: Vec<Range<u64>>) -> Option<usize> {
        let mut end = 0;
        for (number, range) in data.iter().enumerate() {
            // A hole is before all but the first.
            let follows = range.start > end || number == 0;
            if !follows || range.is_empty() || range.end > bytes {
                return None;
            }
            end = range.end;
        }
        if bytes == 0 || data.first() == Some(&(0..bytes)) {
            return None;
        }
        let memory = RANGE_BYTES * (1 + data.len());
        self.0.insert(entry as u32, data);
        Some(memory)
    }

    /// The same of what a peer has sent.
    pub(crate) fn unpack(
        &mut self,
        entry: usize,
        bytes: u64,
        packed: &[(u64, u64)],
    ) -> Option<usize> {
        self.add(entry, bytes, ranges(packed)?)
    }

    /// Of an entry as it is written.
    pub(crate) fn packed(&self, entry: usize) -> Packed {
        let mut end = 0;
        let pack = |range: &Range<u64>| {
            let hole = range.start - end;
            end = range.end;
            (hole, range.end - range.start)
        };
        self.of(entry).map(|data| data.iter().map(pack).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn of(&self, entry: usize) -> Option<&[Range<u64>]> {
        self.0.get(&(entry as u32)).map(Vec::as_slice)
    }
}

/// The ranges that were written; `None` if they are none.
pub(crate) fn ranges(packed: &[(u64, u64)]) -> Option<Vec<Range<u64>>> {
    let mut end = 0_u64;
    let ranges = packed.iter().map(|(hole, length)| {
        let start = end.checked_add(*hole)?;
        end = start.checked_add(*length)?;
        Some(start..end)
    });
    ranges.collect()
}
