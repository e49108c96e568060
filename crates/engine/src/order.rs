//! One numbering for all messages of a group, relayed or small.
//!
//! The relay numbers only relayed messages, and small messages arrive independently. Here both form
//! one sequence: the root numbers messages as they are sent, and members report each kind of event
//! in the order of these numbers.

use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Root only: how many messages were sent.
    known: u64,
    /// Numbers of the relay's messages that are not complete here, in its order.
    relayed: VecDeque<u64>,
    /// The relay's number of `relayed[0]`.
    relayed_first: u64,
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
    fn has(&self, number: u64) -> bool {
        number < self.next || self.early.contains_key(&number)
    }

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

/// The kind of a missing message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gap {
    /// A message that the root writes to every receiver.
    Small,
    /// A message that is announced and relayed.
    Relayed,
}

impl Order {
    /// Numbers one more message at the root, which is relayed or not.
    pub(crate) fn number(&mut self, relayed: bool) -> u64 {
        let number = self.known;
        self.known += 1;
        if relayed {
            self.relayed.push_back(number);
        }
        number
    }

    /// Notes that a relayed message was announced with this number. Returns `false` if numbers do
    /// not grow, or the number is in use.
    pub(crate) fn announced(&mut self, number: u64) -> bool {
        let grows = self.relayed.back().is_none_or(|&last| last < number);
        // The largest number is not used, so that counting never overflows.
        let good = grows && !self.incoming.has(number) && number < u64::MAX;
        if good {
            self.relayed.push_back(number);
        }
        good
    }

    /// Returns the number of the message that has the relay's number `message`, unless it is
    /// complete.
    pub(crate) fn number_of(&self, message: u64) -> Option<u64> {
        let index = message.checked_sub(self.relayed_first)?;
        self.relayed.get(usize::try_from(index).ok()?).copied()
    }

    /// Returns the relay's number of message `number`, if it is relayed, was reported to the
    /// application, and is not complete.
    pub(crate) fn relayed(&self, number: u64) -> Option<u64> {
        let index = self.relayed.binary_search(&number).ok()?;
        (number < self.incoming.next).then_some(self.relayed_first + index as u64)
    }

    /// Notes that the relay is done with its first message.
    pub(crate) fn retire(&mut self) {
        self.relayed.pop_front();
        self.relayed_first += 1;
    }

    /// Notes that a small message has arrived. Returns `false` if the number is in use.
    pub(crate) fn small(&mut self, number: u64, bytes: u64) -> bool {
        let taken = self.incoming.has(number) || self.relayed.binary_search(&number).is_ok();
        if taken || number == u64::MAX {
            return false;
        }
        self.incoming(number, bytes);
        true
    }

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

    /// Root only: returns how many messages were sent.
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

    /// Returns the kind of message that has not arrived at all, if later ones wait for it. Messages
    /// of one kind arrive in order, so it is the other kind than they are.
    pub(crate) fn gap(&self) -> Option<Gap> {
        let early = self.incoming.early.keys().next()?;
        let is_relayed = self.relayed.binary_search(early).is_ok();
        Some(if is_relayed { Gap::Small } else { Gap::Relayed })
    }
}
