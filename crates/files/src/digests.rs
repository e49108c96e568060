//! Digests of a source, and of copies of it that were not sent everything.

use std::collections::BTreeMap;

use crate::ranges::{ByteRange, Ranges};

/// What a reading of the source gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Digests {
    /// The BLAKE3 digest of a file.
    Whole(blake3::Hash),
    /// Those of files of a tree, with their ranges of the object.
    Files(Vec<(ByteRange, blake3::Hash)>),
}

/// All that is known of a source.
#[derive(Default, Debug)]
pub struct KnownDigests {
    whole: Option<blake3::Hash>,
    /// By the start of the file.
    files: BTreeMap<u64, (u64, blake3::Hash)>,
    /// The ranges of these files.
    read: Ranges,
}

impl KnownDigests {
    /// Adds what was read; false if something differs from an earlier reading.
    pub fn add(&mut self, digests: Digests) -> bool {
        match digests {
            Digests::Whole(digest) => *self.whole.get_or_insert(digest) == digest,
            Digests::Files(files) => {
                let mut are_the_same = true;
                for ((start, end), digest) in files {
                    are_the_same &=
                        *self.files.entry(start).or_insert((end, digest)) == (end, digest);
                    self.read.add((start, end));
                }
                are_the_same
            }
        }
    }

    /// The digest that a copy has to have: of the whole file; of a tree, of its files but those that are in `has`
    /// entirely. `None` if it is not known yet. `bytes`: the length of the object.
    pub fn of_copy(&self, is_tree: bool, has: &Ranges, bytes: u64) -> Option<blake3::Hash> {
        if !is_tree {
            return self.whole;
        }
        if has.missing(bytes).iter().any(|range| !self.read.covers(range)) {
            return None;
        }
        let mut copy = CopyDigest::default();
        for (&start, &(end, digest)) in &self.files {
            if !has.covers((start, end)) {
                copy.add(start, &digest);
            }
        }
        Some(copy.finish())
    }
}

/// The digest of several files, in the order of their starts.
#[derive(Default, Debug)]
pub struct CopyDigest(blake3::Hasher);

impl CopyDigest {
    /// Adds a file by its start in the object.
    pub fn add(&mut self, start: u64, digest: &blake3::Hash) {
        self.0.update(&start.to_le_bytes()).update(digest.as_bytes());
    }

    /// The digest of all.
    pub fn finish(&self) -> blake3::Hash {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_tree_is_known_once_what_it_lacks_was_read() {
        let digest = |byte: u8| blake3::hash(&[byte]);
        let ranges = |list: &[ByteRange]| list.iter().copied().collect::<Ranges>();
        let mut known = KnownDigests::default();
        let nothing = CopyDigest::default().finish();
        assert_eq!(known.of_copy(true, &ranges(&[(0, 30)]), 30), Some(nothing));
        assert_eq!(known.of_copy(true, &ranges(&[(0, 29)]), 30), None);
        assert!(known.add(Digests::Files(vec![((10, 30), digest(2))])));
        let mut last = CopyDigest::default();
        last.add(10, &digest(2));
        for has in [&[(0, 29)][..], &[(0, 10)], &[(0, 10), (20, 30)]] {
            assert_eq!(known.of_copy(true, &ranges(has), 30), Some(last.finish()), "{has:?}");
        }
        assert_eq!(known.of_copy(true, &ranges(&[]), 30), None);
        assert!(known.add(Digests::Files(vec![((0, 10), digest(1)), ((10, 30), digest(2))])));
        let mut both = CopyDigest::default();
        both.add(0, &digest(1));
        both.add(10, &digest(2));
        assert_eq!(known.of_copy(true, &ranges(&[(0, 9)]), 30), Some(both.finish()));
        assert!(!known.add(Digests::Files(vec![((0, 10), digest(3))])));
    }

    #[test]
    fn a_copy_of_a_file_has_its_digest_whatever_it_was_sent() {
        let mut known = KnownDigests::default();
        assert_eq!(known.of_copy(false, &Ranges::default(), 1), None);
        let digest = blake3::hash(b"x");
        assert!(known.add(Digests::Whole(digest)) && known.add(Digests::Whole(digest)));
        assert_eq!(known.of_copy(false, &Ranges::default(), 1), Some(digest));
        assert!(!known.add(Digests::Whole(blake3::hash(b"y"))));
    }
}
