//! Planned events, in the order of time.

use std::{cmp::Reverse, collections::BinaryHeap};

use transport::Cause;

use crate::{
    fault::Fault,
    names::{SideId, TransferId},
    write::{Arrival, Part},
};

/// Something that happens at one instant.
#[derive(Debug)]
pub(crate) enum Event {
    /// The first bytes of a block have arrived at its target.
    Begun(TransferId),
    /// A block has finished its transfer through its two ports.
    Passed(TransferId),
    /// A block has arrived at its target.
    Arrived(TransferId),
    /// Shared ports: a part has left its source's port.
    PartLeft { id: TransferId, member: usize, bytes: u64 },
    /// Shared ports: a part that this side has sent arrives at its target's port.
    PartCame { id: TransferId, side: SideId, bytes: u64 },
    /// Shared ports: the first part that waits has passed a member's receive port.
    PartRead { member: usize },
    /// A control word arrives at this side.
    Word(SideId, Vec<u8>),
    /// The first posted write of this side has left it.
    WriteLeft(SideId),
    /// A part of a write becomes visible at this side.
    Placed(SideId, Part),
    /// A write arrives at this side, and is reported.
    Write(SideId, Arrival),
    /// The peer's ordered close arrives at this side.
    Bye(SideId),
    /// This side ends, if it has not; a closing one as closed.
    Break(SideId, Cause),
    /// As [`Event::Break`], detected by this side itself: a cut does not hold it back.
    BreakLocally(SideId, Cause),
    /// A fault that the test has planned.
    Fault(Fault),
    /// A stall may be over.
    Resume(usize),
    /// The silence timeout of a stalled member's peers, if this is still the same stall.
    Silence { member: usize, stalled_since_ns: u64 },
    /// A cut may be over.
    Heal(SideId),
    /// The silence timeout of both ends of a connection, if this is still the same cut.
    CutSilence { side: SideId, since_ns: u64 },
    /// Free ports are assigned.
    Arbitrate,
}

/// All planned events. Those of one instant happen in the order in which they were planned, except
/// that [`Event::Arbitrate`] comes last.
#[derive(Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    planned: u64,
}

struct Entry {
    at_ns: u64,
    last_of_instant: bool,
    number: u64,
    event: Event,
}

impl Entry {
    fn key(&self) -> (u64, bool, u64) {
        (self.at_ns, self.last_of_instant, self.number)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Agenda {
    /// Events planned for the end of time are dropped.
    pub(crate) fn plan(&mut self, at_ns: u64, event: Event) {
        if at_ns == u64::MAX {
            return;
        }
        let last_of_instant = matches!(event, Event::Arbitrate);
        let number = self.planned;
        self.planned += 1;
        self.heap.push(Reverse(Entry { at_ns, last_of_instant, number, event }));
    }

    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at_ns)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at_ns, entry.event))
    }
}
