//! What a broadcast costs.

use super::write_costs::WriteCosts;
use crate::broadcast_tree::BroadcastTree;

/// What a block holds of a message at the paper's best block size, 3,073 B with the flag (section 6.1).
pub const PAPER_BLOCK_BYTES: u64 = 3072;

/// Returns the time of a broadcast of `bytes` over one hop, in blocks of `block_bytes` of the message (the paper's block
/// size less the byte of the flag).
///
/// Section 5.1: `Tm + Td + 2 (Ts + Tn + Tc) + num (Tt + Ta)` for num blocks. Tt of all blocks is that of all bytes. Tc is
/// that of one block: copies of the others overlap their transmission. An empty message is one block.
///
/// # Panics
/// `block_bytes` is 0.
pub fn broadcast_hop_us(bytes: u64, block_bytes: u64, costs: &WriteCosts) -> f64 {
    let blocks = bytes.div_ceil(block_bytes).max(1);
    let copy_us = costs.copy_us_per_byte * bytes.min(block_bytes) as f64;
    let ends_us = costs.dma_start_us + costs.adapter_us + copy_us;
    costs.library_us
        + costs.post_us
        + 2.0 * ends_us
        + costs.transmit_us_per_byte * bytes as f64
        + costs.acknowledge_us * blocks as f64
}

/// Returns the time of a broadcast to `members`, until the last has all: a hop in each round of [`BroadcastTree`], as a
/// member forwards when all blocks have come (the paper, section 4.1.3).
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn broadcast_us(members: u32, bytes: u64, block_bytes: u64, costs: &WriteCosts) -> f64 {
    rounds(members) * broadcast_hop_us(bytes, block_bytes, costs)
}

/// Returns the time of a broadcast or an allreduce by two-sided messages, from that of the same operation with two members:
/// log2 `members` times as much (the paper, sections 6.1.2 and 6.2.2), rounded up.
///
/// # Panics
/// `members` is 0.
pub fn two_sided_us(members: u32, of_two_us: f64) -> f64 {
    rounds(members) * of_two_us
}

fn rounds(members: u32) -> f64 {
    BroadcastTree::new(members, 0).rounds().into()
}
