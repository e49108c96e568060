//! Sets of byte ranges.

use rangemap::RangeSet;
use serde::{Deserialize, Serialize};

/// Start, and end exclusive.
pub type ByteRange = (u64, u64);

/// A set of bytes, as ranges that neither touch nor overlap.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Ranges(RangeSet<u64>);

/// The form in messages: ranges in order.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RangeList(Vec<ByteRange>);

impl Ranges {
    /// Adds a range and returns how many of its bytes are new; an empty or reversed one adds nothing.
    pub fn add(&mut self, (start, end): ByteRange) -> u64 {
        if start >= end {
            return 0;
        }
        let new = self.0.gaps(&(start..end)).map(|gap| gap.end - gap.start).sum();
        self.0.insert(start..end);
        new
    }

    /// Takes a range out.
    pub fn remove(&mut self, (start, end): ByteRange) {
        if start < end {
            self.0.remove(start..end);
        }
    }

    /// Whether it has a byte of a range.
    pub fn overlaps(&self, (start, end): ByteRange) -> bool {
        start < end && self.0.overlaps(&(start..end))
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.0.iter().map(|range| (range.start, range.end))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.iter().map(|(start, end)| end - start).sum()
    }

    pub fn covers(&self, (start, end): ByteRange) -> bool {
        start >= end || self.0.get(&start).is_some_and(|range| range.end >= end)
    }

    /// Length of the range that starts at 0.
    pub fn prefix(&self) -> u64 {
        self.reach(0)
    }

    /// The end of the range that has the byte at `start`; `start` if none has.
    pub fn reach(&self, start: u64) -> u64 {
        self.0.get(&start).map_or(start, |range| range.end)
    }

    /// The bytes in both.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).collect())
    }

    /// Those of the first `bytes` bytes that are not in it.
    pub fn missing(&self, bytes: u64) -> Self {
        self.gaps((0, bytes)).collect()
    }

    /// Those of a range that are not in it, in order.
    pub fn gaps(&self, (start, end): ByteRange) -> impl Iterator<Item = ByteRange> {
        let gaps = |range| self.0.gaps(&range).map(|gap| (gap.start, gap.end)).collect::<Vec<_>>();
        (start < end).then(|| gaps(start..end)).into_iter().flatten()
    }
}

impl Extend<ByteRange> for Ranges {
    fn extend<I: IntoIterator<Item = ByteRange>>(&mut self, ranges: I) {
        for range in ranges {
            self.add(range);
        }
    }
}

impl FromIterator<ByteRange> for Ranges {
    fn from_iter<I: IntoIterator<Item = ByteRange>>(ranges: I) -> Self {
        let mut all = Self::default();
        all.extend(ranges);
        all
    }
}

impl From<&Ranges> for RangeList {
    fn from(ranges: &Ranges) -> Self {
        Self(ranges.iter().collect())
    }
}

impl RangeList {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The part within the first `bytes` bytes; a peer may have sent any ranges.
    pub fn within(&self, bytes: u64) -> Ranges {
        self.0.iter().map(|&(start, end)| (start, end.min(bytes))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 64;

    fn as_bits(ranges: &Ranges) -> u64 {
        (0..BYTES).filter(|&at| ranges.covers((at, at + 1))).map(|at| 1 << at).sum()
    }

    fn any_ranges() -> impl Strategy<Value = Vec<ByteRange>> {
        prop::collection::vec((0..BYTES, 0..=BYTES), 0..12)
    }

    fn bits(list: &[ByteRange]) -> u64 {
        list.iter().flat_map(|&(start, end)| start..end).fold(0, |all, at| all | 1 << at)
    }

    proptest! {
        #[test]
        fn ranges_behave_like_sets_of_bytes(one in any_ranges(), two in any_ranges()) {
            let (a, b): (Ranges, Ranges) =
                (one.iter().copied().collect(), two.iter().copied().collect());
            prop_assert_eq!(as_bits(&a), bits(&one));
            let mut again = Ranges::default();
            let new: u64 = one.iter().map(|&range| again.add(range)).sum();
            prop_assert_eq!(new, a.bytes());
            prop_assert_eq!(a.bytes(), u64::from(bits(&one).count_ones()));
            prop_assert_eq!(as_bits(&a.intersection(&b)), bits(&one) & bits(&two));
            prop_assert_eq!(as_bits(&a.missing(BYTES)), !bits(&one));
            prop_assert_eq!(a.prefix(), u64::from(bits(&one).trailing_ones()));
            for at in 0..BYTES {
                let ones = u64::from((bits(&one) >> at).trailing_ones());
                prop_assert_eq!(a.reach(at), at + ones);
                let gaps = bits(&a.gaps((at, BYTES)).collect::<Vec<_>>());
                prop_assert_eq!(gaps, (!bits(&one) >> at) << at);
            }
            let ends: Vec<ByteRange> = a.iter().collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", ends);
            prop_assert_eq!(RangeList::from(&a).within(BYTES), a);
        }
    }

    #[test]
    fn ranges_of_a_peer_are_limited_to_the_object() {
        let list = RangeList(vec![(5, 3), (2, u64::MAX), (u64::MAX, u64::MAX)]);
        assert_eq!(list.within(10).iter().collect::<Vec<_>>(), [(2, 10)]);
        let ten: Ranges = [(0, 10)].into_iter().collect();
        assert!(ten.covers((0, 10)) && !ten.covers((0, 11)));
    }
}
