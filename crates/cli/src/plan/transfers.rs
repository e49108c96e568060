//! All transfers of a plan, in order.

use std::{borrow::Borrow, cmp::Reverse, collections::BinaryHeap};

use schedule::{Schedule, Transfer};

/// Yields every transfer by step and, within a step, by source.
///
/// Keeps the next send of each member: O(members) memory and O(log members) time per transfer, however long the
/// stretches in which a member is idle.
pub struct Transfers<S> {
    schedule: S,
    blocks: u32,
    /// (step, source, target, block).
    pending: BinaryHeap<Reverse<(u64, u32, u32, u32)>>,
}

impl<S: Borrow<Schedule>> Transfers<S> {
    pub fn new(schedule: S, blocks: u32) -> Self {
        let plan = schedule.borrow();
        let pending = (0..plan.members())
            .filter_map(|rank| plan.next_send(rank, 0, blocks))
            .map(ordered)
            .collect();
        Self { schedule, blocks, pending }
    }
}

fn ordered(transfer: Transfer) -> Reverse<(u64, u32, u32, u32)> {
    Reverse((transfer.step, transfer.source, transfer.target, transfer.block))
}

impl<S: Borrow<Schedule>> Iterator for Transfers<S> {
    type Item = Transfer;

    fn next(&mut self) -> Option<Transfer> {
        let Reverse((step, source, target, block)) = self.pending.pop()?;
        let next = self.schedule.borrow().next_send(source, step + 1, self.blocks);
        self.pending.extend(next.map(ordered));
        Some(Transfer { step, source, target, block })
    }
}
