//! Planned actions of members, in the order of time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

/// A planned action of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    /// It joins the team.
    Start,
    /// It polls for completions.
    Look,
    /// It has computed long enough, and calls the next operation.
    Call,
    /// It may have waited for long enough to tell the others.
    Ask,
    /// Its application's patience may be over.
    TimeOut,
}

/// All planned actions.
#[derive(Default)]
pub(super) struct Agenda {
    /// Time, order within an instant, member, action.
    heap: BinaryHeap<Reverse<(u64, u64, usize, Due)>>,
    /// The time of each action that has not become obsolete.
    planned: BTreeMap<(usize, Due), u64>,
}

impl Agenda {
    /// Plans an action, unless it is planned for an earlier time.
    pub(super) fn plan(&mut self, rank: usize, due: Due, at_ns: u64, order: u64) {
        let planned = self.planned.entry((rank, due)).or_insert(u64::MAX);
        if at_ns < *planned {
            *planned = at_ns;
            self.heap.push(Reverse((at_ns, order, rank, due)));
        }
    }

    /// Returns the time of the next action; it may be obsolete.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|&Reverse((at_ns, ..))| at_ns)
    }

    /// Takes the next action; `None` if it is obsolete, or there is none.
    pub(super) fn pop(&mut self) -> Option<(u64, usize, Due)> {
        let Reverse((at_ns, _, rank, due)) = self.heap.pop()?;
        let is_current = self.planned.get(&(rank, due)) == Some(&at_ns);
        if is_current {
            self.planned.remove(&(rank, due));
        }
        is_current.then_some((at_ns, rank, due))
    }

    /// Returns whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns whether a member has this action planned.
    pub(super) fn has(&self, rank: usize, due: Due) -> bool {
        self.planned.contains_key(&(rank, due))
    }

    /// Forgets what a member has planned.
    pub(super) fn forget(&mut self, rank: usize) {
        self.planned.retain(|&(of, _), _| of != rank);
    }
}
