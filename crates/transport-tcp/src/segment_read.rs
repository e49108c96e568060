//! One read of several segments of a block into its memory.
//!
//! A header stands before each segment, so where the payload of one has to go is known only when the header before it
//! was read. Peers often repeat a length, though: that of all but the last segment of a block which they hold, or what
//! links deliver together of one that they are receiving. So the lengths of the next segments are guessed, each header is
//! read beside the block, and the guesses are checked afterwards. What comes from a wrong one on is copied into one
//! buffer, and parsed as if it had been read there.

use std::io::IoSliceMut;

use rustix::io::Errno;

use crate::{
    byte_stream::ByteStream,
    wire::{HEADER_BYTES, Header},
};

/// How many segments are guessed at most.
const GUESSES_MAX: usize = 8;

/// The part of the current segment to read, and guesses of the segments behind it.
pub(crate) struct SegmentRead {
    /// Payload of the current segment.
    pub(crate) part_bytes: usize,
    heads: [[u8; HEADER_BYTES]; GUESSES_MAX],
    /// Lengths of the guessed segments; the first `guesses` are used.
    lengths: [usize; GUESSES_MAX],
    guesses: usize,
}

impl SegmentRead {
    /// A part of the current segment alone.
    pub(crate) fn of_part(part_bytes: usize) -> Self {
        Self {
            part_bytes,
            heads: [[0; HEADER_BYTES]; GUESSES_MAX],
            lengths: [0; GUESSES_MAX],
            guesses: 0,
        }
    }

    /// Also guesses segments of `segment_bytes` in the `block_bytes` that the block has left behind the part, while
    /// all together have at most `budget_bytes`.
    pub(crate) fn with_guesses(
        mut self,
        segment_bytes: usize,
        mut block_bytes: usize,
        budget_bytes: usize,
    ) -> Self {
        let mut left_bytes = budget_bytes.saturating_sub(self.part_bytes);
        while self.guesses < GUESSES_MAX && block_bytes > 0 {
            let length = segment_bytes.min(block_bytes);
            let Some(rest_bytes) = left_bytes.checked_sub(HEADER_BYTES + length) else { break };
            self.lengths[self.guesses] = length;
            self.guesses += 1;
            block_bytes -= length;
            left_bytes = rest_bytes;
        }
        self
    }

    /// Returns how many segments are guessed.
    pub(crate) fn guesses(&self) -> usize {
        self.guesses
    }

    /// Returns how many bytes [`SegmentRead::read`] asks for besides `ahead`.
    pub(crate) fn wanted_bytes(&self) -> usize {
        let guessed: usize = self.lengths[..self.guesses].iter().sum();
        self.part_bytes + guessed + self.guesses * HEADER_BYTES
    }

    /// Reads once: payload goes into `memory`, what follows the last segment into `ahead`.
    pub(crate) fn read(
        &mut self,
        stream: &mut impl ByteStream,
        memory: &mut [u8],
        ahead: &mut [u8],
    ) -> Result<usize, Errno> {
        let mut slices: [IoSliceMut<'_>; 2 + 2 * GUESSES_MAX] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (part, mut memory) = memory.split_at_mut(self.part_bytes);
        slices[0] = IoSliceMut::new(part);
        let mut used = 1;
        for (head, &length) in self.heads[..self.guesses].iter_mut().zip(&self.lengths) {
            let (payload, rest) = memory.split_at_mut(length);
            memory = rest;
            slices[used] = IoSliceMut::new(head);
            slices[used + 1] = IoSliceMut::new(payload);
            used += 2;
        }
        slices[used] = IoSliceMut::new(ahead);
        stream.read(&mut slices[..=used])
    }

    /// Returns the guessed length of a segment and its header, if this many bytes hold the whole header, and it has that length.
    pub(crate) fn guessed(&self, index: usize, bytes: usize) -> Option<(usize, Header)> {
        let header = Header::decode(&self.heads[index]).ok().filter(|_| bytes >= HEADER_BYTES)?;
        let length = self.lengths[index];
        matches!(header, Header::Data { bytes, .. } if bytes == length).then_some((length, header))
    }

    /// Returns the last `bytes` bytes that were read, from the header of this guessed segment on, in a line: its payload was read
    /// to the start of `memory`.
    pub(crate) fn in_line(
        &self,
        index: usize,
        mut bytes: usize,
        mut memory: &[u8],
        ahead: &[u8],
    ) -> Vec<u8> {
        let mut line = Vec::with_capacity(bytes);
        let mut add = |from: &[u8]| {
            let part = &from[..bytes.min(from.len())];
            line.extend_from_slice(part);
            bytes -= part.len();
        };
        for (head, &length) in self.heads[index..self.guesses].iter().zip(&self.lengths[index..]) {
            let (payload, rest) = memory.split_at(length);
            memory = rest;
            add(head);
            add(payload);
        }
        add(ahead);
        line
    }
}
