//! A relay's open operations and what it waits for; for error messages and traces.

use schedule::Transfer;

use super::{Relay, Send};
use crate::{ReceiveId, SendId};

/// What a member waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// A block that `source` has not sent.
    Block {
        /// The neighbour that has to send.
        source: u32,
        /// Message number.
        message: u64,
        /// The transfer that brings it; `None` while the message's length is not known.
        transfer: Option<Transfer>,
    },
    /// A credit that `target` has not granted.
    Credit {
        /// The neighbour that has to grant.
        target: u32,
        /// Message number.
        message: u64,
        /// The transfer that it is for.
        transfer: Transfer,
    },
    /// Memory that the application has not given.
    Memory {
        /// Message number.
        message: u64,
    },
    /// A block whose send is posted and not done.
    Send {
        /// The neighbour that receives it.
        target: u32,
        /// Message number.
        message: u64,
        /// The transfer.
        transfer: Transfer,
    },
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
    /// Returns the step of the schedule, if it is known.
    pub fn step(&self) -> Option<u64> {
        match self {
            Self::Block { transfer, .. } => transfer.map(|transfer| transfer.step),
            Self::Credit { transfer, .. } | Self::Send { transfer, .. } => Some(transfer.step),
            Self::Memory { .. } => None,
        }
    }
}

impl Relay {
    /// Returns what this member waits for now, nearest first.
    pub fn waits(&self) -> impl Iterator<Item = Wait> + '_ {
        let memory = self.messages.iter().zip(self.completed..).filter_map(|(message, number)| {
            (!message.has_memory()).then_some(Wait::Memory { message: number })
        });
        let blocks =
            self.receives.values().filter(|receive| receive.arrived.is_none()).map(|receive| {
                let (source, message) = (receive.source, receive.message);
                Wait::Block { source, message, transfer: receive.transfer }
            });
        let credits = self
            .sends_waiting
            .iter()
            .filter(|send| self.holds(send) && self.credits(send.transfer.target) == 0)
            .map(|send| self.wait_for_credit(send));
        let sends = self.sends.values().map(|&Send { message, transfer }| Wait::Send {
            target: transfer.target,
            message,
            transfer,
        });
        memory.chain(credits).chain(blocks).chain(sends)
    }

    /// Returns why this member sends nothing: what the first send of the schedule that is not done
    /// waits for. `None` while something is being sent, and while there is nothing to send.
    pub fn sends_wait_for(&self) -> Option<Wait> {
        let send = self.sends_waiting.front().filter(|_| self.sends.is_empty())?;
        if self.holds(send) {
            return Some(self.wait_for_credit(send));
        }
        let message = self.messages.get((send.message - self.completed) as usize)?;
        let (rank, block, blocks) =
            (self.settings.rank, send.transfer.block, message.blocks.count());
        let schedule = &self.settings.schedule;
        let step = schedule.received_at(rank, block, blocks)?;
        let transfer = schedule.next_receive(rank, step, blocks)?;
        let has_come = || {
            self.receives
                .values()
                .any(|receive| receive.arrived.is_some() && receive.transfer == Some(transfer))
        };
        if !message.has_memory() && has_come() {
            return Some(Wait::Memory { message: send.message });
        }
        let (source, message) = (transfer.source, send.message);
        Some(Wait::Block { source, message, transfer: Some(transfer) })
    }

    /// Returns what this member waits for first; `None` while it has nothing to relay.
    pub fn obstacle(&self) -> Option<Obstacle> {
        if self.known() == self.completed() {
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

    /// Returns the message of a receive that was not used, and its transfer once it is known.
    pub fn receive(&self, id: ReceiveId) -> Option<(u64, Option<Transfer>)> {
        self.receives.get(&id).map(|receive| (receive.message, receive.transfer))
    }

    /// Returns the message and the transfer of a send that is not done.
    pub fn open_send(&self, id: SendId) -> Option<(u64, Transfer)> {
        self.sends.get(&id).map(|send| (send.message, send.transfer))
    }

    fn wait_for_credit(&self, send: &Send) -> Wait {
        let Send { message, transfer } = *send;
        Wait::Credit { target: transfer.target, message, transfer }
    }
}
