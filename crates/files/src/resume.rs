//! Resuming: which parts of a receiver's existing file match the source.
//!
//! The receiver digests its file in chunks, skipping holes, and the root compares them with its source. Equal chunks
//! are not sent again. Only the file's contents count, so changes since the earlier session do no damage.

use std::{collections::BTreeMap, io, ops::RangeInclusive};

use serde::{Deserialize, Serialize};

use crate::ranges::{ByteRange, Ranges};

/// The shortest chunk: what differs somewhere in it is sent again.
const CHUNK_BYTES_MIN: u64 = 1 << 20;
/// The shortest chunk of links, in which each is two messages.
const LINK_CHUNK_BYTES_MIN: u64 = 64 << 10;
/// At most this many chunks of links where they are shorter than others.
const LINK_CHUNKS: u64 = 4096;
/// The most chunks of an object, so that their digests fit into a message.
const CHUNKS_MAX: u64 = 1 << 18;

/// Existing chunks of a receiver's file, by number, with their BLAKE3 digests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChunkDigests(pub Vec<(u32, [u8; 32])>);

/// The division of an object into chunks.
#[derive(Clone, Copy, Debug)]
pub struct Chunking {
    /// Length of the object.
    pub bytes: u64,
    /// Length of each chunk but the last.
    pub chunk_bytes: u64,
}

impl Chunking {
    /// The division that both ends use for this length.
    pub(crate) fn of(bytes: u64) -> Self {
        Self { bytes, chunk_bytes: bytes.div_ceil(CHUNKS_MAX).max(CHUNK_BYTES_MIN) }
    }

    /// The same for links, in which each host passes a chunk on once it is whole: an object has so many that a chain of some tens of hosts
    /// delays its end by about a hundredth.
    pub(crate) fn of_links(bytes: u64) -> Self {
        let long = Self::of(bytes).chunk_bytes;
        let chunk_bytes = (bytes / LINK_CHUNKS).next_power_of_two();
        Self { bytes, chunk_bytes: chunk_bytes.clamp(LINK_CHUNK_BYTES_MIN, long) }
    }

    /// The numbers of the chunks with a byte in this range, which is not empty.
    pub fn chunks_of(&self, (start, end): ByteRange) -> RangeInclusive<u32> {
        (start / self.chunk_bytes) as u32..=((end - 1) / self.chunk_bytes) as u32
    }

    /// The bytes of all chunks with a byte in this range, which is not empty.
    pub fn whole(&self, range: ByteRange) -> ByteRange {
        let chunks = self.chunks_of(range);
        (self.range(*chunks.start()).0, self.range(*chunks.end()).1)
    }

    /// The bytes of a chunk; empty if the object has no such chunk.
    pub fn range(&self, index: u32) -> ByteRange {
        let start = u64::from(index).saturating_mul(self.chunk_bytes).min(self.bytes);
        (start, start.saturating_add(self.chunk_bytes).min(self.bytes))
    }
}

impl ChunkDigests {
    #[cfg(test)]
    pub(crate) fn made_up() -> Self {
        Self(vec![(0, [1; 32]), (u32::MAX, [2; 32])])
    }

    /// The chunks with data; `next` returns the next position with data.
    pub fn of_chunks(
        chunking: Chunking,
        next: impl Fn(u64) -> io::Result<Option<u64>>,
        digest: impl Fn(ByteRange) -> io::Result<blake3::Hash>,
    ) -> io::Result<Option<Self>> {
        let mut digests = Vec::new();
        let mut position = 0;
        while let Some(data) = next(position)? {
            let index = (data / chunking.chunk_bytes) as u32;
            let range = chunking.range(index);
            position = range.1;
            digests.push((index, *digest(range)?.as_bytes()));
        }
        Ok((!digests.is_empty()).then_some(Self(digests)))
    }
}

/// The source's chunks, each digested on first use.
#[derive(Debug)]
pub struct SourceChunks {
    chunking: Chunking,
    digests: BTreeMap<u32, [u8; 32]>,
}

impl SourceChunks {
    /// For an object of this length.
    pub fn new(bytes: u64) -> Self {
        Self::with_chunking(Chunking::of(bytes))
    }

    /// With this division.
    pub fn with_chunking(chunking: Chunking) -> Self {
        Self { chunking, digests: BTreeMap::new() }
    }

    /// The ranges in which a receiver's file matches the source; `digest_of` digests a range of the source.
    ///
    /// Blocks while it reads the same chunks. Errors: those of `digest_of`; chunks that the object does not have.
    pub fn matching(
        &mut self,
        digests: &ChunkDigests,
        digest_of: impl Fn(ByteRange) -> io::Result<blake3::Hash>,
    ) -> io::Result<Ranges> {
        let mut matching = Ranges::default();
        for &(index, digest) in &digests.0 {
            let (start, end) = self.chunking.range(index);
            if start >= end {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "chunks beyond the end"));
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
                matching.add((start, end));
            }
        }
        Ok(matching)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write, os::unix::fs::FileExt, sync::atomic::AtomicBool};

    use super::*;
    use crate::hash::digest_range;

    const MIB: usize = 1 << 20;

    fn file_of(contents: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(contents).unwrap();
        file
    }

    fn digest_file(file: &File, range: ByteRange, stop: &AtomicBool) -> io::Result<blake3::Hash> {
        digest_range(|into, at| file.read_exact_at(into, at), range, stop)
    }

    /// All chunks of a file.
    fn digests(file: &File, bytes: u64) -> ChunkDigests {
        let next = |position| Ok((position < bytes).then_some(position));
        let digest = |range| digest_file(file, range, &go_on());
        ChunkDigests::of_chunks(Chunking::of(bytes), next, digest).unwrap().unwrap()
    }

    fn digest_of(file: &File) -> impl Fn(ByteRange) -> io::Result<blake3::Hash> {
        |range| digest_file(file, range, &go_on())
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
        let digests = digests(&file_of(&other), bytes as u64);
        let mut chunks = SourceChunks::new(bytes as u64);
        let right = chunks.matching(&digests, digest_of(&file_of(&source))).unwrap();
        let mib = MIB as u64;
        let expected: Ranges = [(0, mib), (2 * mib, bytes as u64)].into_iter().collect();
        assert_eq!(right, expected);
        // Digests are kept: the source is not read again.
        assert_eq!(chunks.matching(&digests, digest_of(&file_of(&[]))).unwrap(), expected);
    }

    #[test]
    fn chunks_beyond_the_end_are_refused() {
        let source = file_of(&[1; 100]);
        for index in [1, u32::MAX] {
            let outside = ChunkDigests(vec![(index, [0; 32])]);
            assert!(SourceChunks::new(100).matching(&outside, digest_of(&source)).is_err());
        }
        let digests = digests(&source, 100);
        let stopped = AtomicBool::new(true);
        let interrupted = |range| digest_file(&source, range, &stopped);
        assert!(SourceChunks::new(100).matching(&digests, interrupted).is_err());
    }
}
