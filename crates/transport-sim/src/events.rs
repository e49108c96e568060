//! What is going to happen, in order.

use std::{cmp::Reverse, collections::BinaryHeap};

use transport::EndpointId;

/// Something that happens at a point in virtual time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// The source's and the target's port are free again; the source's send is done.
    PortsFree { transfer: usize },
    /// The block is at its target.
    Arrival { transfer: usize },
    /// A control word is at this endpoint.
    Control { endpoint: EndpointId, word: Vec<u8> },
    /// This endpoint learns that its peer has closed.
    PeerClosed { endpoint: EndpointId },
    /// This endpoint learns that its peer is lost.
    PeerLost { endpoint: EndpointId },
    /// The ports of these members choose what to transfer next.
    Choose,
}

/// Things that happen at the same instant happen in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Turn {
    /// What reaches a member.
    Arrivals,
    /// Ports become free, which their members learn when they know what has arrived.
    Ports,
    /// Ports choose their next block, when all members have answered.
    Choice,
}

/// Ordered by time, then turn, then by who was scheduled first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    time_ns: u64,
    turn: Turn,
    number: u64,
    event: Event,
}

#[derive(Default, Debug)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<Entry>>,
    scheduled: u64,
}

impl Events {
    pub(crate) fn schedule(&mut self, time_ns: u64, event: Event) {
        let turn = match event {
            Event::PortsFree { .. } => Turn::Ports,
            Event::Choose => Turn::Choice,
            _ => Turn::Arrivals,
        };
        let number = self.scheduled;
        self.scheduled += 1;
        self.heap.push(Reverse(Entry { time_ns, turn, number, event }));
    }

    pub(crate) fn next_time_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.time_ns)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(entry)| (entry.time_ns, entry.event))
    }
}
