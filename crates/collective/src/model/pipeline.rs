//! What pipelines of blocks cost: broadcasts on the circulant graph, reductions from member to member.
//!
//! The paper leaves open how long messages go. Derived here: receivers grant their receives by a word when the operation starts
//! (the paper's rendezvous), and blocks follow each other over a number of hops.
//!
//! - best case: blocks overlap; each comes after the one before by the longest stage (wire, DMA start, adapter, fold).
//! - worst case: the operation goes in rounds, and none begins before the one before has ended.
//!
//! The last block is shorter, and closes up to the one before on each hop: it saves its difference once.

use super::{block_times::BlockTimes, bounds::Bounds, write_costs::WriteCosts};
use crate::broadcast_tree::BroadcastTree;

/// Returns the time of blocks over this many hops, `blocks.count - 1 + hops` rounds, of which a member has `sends` blocks to
/// send for each block of the message.
fn pipeline_us(blocks: &BlockTimes<'_>, hops: u32, sends: u32) -> Bounds {
    if hops == 0 {
        return Bounds::exactly(0.0);
    }
    let (others, sends) = ((blocks.count - 1) as f64, f64::from(sends));
    let through_us = blocks.word_us()
        + f64::from(hops - 1) * blocks.hop_us(blocks.bytes)
        + blocks.hop_us(blocks.last_bytes);
    Bounds {
        best_us: through_us + others * sends * blocks.next_us(blocks.bytes),
        worst_us: through_us + others * sends * blocks.hop_us(blocks.bytes),
    }
}

/// Returns the time of a broadcast of `bytes` to `members` in blocks of `block_bytes` on the circulant graph (Träff): with k blocks
/// k - 1 + ceil(log2 n) rounds, in each of which a member sends one block at most.
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn circulant_us(members: u32, bytes: u64, block_bytes: u64, costs: &WriteCosts) -> Bounds {
    let blocks = BlockTimes::new(bytes, block_bytes, costs);
    let hops = BroadcastTree::new(members, 0).rounds();
    // The last round carries full blocks, too, unless the root is the only one that sends.
    let blocks = if hops > 1 { blocks.full() } else { blocks };
    pipeline_us(&blocks, hops, 1)
}

/// Returns the time of a reduction of `bytes` from each member to one, in blocks of `block_bytes` from member to member, until the
/// last has the result: n - 1 hops, at each of which blocks are folded.
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn line_reduce_us(members: u32, bytes: u64, block_bytes: u64, costs: &WriteCosts) -> Bounds {
    let blocks = BlockTimes::new(bytes, block_bytes, costs).folded();
    pipeline_us(&blocks, members - 1, 1)
}

/// Returns the time of an allreduce of `bytes` in blocks of `block_bytes`, folded from the last member to the first, and back at the
/// same time: 2 (n - 1) hops. Members between two others send each block twice.
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn chain_allreduce_us(
    members: u32,
    bytes: u64,
    block_bytes: u64,
    costs: &WriteCosts,
) -> Bounds {
    let blocks = BlockTimes::new(bytes, block_bytes, costs);
    let sends = if members > 2 { 2 } else { 1 };
    // On the way back nothing is folded.
    let folds_us = f64::from(members - 1) * blocks.folded().fold_us(blocks.bytes);
    let sent = pipeline_us(&blocks, 2 * (members - 1), sends);
    sent + folds_us
}
