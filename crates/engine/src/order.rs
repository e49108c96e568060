//! The order of all messages of a group, relayed or small.
//!
//! Relayed and small messages arrive independently. The root numbers both in one sequence as they are
//! sent, and members report each kind of event in the order of these numbers.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Root only: how many messages were sent.
    known: u64,
    incoming: InOrder<u64>,
    received: InOrder<()>,
    complete: InOrder<()>,
}

/// Events of one kind, some of which wait for those of earlier messages.
#[derive(Debug)]
struct InOrder<T> {
    next: u64,
    early: BTreeMap<u64, T>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { next: 0, early: BTreeMap::new() }
    }
}

impl<T> InOrder<T> {
    fn take(&mut self) -> Option<(u64, T)> {
        let what = self.early.remove(&self.next)?;
        self.next += 1;
        Some((self.next - 1, what))
    }
}

/// An event that is to be reported.
pub(crate) enum Due {
    Incoming { message: u64, bytes: u64 },
    Received { message: u64 },
    Complete { message: u64 },
}

impl Order {
    /// Root only: notes that the next message is sent.
    pub(crate) fn sent(&mut self) {
        self.known += 1;
    }

    /// Returns whether a message with this number has arrived; one that is relayed counts once the
    /// application is to be asked for memory.
    pub(crate) fn has_arrived(&self, number: u64) -> bool {
        number < self.incoming.next || self.incoming.early.contains_key(&number)
    }

    /// Notes that a message has arrived, whose events follow those of all before it.
    pub(crate) fn incoming(&mut self, number: u64, bytes: u64) {
        self.incoming.early.insert(number, bytes);
    }

    pub(crate) fn received(&mut self, number: u64) {
        self.received.early.insert(number, ());
    }

    pub(crate) fn complete(&mut self, number: u64) {
        self.complete.early.insert(number, ());
    }

    /// Returns the next event, in order.
    pub(crate) fn take_due(&mut self) -> Option<Due> {
        if let Some((message, bytes)) = self.incoming.take() {
            return Some(Due::Incoming { message, bytes });
        }
        if let Some((message, ())) = self.received.take() {
            return Some(Due::Received { message });
        }
        self.complete.take().map(|(message, ())| Due::Complete { message })
    }

    /// Notes that the application has received this message, and is done with it, without events. Returns
    /// `false` if it is not the next message.
    pub(crate) fn skip(&mut self, number: u64) -> bool {
        let is_next = self.received.next == number && self.complete.next == number;
        if is_next {
            self.received.next += 1;
            self.complete.next += 1;
        }
        is_next
    }

    /// Returns whether events of later messages wait for those of earlier ones.
    pub(crate) fn has_early(&self) -> bool {
        !self.received.early.is_empty() || !self.complete.early.is_empty()
    }

    /// Root only: returns how many messages were sent; the next has this number.
    pub(crate) fn known(&self) -> u64 {
        self.known
    }

    /// Returns how many messages were reported as complete; the next has this number.
    pub(crate) fn completed(&self) -> u64 {
        self.complete.next
    }

    /// Returns how many messages were reported as received.
    pub(crate) fn received_count(&self) -> u64 {
        self.received.next
    }

    /// Returns whether the message was reported as incoming.
    pub(crate) fn is_reported(&self, number: u64) -> bool {
        number < self.incoming.next
    }

    /// Returns the first message that has arrived and waits for one that has not arrived at all.
    pub(crate) fn first_early(&self) -> Option<u64> {
        self.incoming.early.keys().next().copied()
    }
}
