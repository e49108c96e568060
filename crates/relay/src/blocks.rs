//! How a message is cut into blocks.

use crate::RelayError;

/// A message of `bytes` bytes in blocks of `block_bytes`, the last of which may be shorter.
///
/// An empty message is one empty block, so that it is sent like any other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    bytes: u64,
    block_bytes: u64,
    count: u32,
}

/// The position of a block in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRange {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Blocks {
    /// Cuts a message. Errors: `block_bytes` is 0, or more than 2^32-1 blocks.
    pub fn new(bytes: u64, block_bytes: u64) -> Result<Self, RelayError> {
        if block_bytes == 0 {
            return Err(RelayError::Setting("a block must have at least one byte"));
        }
        let count = u32::try_from(bytes.div_ceil(block_bytes).max(1))
            .map_err(|_| RelayError::TooManyBlocks { bytes, block_bytes })?;
        Ok(Self { bytes, block_bytes, count })
    }

    /// Checks that immediates can distinguish the blocks of this many messages in flight, for
    /// offload.
    ///
    /// Errors: [`RelayError::TooManyOffloaded`].
    pub fn check_offload(&self, messages_in_flight: u32) -> Result<(), RelayError> {
        let blocks_max = 1 << (u32::BITS - message_bits(messages_in_flight));
        if u64::from(self.count) > blocks_max {
            return Err(RelayError::TooManyOffloaded { blocks: self.count, blocks_max });
        }
        Ok(())
    }

    /// Returns the number of blocks, at least 1.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the length of the message in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the position of a block; empty and at the end for a number that is out of range.
    pub fn range(&self, block: u32) -> BlockRange {
        let offset = (u64::from(block) * self.block_bytes).min(self.bytes);
        BlockRange { offset, bytes: self.block_bytes.min(self.bytes - offset) }
    }
}

/// Low bits of the immediates of a message's blocks, which distinguish the messages in flight.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tag {
    pub(crate) bits: u32,
    pub(crate) value: u32,
}

impl Tag {
    /// Returns the tag of a message that is relayed after `earlier` others.
    pub(crate) fn new(earlier: u64, messages_in_flight: u32) -> Self {
        let bits = message_bits(messages_in_flight);
        Self { bits, value: earlier as u32 & ((1 << bits) - 1) }
    }
}

/// Returns how many bits distinguish the messages in flight.
fn message_bits(messages_in_flight: u32) -> u32 {
    messages_in_flight.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_each_limit() {
        for (bytes, count, last) in
            [(0, 1, 0), (1, 1, 1), (9, 1, 9), (10, 1, 10), (11, 2, 1), (20, 2, 10), (21, 3, 1)]
        {
            let blocks = Blocks::new(bytes, 10).unwrap();
            assert_eq!(blocks.count(), count, "{bytes} bytes");
            assert_eq!(blocks.range(count - 1).bytes, last, "{bytes} bytes");
        }
        let most = u64::from(u32::MAX);
        assert_eq!(Blocks::new(most * 4, 4).unwrap().count(), u32::MAX);
        assert!(matches!(Blocks::new(most * 4 + 1, 4), Err(RelayError::TooManyBlocks { .. })));
        assert_eq!(Blocks::new(u64::MAX, 1 << 40).unwrap().count(), 1 << 24);
        assert!(Blocks::new(1, 0).is_err());
    }

    #[test]
    fn ranges_cover_the_message_without_gap_or_overlap() {
        let blocks = Blocks::new(1_003, 100).unwrap();
        let mut next = 0;
        for block in 0..blocks.count() {
            let range = blocks.range(block);
            assert_eq!(range.offset, next);
            next += range.bytes;
        }
        assert_eq!(next, 1_003);
        assert_eq!(blocks.range(99), BlockRange { offset: 1_003, bytes: 0 });
    }
}
