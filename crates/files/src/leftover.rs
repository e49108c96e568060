//! What a receiver still has of an earlier session, and how much of it is right.
//!
//! The receiver digests its file chunk by chunk, skipping holes, and the root compares: chunks that
//! are equal need not be sent again, whatever has happened to the file meanwhile. Nothing is
//! believed that was not read back.

use std::{collections::BTreeMap, fs::File, io, sync::atomic::AtomicBool};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::{
    hash::digest_range,
    ranges::{ByteRange, Ranges},
};

/// The shortest chunk: what differs somewhere in it is sent again.
const CHUNK_BYTES_MIN: u64 = 1 << 20;
/// The most chunks that are told, so that a message stays within its limit.
const CHUNKS_MAX: u64 = 1 << 18;

/// Chunks of a receiver's file that are there, by number, with their BLAKE3 digests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leftover(pub Vec<(u32, [u8; 32])>);

/// How an object is cut into chunks.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Length of the object.
    pub bytes: u64,
    /// Length of each chunk but the last.
    pub chunk_bytes: u64,
}

impl Cut {
    /// As both ends cut an object of this length.
    fn of(bytes: u64) -> Self {
        Self { bytes, chunk_bytes: bytes.div_ceil(CHUNKS_MAX).max(CHUNK_BYTES_MIN) }
    }

    /// Where a chunk is; empty if the object has no such chunk.
    pub fn range(&self, index: u32) -> ByteRange {
        let start = u64::from(index).saturating_mul(self.chunk_bytes).min(self.bytes);
        (start, start.saturating_add(self.chunk_bytes).min(self.bytes))
    }
}

impl Leftover {
    #[cfg(test)]
    pub(crate) fn made_up() -> Self {
        Self(vec![(0, [1; 32]), (u32::MAX, [2; 32])])
    }

    /// Reads what is there of a file that is to have this length; holes were never written. `None` if nothing is.
    ///
    /// Blocks as long as reading takes, or until `stop`. Errors: the system's.
    pub(crate) fn of(file: &File, bytes: u64, stop: &AtomicBool) -> io::Result<Option<Self>> {
        let next = |position| next_data(file, position, bytes);
        Self::of_chunks(Cut::of(bytes), next, |range| digest_range(file, range, stop))
    }

    /// The same of a whole file, whose holes are zeros.
    pub(crate) fn of_whole(file: &File, bytes: u64, stop: &AtomicBool) -> io::Result<Option<Self>> {
        let next = |position| Ok((position < bytes).then_some(position));
        Self::of_chunks(Cut::of(bytes), next, |range| digest_range(file, range, stop))
    }

    /// Of chunks in which something was written: `next` answers where the first such byte is from a position on.
    pub fn of_chunks(
        cut: Cut,
        next: impl Fn(u64) -> io::Result<Option<u64>>,
        digest: impl Fn(ByteRange) -> io::Result<blake3::Hash>,
    ) -> io::Result<Option<Self>> {
        let mut digests = Vec::new();
        let mut position = 0;
        while let Some(data) = next(position)? {
            let index = (data / cut.chunk_bytes) as u32;
            let range = cut.range(index);
            position = range.1;
            digests.push((index, *digest(range)?.as_bytes()));
        }
        Ok((!digests.is_empty()).then_some(Self(digests)))
    }
}

/// The source's chunks, each digested when it is first asked for.
#[derive(Debug)]
pub struct Chunks {
    cut: Cut,
    digests: BTreeMap<u32, [u8; 32]>,
}

impl Chunks {
    /// Of an object of this length.
    pub fn new(bytes: u64) -> Self {
        Self::cut_as(Cut::of(bytes))
    }

    /// Of an object that is cut like this.
    pub fn cut_as(cut: Cut) -> Self {
        Self { cut, digests: BTreeMap::new() }
    }

