//! All transfers of a plan, in order.

use std::{cmp::Reverse, collections::BinaryHeap};

use schedule::{Schedule, Transfer};

/// Yields every transfer by step and, within a step, by source.
///
/// Keeps the next send of each member: O(members) memory and O(log members) time per transfer, however long the
/// stretches in which a member is idle.
pub struct Transfers<'a> {
    schedule: &'a Schedule,
    blocks: u32,
    /// (step, source, target, block).
    pending: BinaryHeap<Reverse<(u64, u32, u32, u32)>>,
}

impl<'a> Transfers<'a> {
    pub fn new(schedule: &'a Schedule, blocks: u32) -> Self {
        let pending = (0..schedule.members())
            .filter_map(|rank| schedule.next_send(rank, 0, blocks))
            .map(ordered);
        Self { schedule, blocks, pending: pending.collect() }
    }
}

fn ordered(transfer: Transfer) -> Reverse<(u64, u32, u32, u32)> {
    Reverse((transfer.step, transfer.source, transfer.target, transfer.block))
}

impl Iterator for Transfers<'_> {
    type Item = Transfer;

    fn next(&mut self) -> Option<Transfer> {
        let Reverse((step, source, target, block)) = self.pending.pop()?;
        self.pending.extend(self.schedule.next_send(source, step + 1, self.blocks).map(ordered));
        Some(Transfer { step, source, target, block })
    }
}
