//! What scatters and gathers cost.

use super::{
    block_times::BlockTimes, bounds::Bounds, broadcast::broadcast_hop_us, write_costs::WriteCosts,
};
use crate::Halving;

/// Returns the time of a scatter of `bytes` to each member along [`crate::PartTree`], in pieces of `block_bytes`; of a gather, which
/// goes the other way, too.
///
/// The paper has none. Derived: in each round a hop of a broadcast ([`broadcast_hop_us`]) of the parts of a subtree, as many as
/// members send each other in a round of [`Halving`], and the library's work on the pieces.
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn scatter_us(members: u32, bytes: u64, block_bytes: u64, costs: &WriteCosts) -> f64 {
    let rounds = Halving::new(members);
    let hop_us = |round| {
        let sent = bytes.saturating_mul(rounds.chunks(round).into());
        let others = sent.div_ceil(block_bytes).saturating_sub(1);
        broadcast_hop_us(sent, block_bytes, costs)
            + others as f64 * (costs.post_us + costs.library_us)
    };
    (rounds.rounds() / 2..rounds.rounds()).map(hop_us).sum()
}

/// Returns the time of a scatter of `bytes` to each member by the root, in blocks of `block_bytes` from memory to memory; of a
/// gather, too.
///
/// Derived: a grant, and then the parts of all others over the root's link, one hop each.
///
/// - best case: blocks overlap; each comes after the one before by the longest stage.
/// - worst case: nothing overlaps.
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn direct_us(members: u32, bytes: u64, block_bytes: u64, costs: &WriteCosts) -> Bounds {
    if members == 1 {
        return Bounds::exactly(0.0);
    }
    let (part, others) = (BlockTimes::new(bytes, block_bytes, costs), f64::from(members - 1));
    let leaves_us =
        (part.count - 1) as f64 * part.next_us(part.bytes) + part.next_us(part.last_bytes);
    Bounds {
        best_us: part.word_us() + (others - 1.0) * leaves_us + part.arrival_us(),
        worst_us: part.word_us() + others * part.serial_us(),
    }
}
