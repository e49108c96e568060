//! Digests of files that several hosts read parts of: each digests whole subtrees of BLAKE3, from which the root computes the digest
//! of the file.

use std::collections::BTreeMap;

use blake3::{
    Hash, Hasher,
    hazmat::{
        ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root,
        merge_subtrees_root,
    },
};

use crate::ranges::{ByteRange, Ranges};

/// Length of a subtree, in bytes of a file; the last one of a file may be shorter. A power of two, as BLAKE3 has it.
pub const SUBTREE_BYTES: u64 = 1 << 20;

/// The digest of a subtree: its chaining value, or the digest of a file that has no other.
pub type SubtreeDigest = [u8; 32];

/// Digests one subtree, the part `range` of the file at `file`.
pub struct SubtreeHasher {
    hasher: Hasher,
    is_whole_file: bool,
}

impl SubtreeHasher {
    /// For the subtree that begins at this place of an object.
    pub fn new(subtrees: &Subtrees, start: u64) -> Self {
        let file = subtrees.file_at(start);
        let mut hasher = Hasher::new();
        hasher.set_input_offset(start - file.0);
        Self { hasher, is_whole_file: file.1 - file.0 <= subtrees.subtree_bytes }
    }

    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// After the last; there was at least one.
    pub fn finish(&self) -> SubtreeDigest {
        match self.is_whole_file {
            true => *self.hasher.finalize().as_bytes(),
            false => self.hasher.finalize_non_root(),
        }
    }
}

/// The division of an object into subtrees: files in a row, without those that are empty.
#[derive(Clone, Default, Debug)]
pub struct Subtrees {
    /// The end of each file by its start.
    files: BTreeMap<u64, u64>,
    subtree_bytes: u64,
}

impl Subtrees {
    /// Of these files, by their ranges of the object, in subtrees of this length.
    pub fn new(files: impl IntoIterator<Item = ByteRange>, subtree_bytes: u64) -> Self {
        let files = files.into_iter().filter(|(start, end)| start < end).collect();
        Self { files, subtree_bytes }
    }

    /// The file that has this byte; an empty range behind the last.
    pub fn file_at(&self, at: u64) -> ByteRange {
        let before = self.files.range(..=at).next_back().map(|(&start, &end)| (start, end));
        before.filter(|&(_, end)| at < end).unwrap_or((at, at))
    }

    /// The subtree that has this byte; an empty range behind the last.
    pub fn at(&self, at: u64) -> ByteRange {
        let (start, end) = self.file_at(at);
        let first = start + (at - start) / self.subtree_bytes * self.subtree_bytes;
        (first, end.min(first + self.subtree_bytes))
    }

    /// All subtrees with a byte in these ranges.
    pub fn whole(&self, ranges: &Ranges) -> Ranges {
        let end_of = |end: u64| if end == 0 { 0 } else { self.at(end - 1).1 };
        ranges.iter().map(|(start, end)| (self.at(start).0, end_of(end))).collect()
    }

    /// All files with a byte in these ranges.
    pub fn files(&self, ranges: &Ranges) -> Ranges {
        let end_of = |end: u64| if end == 0 { 0 } else { self.file_at(end - 1).1 };
        ranges.iter().map(|(start, end)| (self.file_at(start).0, end_of(end))).collect()
    }
}

/// Two digests of one subtree differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Differs;

/// What is known of the digests of subtrees of an object.
#[derive(Default, Debug)]
pub struct KnownSubtrees {
    subtrees: Subtrees,
    digests: BTreeMap<u64, SubtreeDigest>,
    read: Ranges,
}

impl KnownSubtrees {
    /// Nothing yet.
    pub fn new(subtrees: Subtrees) -> Self {
        Self { subtrees, ..Self::default() }
    }

    /// The division.
    pub fn division(&self) -> &Subtrees {
        &self.subtrees
    }

    /// The subtrees whose digests are known.
    pub fn read(&self) -> &Ranges {
        &self.read
    }

