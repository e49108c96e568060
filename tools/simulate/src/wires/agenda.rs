//! What is planned, in the order of time.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Something that is planned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    /// An end begins to use a connection.
    Connect { connection: usize, end: usize },
    /// An end asks for a channel of a shared connection.
    Ask { connection: usize, channel: usize },
    /// The other end answers.
    Answer { connection: usize, channel: usize },
    /// An end sends a message.
    Send { connection: usize, message: usize },
    /// An application closes a channel early.
    Close { connection: usize, channel: usize, end: usize },
    /// A fault happens.
    Fault { number: usize },
    /// The applications wait no longer.
    LosePatience,
}

/// All that is planned.
#[derive(Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(u64, Due)>>,
}

impl Agenda {
    pub(super) fn plan(&mut self, at_ns: u64, due: Due) {
        self.heap.push(Reverse((at_ns, due)));
    }

    /// Returns the time of the next one.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|&Reverse((at_ns, _))| at_ns)
    }

    /// Takes the next one that is due by now.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<Due> {
        let is_due = self.next_ns().is_some_and(|at_ns| at_ns <= now_ns);
        if is_due { self.heap.pop().map(|Reverse((_, due))| due) } else { None }
    }
}
