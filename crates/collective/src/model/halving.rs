//! What halving costs.

use std::ops::Range;

use super::{block_times::BlockTimes, bounds::Bounds, write_costs::WriteCosts};
use crate::Halving;

/// Returns the time of an allreduce of `bytes` on the circulant graph ([`Halving`]), in blocks of `block_bytes`.
///
/// The paper has none. Derived: a grant, and then 2 ceil(log2 n) rounds of as many chunks of 1 / n of the bytes, rounded up, as
/// go
/// in each; what is received in the first half is folded. Best and worst case of a round are those of a ring's
/// ([`super::ring_allreduce_us`]).
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn halving_allreduce_us(
    members: u32,
    bytes: u64,
    block_bytes: u64,
    costs: &WriteCosts,
) -> Bounds {
    let (rounds, chunk_bytes) = (Halving::new(members), bytes.div_ceil(members.into()));
    rounds_us(rounds, 0..rounds.rounds(), chunk_bytes, block_bytes, costs)
}

/// Returns the time of a reduce-scatter of `bytes` for each member: the first half of [`halving_allreduce_us`].
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn halving_reduce_scatter_us(
    members: u32,
    bytes: u64,
    block_bytes: u64,
    costs: &WriteCosts,
) -> Bounds {
    let rounds = Halving::new(members);
    rounds_us(rounds, 0..rounds.rounds() / 2, bytes, block_bytes, costs)
}

/// Returns the time of an all-gather of `bytes` of each member: the second half of [`halving_allreduce_us`].
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn halving_allgather_us(
    members: u32,
    bytes: u64,
    block_bytes: u64,
    costs: &WriteCosts,
) -> Bounds {
    let rounds = Halving::new(members);
    rounds_us(rounds, rounds.rounds() / 2..rounds.rounds(), bytes, block_bytes, costs)
}

/// The time of some of the rounds, one after another.
fn rounds_us(
    rounds: Halving,
    some: Range<u32>,
    chunk_bytes: u64,
    block_bytes: u64,
    costs: &WriteCosts,
) -> Bounds {
    let Some(last) = some.clone().last() else { return Bounds::exactly(0.0) };
    let mut bounds = Bounds::exactly(BlockTimes::new(0, block_bytes, costs).word_us());
    for round in some {
        let bytes = u64::from(rounds.chunks(round)) * chunk_bytes;
        let sent = BlockTimes::new(bytes, block_bytes, costs);
        let sent = if rounds.folds(round) { sent.folded() } else { sent };
        bounds.best_us += if round == last { sent.arrival_us() } else { sent.distance_us() };
        bounds.worst_us += sent.serial_us();
    }
    bounds
}
