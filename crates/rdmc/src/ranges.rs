//! Ranges of bytes that have arrived, merged where they are adjacent.

use std::{collections::BTreeMap, ops::Range};

/// Ranges that neither overlap nor touch: ends by starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range that overlaps none; one that touches others becomes a part of them.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if let Some((&before, &touches)) = self.0.range(..start).next_back()
            && touches == start
        {
            start = before;
        }
        if let Some(last) = self.0.remove(&end) {
            end = last;
        }
        self.0.insert(start, end);
    }

    /// Removes the first range.
    pub(crate) fn pop_first(&mut self) -> Option<Range<u64>> {
        self.0.pop_first().map(|(start, end)| start..end)
    }

    /// Where the range that begins at 0 ends; 0 if none does.
    pub(crate) fn prefix(&self) -> u64 {
        self.0.get(&0).copied().unwrap_or(0)
    }

    /// How many ranges there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl IntoIterator for Ranges {
    type Item = Range<u64>;
    type IntoIter = std::iter::Map<
        std::collections::btree_map::IntoIter<u64, u64>,
        fn((u64, u64)) -> Range<u64>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(|(start, end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_are_merged_in_whatever_order_they_come() {
        let mut ranges = Ranges::default();
        for start in [20, 0, 40, 10] {
            ranges.add(start..start + 10);
        }
        assert_eq!((ranges.len(), ranges.prefix()), (2, 30));
        ranges.add(30..40);
        assert_eq!(ranges.pop_first(), Some(0..50));
        assert_eq!((ranges.pop_first(), ranges.prefix()), (None, 0));
    }
}