    /// Which bytes of a receiver's file are those of the source, of which `digest_of` reads a part.
    ///
    /// Blocks as long as reading the same chunks takes. Errors: those of `digest_of`; chunks that the object
    /// does not have.
    pub fn matching(
        &mut self,
        leftover: &Leftover,
        digest_of: impl Fn(ByteRange) -> io::Result<blake3::Hash>,
    ) -> io::Result<Ranges> {
        let mut right = Ranges::default();
        for &(index, digest) in &leftover.0 {
            let (start, end) = self.cut.range(index);
            if start >= end {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "chunks behind the end"));
            }
            let own = match self.digests.get(&index) {
                Some(&own) => own,
                None => {
                    let own = *digest_of((start, end))?.as_bytes();
                    self.digests.insert(index, own);
                    own
                }
            };
            if own == digest {
                right.add((start, end));
            }
        }
        Ok(right)
    }
}

/// Where the next byte that was ever written is, from here to the end of the object.
fn next_data(file: &File, position: u64, bytes: u64) -> io::Result<Option<u64>> {
    if position >= bytes {
        return Ok(None);
    }
    match seek(file, SeekFrom::Data(position)) {
        Ok(data) => Ok((data < bytes).then_some(data.max(position))),
        Err(Errno::NXIO) => Ok(None),
        // A file system that knows nothing of holes has data everywhere.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(position)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::FileExt};

    use super::*;

    const MIB: usize = 1 << 20;

    fn file_of(contents: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(contents).unwrap();
        file
    }

    fn digest_of(file: &File) -> impl Fn(ByteRange) -> io::Result<blake3::Hash> {
        |range| digest_range(file, range, &go_on())
    }

    fn go_on() -> AtomicBool {
        AtomicBool::new(false)
    }

    #[test]
    fn equal_chunks_are_found_and_others_are_not() {
        let bytes = 4 * MIB + 1000;
        let source: Vec<u8> = (0..bytes).map(|at| (at % 241) as u8).collect();
        let mut other = source.clone();
        other[MIB + 5] ^= 1;
        let leftover = Leftover::of(&file_of(&other), bytes as u64, &go_on()).unwrap().unwrap();
        let mut chunks = Chunks::new(bytes as u64);
        let right = chunks.matching(&leftover, digest_of(&file_of(&source))).unwrap();
        let mib = MIB as u64;
        let expected: Ranges = [(0, mib), (2 * mib, bytes as u64)].into_iter().collect();
        assert_eq!(right, expected);
        // What has been digested once is not read again.
        assert_eq!(chunks.matching(&leftover, digest_of(&file_of(&[]))).unwrap(), expected);
    }

    #[test]
    fn what_was_never_written_is_neither_read_nor_told() {
        let bytes = 64 * MIB as u64;
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        assert_eq!(Leftover::of(&file, bytes, &go_on()).unwrap(), None);
        file.write_all_at(&[1; 10], 33 * MIB as u64 + 7).unwrap();
        let leftover = Leftover::of(&file, bytes, &go_on()).unwrap().unwrap();
        let chunks: Vec<u32> = leftover.0.iter().map(|&(index, _)| index).collect();
        // A file system without holes has data everywhere.
        assert!(chunks == [33] || chunks.len() == 64, "{chunks:?}");
        assert_eq!(Leftover::of(&file, 0, &go_on()).unwrap(), None);
        let whole = Leftover::of_whole(&file, bytes, &go_on()).unwrap().unwrap();
        assert!(whole.0.iter().map(|&(index, _)| index).eq(0..64));
    }

    #[test]
    fn what_a_peer_makes_up_is_refused() {
        let source = file_of(&[1; 100]);
        for index in [1, u32::MAX] {
            let outside = Leftover(vec![(index, [0; 32])]);
            assert!(Chunks::new(100).matching(&outside, digest_of(&source)).is_err());
        }
        let leftover = Leftover::of(&source, 100, &go_on()).unwrap().unwrap();
        let stopped = AtomicBool::new(true);
        let interrupted = |range| digest_range(&source, range, &stopped);
        assert!(Chunks::new(100).matching(&leftover, interrupted).is_err());
    }
}
