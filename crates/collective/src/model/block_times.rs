//! What a block of a long message costs on its way from memory to memory.

use super::write_costs::WriteCosts;

/// The blocks of a message, or of a part of one, and what they cost. A block is not copied (Tc), as it goes from memory to memory.
#[derive(Clone, Copy)]
pub(crate) struct BlockTimes<'a> {
    costs: &'a WriteCosts,
    /// Number of blocks; at least 1.
    pub(crate) count: u64,
    /// Length of all blocks but the last.
    pub(crate) bytes: u64,
    /// Length of the last block.
    pub(crate) last_bytes: u64,
    /// Members fold what they receive.
    folds: bool,
}

impl<'a> BlockTimes<'a> {
    /// # Panics
    /// `block_bytes` is 0.
    pub(crate) fn new(bytes: u64, block_bytes: u64, costs: &'a WriteCosts) -> Self {
        let count = bytes.div_ceil(block_bytes).max(1);
        let last_bytes = bytes - (count - 1) * block_bytes;
        Self { costs, count, bytes: block_bytes.min(bytes), last_bytes, folds: false }
    }

    /// The same blocks where members fold what they receive.
    pub(crate) fn folded(self) -> Self {
        Self { folds: true, ..self }
    }

    /// The same number of blocks, of which none is shorter.
    pub(crate) fn full(self) -> Self {
        Self { last_bytes: self.bytes, ..self }
    }

    /// Returns the time of a word of a few bytes, such as the one by which receives are granted.
    pub(crate) fn word_us(&self) -> f64 {
        let WriteCosts { library_us, post_us, dma_start_us, adapter_us, .. } = *self.costs;
        library_us + post_us + 2.0 * (dma_start_us + adapter_us)
    }

    fn transmit_us(&self, bytes: u64) -> f64 {
        self.costs.transmit_us_per_byte * bytes as f64
    }

    /// Returns To of this many bytes, where they are folded.
    pub(crate) fn fold_us(&self, bytes: u64) -> f64 {
        if self.folds { self.costs.fold_us_per_byte * bytes as f64 } else { 0.0 }
    }

    /// Returns the time of a block of this many bytes from one member to another, and of its fold.
    pub(crate) fn hop_us(&self, bytes: u64) -> f64 {
        self.word_us() + self.transmit_us(bytes) + self.fold_us(bytes)
    }

    /// Returns by how much each further block of this many bytes comes later, where blocks overlap: the longest stage.
    pub(crate) fn next_us(&self, bytes: u64) -> f64 {
        let WriteCosts { dma_start_us, adapter_us, library_us, post_us, .. } = *self.costs;
        let stages = [dma_start_us, adapter_us, library_us + post_us, self.fold_us(bytes)];
        stages.into_iter().fold(self.transmit_us(bytes), f64::max)
    }

    /// Returns the time from the beginning of a round of these blocks to that of the next, where blocks overlap.
    pub(crate) fn distance_us(&self) -> f64 {
        let others = (self.count - 1) as f64;
        let leaves_us = others * self.next_us(self.bytes) + self.next_us(self.last_bytes);
        leaves_us.max(self.hop_us(self.bytes))
    }

    /// Returns the time until all blocks of a round have arrived, where they overlap.
    pub(crate) fn arrival_us(&self) -> f64 {
        (self.count - 1) as f64 * self.next_us(self.bytes) + self.hop_us(self.last_bytes)
    }

    /// Returns the time of a round in which nothing overlaps.
    pub(crate) fn serial_us(&self) -> f64 {
        (self.count - 1) as f64 * self.hop_us(self.bytes) + self.hop_us(self.last_bytes)
    }
}
