//! A member's offloaded operations, and their dependencies.

use std::collections::{BTreeMap, HashMap};

use transport::{EndpointId, FutureRead, Token};

use crate::names::SideId;

/// Identifies an offloaded operation for the member that posted it.
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

/// The state of an offloaded operation.
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
    /// Done or cancelled, and not reported yet.
    settled: Vec<Name>,
    /// Reported by the last poll.
    reported: Vec<Name>,
}

impl Triggers {
    /// Removes the operations that the last poll has reported; those settled since are reported
    /// next.
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

    /// Marks an operation as done; returns the operations that were waiting for it.
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

    /// Removes the waiting sends of one side, which ends.
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
