//! The slots of one direction of a link, used one after another.

use std::collections::VecDeque;

use crate::Header;

/// The sender's count of a ring's slots.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    written: u64,
    freed: u64,
    /// Operations that have something left to send on this ring, in order: only the first may send. Otherwise later
    /// operations could fill a ring whose receiver needs an earlier one first.
    pub(crate) operations: VecDeque<u64>,
}

impl Outgoing {
    /// Takes the next slot; `None` while all are in use.
    pub(crate) fn take(&mut self, slots: u32) -> Option<u32> {
        let slot = (self.written % u64::from(slots)) as u32;
        let is_free = self.written - self.freed < u64::from(slots);
        self.written += u64::from(is_free);
        is_free.then_some(slot)
    }

    /// Notes how many slots the receiver has freed in all. Returns whether that is possible.
    pub(crate) fn note_freed(&mut self, freed: u64) -> bool {
        let is_possible = (self.freed..=self.written).contains(&freed);
        if is_possible {
            self.freed = freed;
        }
        is_possible
    }
}

/// The receiver's count of a ring's slots.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// Written slots that are not freed, in order.
    pub(crate) written: VecDeque<Header>,
    freed: u64,
    reported: u64,
    /// Operations of which something is to come on this ring, in order.
    pub(crate) operations: VecDeque<u64>,
}

impl Incoming {
    /// Returns the slot that is written next.
    pub(crate) fn next(&self, slots: u32) -> u32 {
        ((self.freed + self.written.len() as u64) % u64::from(slots)) as u32
    }

    /// Returns the slot of the first header.
    pub(crate) fn first(&self, slots: u32) -> u32 {
        (self.freed % u64::from(slots)) as u32
    }

    /// Frees the first slot. Returns how many were freed in all, if the sender has to know: after each half of the ring, so
    /// that it never waits for a receiver that has nothing left to free.
    pub(crate) fn free(&mut self, slots: u32) -> Option<u64> {
        self.written.pop_front();
        self.freed += 1;
        let is_due = self.freed - self.reported >= u64::from(slots / 2).max(1);
        is_due.then(|| {
            self.reported = self.freed;
            self.freed
        })
    }
}
