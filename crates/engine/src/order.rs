//! One numbering for the messages of a group, whichever way they travel.
//!
//! The relay counts only what it relays, and small messages arrive by themselves. Here both are one
//! sequence: the root numbers messages as they are sent, and members report each kind of event in
//! the order of these numbers.

use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Root only: how many messages there are.
    known: u64,
    /// Numbers of the relay's messages that are not complete here, in its order.
    relayed: VecDeque<u64>,
    /// What the relay calls `relayed[0]`.
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

/// A message that is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gap {
    /// One that the root writes to every receiver.
    Small,
    /// One that is announced.
    Relayed,
}

impl Order {
    /// The root has one more message, which is relayed or not.
    pub(crate) fn number(&mut self, relayed: bool) -> u64 {
        let number = self.known;
        self.known += 1;
        if relayed {
            self.relayed.push_back(number);
        }
        number
    }

    /// A relayed message was announced under this number. False if numbers do not grow, or the
    /// number is taken.
    pub(crate) fn announced(&mut self, number: u64) -> bool {
        let grows = self.relayed.back().is_none_or(|&last| last < number);
        // The last number is kept from use, so that counting never overflows.
        let good = grows && !self.incoming.has(number) && number < u64::MAX;
        if good {
            self.relayed.push_back(number);
        }
        good
    }

    /// The number of what the relay calls `message`, unless that is complete.
    pub(crate) fn number_of(&self, message: u64) -> Option<u64> {
        let index = message.checked_sub(self.relayed_first)?;
        self.relayed.get(usize::try_from(index).ok()?).copied()
    }

    /// What the relay calls message `number`, if it is one of its own, not complete, and it
    /// was reported to the application.
    pub(crate) fn relayed(&self, number: u64) -> Option<u64> {
        let index = self.relayed.binary_search(&number).ok()?;
        (number < self.incoming.next).then_some(self.relayed_first + index as u64)
    }

    /// The relay is done with its first message.
    pub(crate) fn retire(&mut self) {
        self.relayed.pop_front();
        self.relayed_first += 1;
    }

    /// A small message has come. False if the number is taken.
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

    /// The next event, in order.
    pub(crate) fn take_due(&mut self) -> Option<Due> {
        if let Some((message, bytes)) = self.incoming.take() {
            return Some(Due::Incoming { message, bytes });
        }
        if let Some((message, ())) = self.received.take() {
            return Some(Due::Received { message });
        }
        self.complete.take().map(|(message, ())| Due::Complete { message })
    }

    /// Root only: how many messages there are.
    pub(crate) fn known(&self) -> u64 {
        self.known
    }

    /// How many messages were reported as complete; the next has this number.
    pub(crate) fn completed(&self) -> u64 {
        self.complete.next
    }

    /// How many messages were reported as received.
    pub(crate) fn received_count(&self) -> u64 {
        self.received.next
    }

    /// Whether the message was reported as incoming.
    pub(crate) fn is_reported(&self, number: u64) -> bool {
        number < self.incoming.next
    }

    /// What kind of message has not come at all, if later ones wait for it. Each kind comes
    /// in order by itself, so it is the other kind than they are.
    pub(crate) fn gap(&self) -> Option<Gap> {
        let early = self.incoming.early.keys().next()?;
        let is_relayed = self.relayed.binary_search(early).is_ok();
        Some(if is_relayed { Gap::Small } else { Gap::Relayed })
    }
}
