//! What halving costs.

use super::{block_times::BlockTimes, bounds::Bounds, parameters::Parameters};
use crate::Halving;

/// Returns the time of an allreduce of `bytes` on the circulant graph ([`Halving`]), in blocks of `block_bytes`.
///
/// The paper has none. Derived: a grant, and then 2 ceil(log2 n) rounds of so many chunks of 1 / n of the bytes, rounded up, as go
/// in each; what is received in the first half is folded. Best and worst case of a round are those of a ring's
/// ([`super::ring_allreduce_us`]).
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn halving_allreduce_us(
    members: u32,
    bytes: u64,
    block_bytes: u64,
    parameters: &Parameters,
) -> Bounds {
    let chunk_bytes = bytes.div_ceil(members.into());
    rounds_us(members, 0, chunk_bytes, block_bytes, parameters)
}

/// Returns the time of an all-gather of `bytes` of each member: the second half of [`halving_allreduce_us`].
///
/// # Panics
/// `members` or `block_bytes` is 0.
pub fn halving_allgather_us(
    members: u32,
    bytes: u64,
    block_bytes: u64,
    parameters: &Parameters,
) -> Bounds {
    let first = Halving::new(members).rounds() / 2;
    rounds_us(members, first, bytes, block_bytes, parameters)
}

/// The time of all rounds from this one on.
fn rounds_us(
    members: u32,
    first: u32,
    chunk_bytes: u64,
    block_bytes: u64,
    parameters: &Parameters,
) -> Bounds {
    let rounds = Halving::new(members);
    if rounds.rounds() == 0 {
        return Bounds::exactly(0.0);
    }
    let last = rounds.rounds() - 1;
    let mut bounds = Bounds::exactly(BlockTimes::new(0, block_bytes, parameters).word_us());
    for round in first..=last {
        let bytes = u64::from(rounds.chunks(round)) * chunk_bytes;
        let sent = BlockTimes::new(bytes, block_bytes, parameters);
        let sent = if rounds.folds(round) { sent.folded() } else { sent };
        bounds.best_us += if round == last { sent.arrival_us() } else { sent.distance_us() };
        bounds.worst_us += sent.serial_us();
    }
    bounds
}
