//! Which files of an object are whole, while ranges of it arrive in any order.

use std::sync::Arc;

use tree::Layout;

use crate::ranges::{ByteRange, Ranges};

/// The files of an object of which all bytes have arrived. A file of which the object has no bytes, as it is empty or all hole, is
/// never one of them.
#[derive(Debug)]
pub(crate) struct WholeFiles {
    layout: Arc<Layout>,
    has: Ranges,
}

impl WholeFiles {
    /// Of an object of which nothing has arrived.
    pub(crate) fn new(layout: &Arc<Layout>) -> Self {
        Self { layout: Arc::clone(layout), has: Ranges::default() }
    }

    /// Adds a range, and returns the numbers of the files that are whole by it, in order: each file once, whatever comes again.
    /// Looks at no other files than those with a byte in the range.
    pub(crate) fn add(&mut self, range: ByteRange) -> Vec<usize> {
        let new: Vec<ByteRange> = self.has.gaps(range).collect();
        self.has.add(range);
        let touched = new.into_iter().flat_map(|(start, end)| self.layout.files_in(start..end));
        let is_whole = |&file: &usize| {
            let range = self.layout.range_of(file);
            self.has.covers((range.start, range.end))
        };
        let mut whole: Vec<usize> = touched.filter(is_whole).collect();
        // One with several gaps.
        whole.dedup();
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tree::{Entry, Kind, Listing};

    use super::*;

    fn layout(lengths: &[u64]) -> Arc<Layout> {
        let entry = |(number, &bytes)| Entry {
            path: format!("{number:04}").into_bytes(),
            kind: Kind::File { bytes },
            mode: 0o600,
            modified_ns: 0,
        };
        let entries = lengths.iter().enumerate().map(entry).collect();
        Arc::new(Layout::of(&Listing::new(entries).unwrap()))
    }

    #[test]
    fn a_file_is_whole_once_its_last_byte_has_come() {
        let mut files = WholeFiles::new(&layout(&[10, 5, 1, 20]));
        assert_eq!(files.add((0, 9)), []);
        assert_eq!(files.add((10, 12)), []);
        assert_eq!(files.add((13, 17)), [2], "a byte of the second is missing");
        assert_eq!(files.add((8, 14)), [0, 1]);
        assert_eq!(files.add((0, 17)), [], "again");
        assert_eq!(files.add((16, 36)), [3]);
        assert_eq!(files.add((5, 5)), []);
    }

    #[test]
    fn a_range_completes_files_with_several_gaps_once() {
        let mut files = WholeFiles::new(&layout(&[10, 10]));
        for start in [1, 5, 11, 15] {
            assert_eq!(files.add((start, start + 2)), []);
        }
        assert_eq!(files.add((0, 20)), [0, 1]);
    }

    proptest! {
        #[test]
        fn files_are_named_once_and_as_soon_as_all_their_bytes_are_there(
            lengths in prop::collection::vec(0..9_u64, 0..20),
            arrivals in prop::collection::vec((0..160_u64, 0..160_u64), 0..40),
        ) {
            let layout = layout(&lengths);
            let (mut files, mut named) = (WholeFiles::new(&layout), vec![false; layout.files()]);
            let mut has = vec![false; layout.bytes() as usize];
            for (one, other) in arrivals.into_iter().chain([(0, 160)]) {
                let range = (one.min(other).min(layout.bytes()), one.max(other).min(layout.bytes()));
                has[range.0 as usize..range.1 as usize].fill(true);
                let is_whole = |file: usize| {
                    let range = layout.range_of(file);
                    has[range.start as usize..range.end as usize].iter().all(|&is_there| is_there)
                };
                let expected: Vec<usize> = (0..layout.files()).filter(|&file| !named[file] && is_whole(file)).collect();
                let whole = files.add(range);
                prop_assert_eq!(&whole, &expected);
                whole.into_iter().for_each(|file| named[file] = true);
            }
            prop_assert!(named.iter().all(|&is_named| is_named));
        }
    }
}
