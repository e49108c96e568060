//! What members do next: each has an action planned once.

use std::collections::BTreeMap;

use crate::queue::Queue;

/// All planned actions of members.
#[derive(Debug)]
pub(crate) struct Agenda<D> {
    /// The keys are the order within an instant, member and action.
    queue: Queue<(u64, usize, D), ()>,
    /// The time of each action that has not become obsolete.
    planned: BTreeMap<(usize, D), u64>,
}

impl<D: Copy + Ord> Default for Agenda<D> {
    fn default() -> Self {
        Self { queue: Queue::default(), planned: BTreeMap::new() }
    }
}

impl<D: Copy + Ord> Agenda<D> {
    /// Plans an action, unless it is planned for an earlier time.
    pub(crate) fn plan(&mut self, rank: usize, due: D, at_ns: u64, order: impl FnOnce() -> u64) {
        let planned = self.planned.entry((rank, due)).or_insert(u64::MAX);
        if at_ns < *planned {
            *planned = at_ns;
            self.queue.plan(at_ns, (order(), rank, due), ());
        }
    }

    /// Returns the time of the next action; it may be obsolete.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.queue.next_ns()
    }

    /// Takes the next action; `None` if it is obsolete, or there is none.
    pub(crate) fn pop(&mut self) -> Option<(u64, usize, D)> {
        let (at_ns, (_, rank, due), ()) = self.queue.pop()?;
        let is_current = self.planned.get(&(rank, due)) == Some(&at_ns);
        if is_current {
            self.planned.remove(&(rank, due));
        }
        is_current.then_some((at_ns, rank, due))
    }

    /// Returns what is planned, with its member.
    pub(crate) fn planned(&self) -> impl Iterator<Item = (usize, D)> {
        self.planned.keys().copied()
    }

    /// Forgets what a member has planned.
    pub(crate) fn forget(&mut self, rank: usize) {
        self.planned.retain(|&(of, _), _| of != rank);
    }
}