    /// Adds the digest of the subtree that begins here; returns the file of which it was the last one, with its digest.
    ///
    /// Errors: another digest of it is known.
    pub fn add(
        &mut self,
        start: u64,
        digest: SubtreeDigest,
    ) -> Result<Option<(ByteRange, Hash)>, Differs> {
        match self.digests.insert(start, digest) {
            Some(before) if before != digest => return Err(Differs),
            Some(_) => return Ok(None),
            None => {}
        }
        self.read.add(self.subtrees.at(start));
        let file = self.subtrees.file_at(start);
        Ok(self.read.covers(file).then(|| (file, self.of_file(file))))
    }

    fn of_file(&self, (start, end): ByteRange) -> Hash {
        let bytes = end - start;
        if bytes <= self.subtrees.subtree_bytes {
            return Hash::from_bytes(self.digests[&start]);
        }
        let middle = start + left_subtree_len(bytes);
        let (left, right) =
            (self.chaining_value((start, middle)), self.chaining_value((middle, end)));
        merge_subtrees_root(&left, &right, Mode::Hash)
    }

    /// Recurses as deep as BLAKE3's tree is.
    fn chaining_value(&self, (start, end): ByteRange) -> ChainingValue {
        let bytes = end - start;
        if bytes <= self.subtrees.subtree_bytes {
            return self.digests[&start];
        }
        let middle = start + left_subtree_len(bytes);
        let (left, right) =
            (self.chaining_value((start, middle)), self.chaining_value((middle, end)));
        merge_subtrees_non_root(&left, &right, Mode::Hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(at: u64) -> u8 {
        (at * 31 % 251) as u8
    }

    fn digest_of(subtrees: &Subtrees, start: u64) -> SubtreeDigest {
        let (start, end) = subtrees.at(start);
        let mut hasher = SubtreeHasher::new(subtrees, start);
        let bytes: Vec<u8> = (start..end).map(byte).collect();
        bytes.chunks(70_001).for_each(|part| hasher.update(part));
        hasher.finish()
    }

    #[test]
    fn parts_in_any_order_give_the_digest_of_each_file() {
        let lengths = [1, SUBTREE_BYTES, 0, 3 * SUBTREE_BYTES + 5, SUBTREE_BYTES + 1, 7];
        let mut end = 0;
        let files: Vec<ByteRange> = lengths
            .iter()
            .map(|bytes| {
                end += bytes;
                (end - bytes, end)
            })
            .collect();
        let subtrees = Subtrees::new(files.iter().copied(), SUBTREE_BYTES);
        let mut starts = Vec::new();
        let mut at = 0;
        while at < end {
            starts.push(at);
            at = subtrees.at(at).1;
        }
        assert_eq!(starts.len(), 1 + 1 + 4 + 2 + 1);
        let mut known = KnownSubtrees::new(subtrees.clone());
        let mut whole = BTreeMap::new();
        for &start in starts.iter().rev().chain(&starts) {
            whole.extend(known.add(start, digest_of(&subtrees, start)).unwrap());
        }
        for &(start, end) in files.iter().filter(|(start, end)| start < end) {
            let bytes: Vec<u8> = (start..end).map(byte).collect();
            assert_eq!(whole.remove(&(start, end)), Some(blake3::hash(&bytes)));
        }
        assert!(whole.is_empty());
        assert_eq!(known.add(0, [9; 32]), Err(Differs));
    }

    #[test]
    fn ranges_grow_to_whole_subtrees_and_files() {
        let ranges = |list: &[ByteRange]| list.iter().copied().collect::<Ranges>();
        let long = 2 * SUBTREE_BYTES + 10;
        let subtrees =
            Subtrees::new([(0, 10), (10, 10 + long), (10 + long, 30 + long)], SUBTREE_BYTES);
        let within = ranges(&[(11, 12)]);
        assert_eq!(subtrees.whole(&within), ranges(&[(10, 10 + SUBTREE_BYTES)]));
        assert_eq!(subtrees.files(&within), ranges(&[(10, 10 + long)]));
        let across = ranges(&[(5, 11 + SUBTREE_BYTES)]);
        assert_eq!(subtrees.whole(&across), ranges(&[(0, 10 + 2 * SUBTREE_BYTES)]));
        assert_eq!(subtrees.whole(&ranges(&[])), ranges(&[]));
    }
}
