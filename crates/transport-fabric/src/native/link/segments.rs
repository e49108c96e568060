//! How a block is cut into messages, so that a member can send it on while it arrives: libfabric
//! reports a message when all of it is there.
//!
//! Both ends cut by the length of the memory of the receive, which its announcement carries; the
//! rule is part of the version of offers.

use std::ops::Range;

use crate::native::sys::Info;

/// A block in memory of this length or shorter is one message.
const SEGMENT_BYTES_MIN: usize = 64 << 10;
/// The most messages of a block: sixteenths gain nothing, quarters cost a chain of 8 members 1 %.
pub const SEGMENTS_MAX: usize = 8;
/// Segments start at multiples of it.
const ALIGNMENT_BYTES: usize = 4 << 10;

/// The least length of memory that is cut.
pub const CUT_BYTES_MIN: u64 = SEGMENT_BYTES_MIN as u64 + 1;

/// Returns whether links of this device cut blocks. An adapter carries a whole block as one work
/// request, and blocks can be short there; over sockets each block costs more.
pub fn are_used(info: &Info) -> bool {
    info.provider == "tcp" && info.is_message_endpoint
}

/// The messages by which the block for one receive comes. There are as many for a block that is
/// shorter than the memory: the last ones are empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segments {
    memory_bytes: usize,
    segment_bytes: usize,
}

impl Segments {
    /// Cuts the memory of a receive.
    pub fn of(memory_bytes: usize, info: &Info) -> Self {
        if are_used(info) { Self::cut(memory_bytes) } else { Self::whole(memory_bytes) }
    }

    pub fn whole(memory_bytes: usize) -> Self {
        Self { memory_bytes, segment_bytes: memory_bytes }
    }

    pub fn cut(memory_bytes: usize) -> Self {
        let share = memory_bytes.div_ceil(SEGMENTS_MAX).next_multiple_of(ALIGNMENT_BYTES);
        Self { memory_bytes, segment_bytes: share.max(SEGMENT_BYTES_MIN) }
    }

    /// At least 1, at most [`SEGMENTS_MAX`].
    pub fn count(self) -> usize {
        self.memory_bytes.div_ceil(self.segment_bytes.max(1)).max(1)
    }

    /// Returns the part that the message of this index carries of a block of this length.
    pub fn range(self, index: usize, block_bytes: usize) -> Range<usize> {
        let at = |index: usize| (index * self.segment_bytes).min(block_bytes);
        at(index)..at(index + 1)
    }

    /// Returns the part of the memory into which the message of this index comes.
    pub fn place(self, index: usize) -> Range<usize> {
        self.range(index, self.memory_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_are_cut_in_eighths_of_64_kib_and_more() {
        let shape = |bytes: usize| {
            let segments = Segments::cut(bytes);
            (segments.count(), segments.place(0).len())
        };
        assert_eq!(shape(0), (1, 0));
        assert_eq!(shape(64 << 10), (1, 64 << 10));
        assert_eq!(shape(CUT_BYTES_MIN as usize), (2, 64 << 10));
        assert_eq!(shape(256 << 10), (4, 64 << 10));
        assert_eq!(shape(512 << 10), (8, 64 << 10));
        assert_eq!(shape(1 << 20), (8, 128 << 10));
        assert_eq!(shape((1 << 20) + 1), (8, 132 << 10));
        assert_eq!(shape(u32::MAX as usize), (8, 512 << 20));
        assert_eq!((Segments::whole(0).count(), Segments::whole(1 << 30).count()), (1, 1));
    }

    proptest! {
        #[test]
        fn segments_cover_the_block(memory in 0..5_000_000_usize, share in 0..=100_usize) {
            let block = memory * share / 100;
            for segments in [Segments::cut(memory), Segments::whole(memory)] {
                prop_assert!((1..=SEGMENTS_MAX).contains(&segments.count()));
                let mut end = 0;
                for index in 0..segments.count() {
                    let part = segments.range(index, block);
                    prop_assert_eq!(part.start, end);
                    prop_assert!(part.len() <= segments.place(index).len());
                    prop_assert!(part.is_empty() || part.start == segments.place(index).start);
                    end = part.end;
                }
                prop_assert_eq!(end, block);
                prop_assert_eq!(segments.place(segments.count() - 1).end, memory);
            }
        }
    }
}
