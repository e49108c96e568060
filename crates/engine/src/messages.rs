//! The messages of one group at one member: their numbers, their memory, and the events that report them.

use std::{collections::VecDeque, ops::Range};

use transport::{LeaseError, Region};

use crate::{
    event::Event,
    memory::{Memory, range},
    order::{Due, Order},
    slot::Slot,
    timeline::Timeline,
};

/// The messages of one group at one member.
pub(crate) struct Messages {
    group: u64,
    report_blocks: bool,
    pub(crate) order: Order,
    /// Memory of messages that are not complete.
    pub(crate) memory: Memory,
    /// Why memory that the application has provided cannot be used: the group is about to fail.
    pub(crate) unusable: Option<LeaseError>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) timeline: Timeline,
}

impl Messages {
    pub(crate) fn new(group: u64, rank: u32, report_blocks: bool) -> Self {
        Self {
            group,
            report_blocks,
            order: Order::default(),
            memory: Memory::default(),
            unusable: None,
            events: VecDeque::new(),
            timeline: Timeline::new(group, rank),
        }
    }

    /// Keeps the memory of a message that is sent from here.
    pub(crate) fn keep_whole(&mut self, message: u64, region: Region) {
        let whole = 0..region.len();
        self.memory.insert(message, region);
        self.reserve(message, whole);
    }

    /// Lets nobody write a range of a message before it is complete.
    fn reserve(&mut self, message: u64, range: Range<usize>) {
        let reserved = self.memory.reserve(message, range);
        debug_assert_eq!(reserved, Ok(()), "lengths were checked");
    }

    /// Notes that a block is in place, and reports it if the application wants that.
    pub(crate) fn held(&mut self, message: u64, offset: u64, bytes: u64) {
        self.reserve(message, range(offset, bytes));
        if self.report_blocks {
            let group = self.group;
            self.events.push_back(Event::Block { group, message, offset, bytes });
        }
    }

    /// Notes that a small message is in the application's memory, or in its file.
    pub(crate) fn small_taken(&mut self, message: u64, bytes: u64) {
        self.held(message, 0, bytes);
        self.order.received(message);
        self.order.complete(message);
    }

    /// Notes that the application has received a small message, and is done with it. Returns `false` if
    /// it is not the next one.
    pub(crate) fn note_done(&mut self, message: u64) -> bool {
        let is_next = self.order.skip(message);
        if is_next {
            self.timeline.note_due(&Due::Received { message });
            self.timeline.note_due(&Due::Complete { message });
        }
        is_next
    }

    /// Reports events that are due, in the order of the messages. `slot`: of a small message.
    pub(crate) fn report(&mut self, slot: impl Fn(u64) -> Option<Slot>) {
        let group = self.group;
        while let Some(due) = self.order.take_due() {
            self.timeline.note_due(&due);
            self.events.push_back(match due {
                Due::Incoming { message, bytes } => {
                    Event::Incoming { group, message, bytes, slot: slot(message) }
                }
                Due::Received { message } => Event::Received { group, message },
                Due::Complete { message } => match self.memory.take(message) {
                    Some(region) => Event::Complete { group, message, region },
                    None => continue,
                },
            });
        }
    }

    /// Returns the memory of a message in flight, or an empty region if there is none, so that a
    /// lease of it fails with a clear error.
    pub(crate) fn region(&self, message: u64) -> Region {
        self.memory.get(message).cloned().unwrap_or_else(|| Region::zeroed(0))
    }
}
