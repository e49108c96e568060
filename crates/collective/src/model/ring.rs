//! What rings cost.

use super::{block_times::BlockTimes, bounds::Bounds, write_costs::WriteCosts};
use crate::RingRounds;

/// Returns the time of an allreduce of `bytes` on a ring ([`RingRounds`]), in blocks of `block_bytes`.
///
/// The paper has no ring. Derived: a grant, and then 2 (n - 1) rounds of a chunk of 1 / n of the bytes, rounded up.
///
/// - best case: blocks overlap. A round begins when the chunk before has left, and its first block was received and folded,
///   whichever is later.
/// - worst case: nothing overlaps; each block of a chunk waits for the one before to arrive and to be folded.
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn ring_allreduce_us(members: u32, bytes: u64, block_bytes: u64, costs: &WriteCosts) -> Bounds {
    let rounds = RingRounds::new(members);
    if rounds.rounds() == 0 {
        return Bounds::exactly(0.0);
    }
    let chunk_bytes = bytes.div_ceil(members.into());
    let gathered = BlockTimes::new(chunk_bytes, block_bytes, costs);
    let folded = gathered.folded();
    let folding = f64::from(members - 1);
    // Of the gathering rounds the last is no distance to another, but its whole chunk has to arrive.
    let best_us = gathered.word_us()
        + folding * folded.distance_us()
        + (folding - 1.0) * gathered.distance_us()
        + gathered.arrival_us();
    let worst_us = gathered.word_us() + folding * (folded.serial_us() + gathered.serial_us());
    Bounds { best_us, worst_us }
}

/// Returns the time of a reduce-scatter of `bytes` for each member on a ring, in blocks of `block_bytes`: the first half of
/// [`ring_allreduce_us`].
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn ring_reduce_scatter_us(
    members: u32,
    bytes: u64,
    block_bytes: u64,
    costs: &WriteCosts,
) -> Bounds {
    half_us(members, &BlockTimes::new(bytes, block_bytes, costs).folded())
}

/// Returns the time of an all-gather of `bytes` of each member on a ring, in blocks of `block_bytes`: the second half of
/// [`ring_allreduce_us`].
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn ring_allgather_us(members: u32, bytes: u64, block_bytes: u64, costs: &WriteCosts) -> Bounds {
    half_us(members, &BlockTimes::new(bytes, block_bytes, costs))
}

fn half_us(members: u32, sent: &BlockTimes<'_>) -> Bounds {
    if members == 1 {
        return Bounds::exactly(0.0);
    }
    let rounds = f64::from(members - 1);
    Bounds {
        best_us: sent.word_us() + (rounds - 1.0) * sent.distance_us() + sent.arrival_us(),
        worst_us: sent.word_us() + rounds * sent.serial_us(),
    }
}
