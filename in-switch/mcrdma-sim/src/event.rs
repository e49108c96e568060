//! The queue of events.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Something that happens at its time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// A packet has come to the end of a port's link.
    Arrive { port: usize, packet: u32 },
    /// A port may send its next packet.
    Free { port: usize },
    /// A port receives a pause, or a resume.
    Pause { port: usize, is_paused: bool },
    /// A host's network card looks for what to send.
    Wake { host: usize },
    /// A host's program has posted a message.
    Posted { pair: usize, bytes: u32, token: u64 },
    /// A host's program sees that its message has ended.
    Completed { pair: usize, token: u64, is_done: bool },
    /// A host's program sees that a message has come.
    Arrived { incoming: usize, token: u64 },
    /// A timer of the caller.
    Timer { token: u64 },
}

/// Events in the order of their times; of the same time, in that in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
}

impl Events {
    pub fn push(&mut self, at_ps: u64, event: Event) {
        self.count += 1;
        self.heap.push(Reverse((at_ps, self.count, event)));
    }

    /// The next one, if it is not later than this.
    pub fn pop(&mut self, limit_ps: u64) -> Option<(u64, Event)> {
        let Reverse((at_ps, ..)) = self.heap.peek()?;
        if *at_ps > limit_ps {
            return None;
        }
        self.heap.pop().map(|Reverse((at_ps, _, event))| (at_ps, event))
    }
}
