//! What a ring costs.

use super::{block_times::BlockTimes, bounds::Bounds, parameters::Parameters};
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
pub fn ring_allreduce_us(
    members: u32,
    bytes: u64,
    block_bytes: u64,
    parameters: &Parameters,
) -> Bounds {
    let rounds = RingRounds::new(members);
    if rounds.rounds() == 0 {
        return Bounds::exactly(0.0);
    }
    let chunk_bytes = bytes.div_ceil(members.into());
    let gathered = BlockTimes::new(chunk_bytes, block_bytes, parameters);
    let folded = gathered.folded();
    let folding = f64::from(members - 1);
    // Of the gathering rounds the last is no distance to another, but its whole chunk has to arrive.
    let last_us = (gathered.count - 1) as f64 * gathered.next_us(gathered.bytes)
        + gathered.hop_us(gathered.last_bytes);
    let best_us = gathered.word_us()
        + folding * distance_us(&folded)
        + (folding - 1.0) * distance_us(&gathered)
        + last_us;
    let worst_us = gathered.word_us() + folding * (serial_us(&folded) + serial_us(&gathered));
    Bounds { best_us, worst_us }
}

/// The time from the beginning of a round to that of the next.
fn distance_us(chunk: &BlockTimes<'_>) -> f64 {
    let others = (chunk.count - 1) as f64;
    let leaves_us = others * chunk.next_us(chunk.bytes) + chunk.next_us(chunk.last_bytes);
    leaves_us.max(chunk.hop_us(chunk.bytes))
}

/// The time of a round in which nothing overlaps.
fn serial_us(chunk: &BlockTimes<'_>) -> f64 {
    (chunk.count - 1) as f64 * chunk.hop_us(chunk.bytes) + chunk.hop_us(chunk.last_bytes)
}
