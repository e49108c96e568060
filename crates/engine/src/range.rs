//! Ranges of regions.

use std::ops::Range;

/// Returns a range of a region. Lengths were checked against regions, which are no longer than
/// memory.
pub(crate) fn range(offset: u64, bytes: u64) -> Range<usize> {
    offset as usize..(offset + bytes) as usize
}
