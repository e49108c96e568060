//! The same message with the network doing the work: all operations are posted ahead.

use std::collections::BTreeMap;

use schedule::Transfer;

use super::{Relay, Send, Wait};
use crate::{Action, Blocks, ReceiveId, RelayError, SendId, blocks::message_bits};

impl Relay {
    /// Cuts a message.
    ///
    /// Errors: more blocks than can be numbered, or than fit into an immediate.
    pub(super) fn cut(&self, bytes: u64) -> Result<Blocks, RelayError> {
        let blocks = Blocks::new(bytes, self.settings.block_bytes)?;
        if self.settings.offload {
            blocks.check_offload(self.settings.messages_in_flight)?;
        }
        Ok(blocks)
    }

    /// What a block is sent with. With offload, where blocks of several messages may be under way
    /// in any order, it also tells these messages apart: the receives that a member has open belong
    /// to at most [`crate::Settings::messages_in_flight`] messages with numbers in a row.
    pub(super) fn immediate(&self, message: u64, block: u32) -> u32 {
        if !self.settings.offload {
            return block;
        }
        let bits = message_bits(self.settings.messages_in_flight);
        let low = message as u32 & ((1_u32 << bits) - 1);
        // With one message in flight there are no bits to shift by, else less than 32.
        (block << bits) | low
    }

    /// Posts whatever has become possible.
    pub(super) fn post_offloaded(&mut self) {
        self.post_offloaded_receives();
        self.queue_offloaded_sends();
        self.post_offloaded_sends();
    }

    /// Posts receives in the order of messages and steps, as far as memory and the window go; then
    /// grants their sources all credits at once.
    fn post_offloaded_receives(&mut self) {
        let mut granted = BTreeMap::<u32, u32>::new();
        while self.receives_posted < self.settings.window.receives {
            let receiving = self.messages.iter().position(|message| message.receives_untaken > 0);
            let Some((index, transfer)) = receiving.and_then(|index| self.take_offloaded(index))
            else {
                break;
            };
            let message = self.completed + index as u64;
            let range = self.messages[index].blocks.range(transfer.block);
            let (source, id) = (transfer.source, ReceiveId(self.new_id()));
            self.actions.push_back(Action::PostOffloadedReceive {
                source,
                id,
                message,
                immediate: self.immediate(message, transfer.block),
                offset: range.offset,
                bytes: range.bytes,
            });
            self.bringing.insert((message, transfer.block), id);
            self.insert_receive(id, source, message, Some(transfer), false);
            *granted.entry(source).or_default() += 1;
        }
        let grants = granted.into_iter().map(|(source, count)| Action::Grant { source, count });
        self.actions.extend(grants);
    }

    /// The next receive of a message that has its memory.
    fn take_offloaded(&mut self, index: usize) -> Option<(usize, Transfer)> {
        let message = self.messages.get_mut(index).filter(|message| message.has_memory())?;
        let transfer = message.next_receive(&self.settings.schedule, self.settings.rank)?;
        message.take_receive(&transfer);
        Some((index, transfer))
    }

    /// Takes sends out of the schedule, in order of messages and steps, for as many as the window
    /// has room.
    fn queue_offloaded_sends(&mut self) {
        let mut open = self.sends.len() + self.sends_queued;
        for index in 0..self.messages.len() {
            let number = self.completed + index as u64;
            while open < self.settings.window.sends as usize {
                let (schedule, rank) = (&self.settings.schedule, self.settings.rank);
                let Some(transfer) = self.messages[index].take_send(schedule, rank) else { break };
                if let Some(neighbour) = self.neighbour(transfer.target) {
                    neighbour.waiting.push_back(Send { message: number, transfer });
                    self.sends_queued += 1;
                }
                open += 1;
            }
        }
    }

    /// Posts sends that have a credit and whose block is here or has its receive posted. Those to
    /// one target keep their order, by which its credits count.
    fn post_offloaded_sends(&mut self) {
        for index in 0..self.neighbours.len() {
            while let Some(&send) = self.neighbours[index]
                .waiting
                .front()
                .filter(|_| self.neighbours[index].credits > 0)
            {
                let key = (send.message, send.transfer.block);
                let bringing = self.bringing.get(&key).copied();
                if bringing.is_none() && !self.holds(&send) {
                    break;
                }
                let neighbour = &mut self.neighbours[index];
                neighbour.waiting.pop_front();
                neighbour.credits -= 1;
                self.sends_queued -= 1;
                self.post_offloaded_send(send, bringing);
            }
        }
    }

    fn post_offloaded_send(&mut self, send: Send, bringing: Option<ReceiveId>) {
        let Send { message, transfer } = send;
        let id = SendId(self.new_id());
        let source = bringing.and_then(|id| self.receives.get(&id)).map(|receive| receive.source);
        let index = (message - self.completed) as usize;
        let range = self.messages[index].blocks.range(transfer.block);
        self.actions.push_back(Action::PostOffloadedSend {
            target: transfer.target,
            id,
            message,
            immediate: self.immediate(message, transfer.block),
            offset: range.offset,
            bytes: range.bytes,
            after: source.zip(bringing),
        });
        self.sends.insert(id, send);
    }

    /// Credits without which a block that is here cannot be sent on.
    pub(super) fn offloaded_credits_awaited(&self) -> impl Iterator<Item = Wait> + '_ {
        let stuck = self.neighbours.iter().filter(|neighbour| neighbour.credits == 0);
        stuck.filter_map(|neighbour| neighbour.waiting.front()).filter(|send| self.holds(send)).map(
            |send| Wait::Credit {
                target: send.transfer.target,
                message: send.message,
                step: send.transfer.step,
            },
        )
    }
}
