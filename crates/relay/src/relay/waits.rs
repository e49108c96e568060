//! A relay's open operations and what it waits for; for error messages and traces.

use super::Relay;
use crate::{Part, ReceiveId, SendId};

/// What a member waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// A block that `source` has not sent.
    Block {
        /// The neighbour that has to send.
        source: u32,
        /// What brings it; `None` while its message is not known.
        part: Option<Part>,
    },
    /// A credit for this, which its target has not granted.
    Credit(Part),
    /// Memory that the application has not given.
    Memory {
        /// Message number.
        message: u64,
    },
    /// A block whose send is posted and not done.
    Send(Part),
}

/// Why a member makes no progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// Sending to this neighbour: a block is in transit, or the neighbour has posted no receive for
    /// it.
    SendBlocked(u32),
    /// Receiving from this neighbour, which has not sent a block.
    ReceiveBlocked(u32),
    /// No neighbour: this member itself, or its application.
    Local,
}

impl Wait {
    /// Returns what is waited for, if it is a block or a credit that is known.
    pub fn part(&self) -> Option<Part> {
        match *self {
            Self::Block { part, .. } => part,
            Self::Credit(part) | Self::Send(part) => Some(part),
            Self::Memory { .. } => None,
        }
    }
}

impl Relay {
    /// Returns what this member waits for now, nearest first.
    pub fn waits(&self) -> impl Iterator<Item = Wait> + '_ {
        let memory = self.messages.iter().filter(|message| !message.has_memory());
        let memory = memory.map(|message| Wait::Memory { message: message.number });
        let blocks = self.receives.values().filter(|receive| receive.arrived.is_none());
        let blocks =
            blocks.map(|receive| Wait::Block { source: receive.source, part: receive.part });
        let credits = self
            .sends_waiting
            .iter()
            .filter(|send| self.holds(send) && self.credits(send.transfer.target) == 0)
            .map(|&send| Wait::Credit(send));
        let sends = self.sends.values().map(|&send| Wait::Send(send));
        memory.chain(credits).chain(blocks).chain(sends)
    }

    /// Returns why this member sends nothing: what the first send of the schedule that is not done
    /// waits for. `None` while something is being sent, and while there is nothing to send.
    pub fn sends_wait_for(&self) -> Option<Wait> {
        let &send = self.sends_waiting.front().filter(|_| self.sends.is_empty())?;
        if self.holds(&send) {
            return Some(Wait::Credit(send));
        }
        let message = self.message(send.message)?;
        let (rank, block, blocks) =
            (self.settings.rank, send.transfer.block, message.blocks.count());
        let schedule = &self.settings.schedule;
        let step = schedule.received_at(rank, block, blocks)?;
        let transfer = schedule.next_receive(rank, step, blocks)?;
        let part = Some(Part { transfer, ..send });
        let mut receives = self.receives.values();
        let mut has_come =
            || receives.any(|receive| receive.arrived.is_some() && receive.part == part);
        if !message.has_memory() && has_come() {
            return Some(Wait::Memory { message: send.message });
        }
        Some(Wait::Block { source: transfer.source, part })
    }

    /// Returns what this member waits for first; `None` while it has nothing to relay.
    pub fn obstacle(&self) -> Option<Obstacle> {
        if !self.has_messages() {
            return None;
        }
        if let Some(send) = self.sends.values().next() {
            return Some(match self.awaited_source(send) {
                Some(source) => Obstacle::ReceiveBlocked(source),
                None => Obstacle::SendBlocked(send.transfer.target),
            });
        }
        if let Some(send) = self.sends_waiting.front().filter(|send| self.holds(send)) {
            return Some(Obstacle::SendBlocked(send.transfer.target));
        }
        let missing = self.receives.values().find(|receive| receive.arrived.is_none());
        Some(missing.map_or(Obstacle::Local, |receive| Obstacle::ReceiveBlocked(receive.source)))
    }

    /// Returns whether the block of a receive is not in its place.
    pub fn is_open(&self, id: ReceiveId) -> bool {
        self.receives.contains_key(&id)
    }

    /// Returns what a receive brings whose block is not in its place, once it is known.
    pub fn receive(&self, id: ReceiveId) -> Option<Part> {
        self.receives.get(&id)?.part
    }

    /// Returns what is sent by a send that is not done.
    pub fn open_send(&self, id: SendId) -> Option<Part> {
        self.sends.get(&id).copied()
    }
}
