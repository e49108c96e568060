//! What all members of an operation do together, which counts where they share cores.

use super::write_costs::WriteCosts;
use crate::{Call, Choice, Halving, Kind, Way, partners::Partners, reduction_tree::ReductionTree};

/// The work of all members in one operation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Work {
    /// Writes, and for each block the word that grants it.
    writes: f64,
    /// Bytes that are written.
    bytes: f64,
    /// Bytes that are folded.
    folded_bytes: f64,
}

impl Work {
    /// Counts what is done for a call.
    pub(crate) fn of(members: u32, call: &Call, choice: Choice) -> Self {
        let (all, others) = (f64::from(members), f64::from(members - 1));
        let bytes = call.bytes as f64;
        let pieces = |bytes: u64| bytes.div_ceil(choice.block_bytes).max(1) as f64;
        let (goes_up, goes_down) = (call.kind.goes_up(), call.kind != Kind::Reduce);
        let (whole_bytes, whole) = (call.all_bytes(members), call.all_bytes(members) as f64);
        match choice.way {
            Way::Trees { .. } if call.kind.has_parts_at_root() => {
                Self::scattered(members, call, choice)
            }
            Way::Trees { .. } if call.kind == Kind::ReduceScatter => {
                let scattered = Self::scattered(members, call, choice);
                Self {
                    writes: others * pieces(whole_bytes) + scattered.writes,
                    bytes: others * whole + scattered.bytes,
                    folded_bytes: others * whole,
                }
            }
            Way::Circulant if call.kind.has_parts_at_root() => {
                let Self { writes, bytes, .. } = Self::scattered(members, call, choice);
                Self::in_blocks(writes, bytes, 0.0)
            }
            Way::Trees { degree } if call.kind == Kind::AllGather => {
                // Each contribution takes a hop for each digit of its rank that is not 0.
                let degree = degree.unwrap_or(1);
                let steps = f64::from(ReductionTree::new(members, degree).steps());
                let up = whole * steps * f64::from(degree) / f64::from(degree + 1);
                let down = pieces(whole_bytes);
                let writes = others * (1.0 + down) + up / choice.block_bytes as f64;
                Self { writes, bytes: up + others * whole, folded_bytes: 0.0 }
            }
            Way::Trees { .. } => {
                let ways = f64::from(u8::from(goes_up) + u8::from(goes_down));
                let folded_bytes = if goes_up { others * bytes } else { 0.0 };
                let writes = ways * others * pieces(call.bytes);
                Self { writes, bytes: ways * others * bytes, folded_bytes }
            }
            Way::Exchange => {
                let writes = Partners::of(call, members).writes() as f64;
                let bytes = writes * whole;
                Self { writes: writes * pieces(whole_bytes), bytes, folded_bytes: bytes }
            }
            Way::Circulant | Way::Direct => {
                Self::in_blocks(others * pieces(call.bytes), others * bytes, 0.0)
            }
            Way::Ring | Way::Halving => Self::in_chunks(members, call, choice),
            Way::Chain => {
                let ways = if call.kind == Kind::AllReduce { 2.0 } else { 1.0 };
                // No block is of two parts.
                let parts = if call.kind.has_parts() { all } else { 1.0 };
                let blocks = ways * others * parts * pieces(call.bytes);
                Self::in_blocks(blocks, ways * others * whole, others * whole)
            }
        }
    }

    /// What goes along the tree of a scatter: a part takes half of the rounds.
    fn scattered(members: u32, call: &Call, choice: Choice) -> Self {
        let others = f64::from(members - 1);
        let rounds = f64::from(Halving::new(members).rounds() / 2);
        let bytes = call.all_bytes(members) as f64 * rounds / 2.0;
        Self { writes: others + bytes / choice.block_bytes as f64, bytes, folded_bytes: 0.0 }
    }

    fn in_chunks(members: u32, call: &Call, Choice { way, block_bytes }: Choice) -> Self {
        let (all, others) = (f64::from(members), f64::from(members - 1));
        let bytes = call.bytes as f64;
        let chunk_bytes = match call.kind {
            Kind::AllReduce => call.bytes.div_ceil(members.into()),
            _ => call.bytes,
        };
        let pieces = |chunks: u32| {
            let bytes = chunk_bytes.saturating_mul(chunks.into());
            bytes.div_ceil(block_bytes).max(1) as f64
        };
        let halves = if call.kind == Kind::AllReduce { 2.0 } else { 1.0 };
        let gathered_bytes = all * others * chunk_bytes as f64;
        let folded_bytes = if call.kind.folds() { gathered_bytes } else { 0.0 };
        let blocks = match (way, call.kind) {
            (Way::Ring, Kind::Reduce) => {
                return Self::in_blocks(others * pieces(1), others * bytes, others * bytes);
            }
            (Way::Ring, _) => all * others * pieces(1),
            _ => {
                let rounds = Halving::new(members);
                let gathering = rounds.rounds() / 2..rounds.rounds();
                all * gathering.map(|round| pieces(rounds.chunks(round))).sum::<f64>()
            }
        };
        Self::in_blocks(halves * blocks, halves * gathered_bytes, folded_bytes)
    }

    fn in_blocks(blocks: f64, bytes: f64, folded_bytes: f64) -> Self {
        Self { writes: 2.0 * blocks, bytes, folded_bytes }
    }

    /// Returns the processor time of all members. Members that share cores share a machine: its processors transmit, too.
    pub(crate) fn time_us(&self, costs: &WriteCosts) -> f64 {
        self.writes * costs.work_us
            + self.bytes * costs.transmit_us_per_byte
            + self.folded_bytes * costs.fold_us_per_byte
    }
}
