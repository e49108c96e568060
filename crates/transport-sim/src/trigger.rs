//! A member's offloaded operations, and which of them wait for which.

use std::collections::{BTreeMap, HashMap};

use transport::{EndpointId, FutureRead, Token};

use crate::names::SideId;

/// An offloaded operation, as the member that posted it names it.
pub(crate) type Name = (EndpointId, Token);

/// A send that waits for other operations.
pub(crate) struct Waiting {
    pub(crate) side: SideId,
    pub(crate) from: FutureRead,
    pub(crate) immediate: u32,
    pub(crate) token: Token,
    /// How many of the operations that it waits for are not done.
    pub(crate) missing: usize,
}

/// How far an offloaded operation is.
pub(crate) enum Trigger {
    /// Not done; these sends wait for it, in posting order.
    Armed(Vec<u64>),
    Fired,
    Cancelled,
}

/// A member's offloaded operations, until the poll after the one that reported them.
#[derive(Default)]
pub(crate) struct Triggers {
    pub(crate) known: HashMap<Name, Trigger>,
    /// Sends that wait, by their post number.
    pub(crate) waiting: BTreeMap<u64, Waiting>,
    /// Not armed any more, and not reported yet.
    settled: Vec<Name>,
    /// Reported by the last poll.
    reported: Vec<Name>,
}

impl Triggers {
    /// What the last poll reported has been seen; what has settled since is about to be reported.
    pub(crate) fn note_poll(&mut self) {
        for name in std::mem::replace(&mut self.reported, std::mem::take(&mut self.settled)) {
            // The name may be in use again.
            if !matches!(self.known.get(&name), Some(Trigger::Armed(_))) {
                self.known.remove(&name);
            }
        }
    }

    pub(crate) fn arm(&mut self, name: Name) {
        self.known.insert(name, Trigger::Armed(Vec::new()));
    }

    /// Returns the operations that have waited for it.
    pub(crate) fn settle(&mut self, name: Name, outcome: Trigger) -> Vec<u64> {
        let Some(trigger @ Trigger::Armed(_)) = self.known.get_mut(&name) else {
            return Vec::new();
        };
        self.settled.push(name);
        match std::mem::replace(trigger, outcome) {
            Trigger::Armed(waiting) => waiting,
            Trigger::Fired | Trigger::Cancelled => Vec::new(),
        }
    }

    /// Takes out the waiting sends of one side, which ends.
    pub(crate) fn disarm(&mut self, side: SideId) -> Vec<Token> {
        self.waiting
            .extract_if(.., |_, send| send.side == side)
            .map(|(_, send)| send.token)
            .collect()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
