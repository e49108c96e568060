//! Offload: all operations of a message are posted ahead, and the network runs them.

use std::collections::BTreeMap;

use super::Relay;
use crate::{Action, Blocks, Part, ReceiveId, RelayError, SendId, blocks::Tag};

impl Relay {
    /// Cuts a message.
    ///
    /// Errors: more blocks than can be numbered, or than fit into an immediate.
    pub(super) fn cut(&self, bytes: u64) -> Result<Blocks, RelayError> {
        let blocks = Blocks::new(bytes, self.settings.block_bytes)?;
        if self.settings.offload.is_some() {
            blocks.check_offload(self.settings.messages_in_flight)?;
        }
        Ok(blocks)
    }

    /// Returns what immediates of a message's blocks have besides the block's number, where `earlier`
    /// messages were relayed before. With offload blocks of several messages may be in flight in any order,
    /// and are distinguished by it: the receives that a member has open belong to at most
    /// [`crate::Settings::messages_in_flight`] consecutive messages. Their numbers would not do: those of
    /// messages that are not relayed are between them.
    pub(super) fn tag(&self, earlier: u64) -> Tag {
        let in_flight = self.settings.messages_in_flight;
        self.settings.offload.map_or(Tag::default(), |_| Tag::new(earlier, in_flight))
    }

    /// Posts all operations that have become possible, with at most `limit` open in each direction.
    pub(super) fn post_offloaded(&mut self, limit: u32) {
        self.post_offloaded_receives(limit);
        while self.sends.len() < limit as usize && self.post_next_offloaded_send() {}
    }

    /// Posts receives in the order of messages and steps, as far as memory and the limit allow;
    /// then grants their sources all credits at once.
    fn post_offloaded_receives(&mut self, limit: u32) {
        let mut granted = BTreeMap::<u32, u32>::new();
        while self.receives_posted < limit {
            let receiving = self.messages.iter().position(|message| message.receives_untaken > 0);
            let (schedule, rank) = (&self.settings.schedule, self.settings.rank);
            let message = receiving.map(|index| &mut self.messages[index]);
            let Some(message) = message.filter(|message| message.has_memory()) else { break };
            let part = message.take_receive(schedule, rank);
            let Some(Part { message: number, transfer }) = part else { break };
            let range = message.blocks.range(transfer.block);
            let immediate = message.immediate(transfer.block);
            let (source, id) = (transfer.source, ReceiveId(self.new_id()));
            self.actions.push_back(Action::PostOffloadedReceive {
                source,
                id,
                message: number,
                immediate,
                offset: range.offset,
                bytes: range.bytes,
            });
            self.bringing.insert((number, transfer.block), id);
            self.insert_receive(id, source, part, false);
            *granted.entry(source).or_default() += 1;
        }
        let grants = granted.into_iter().map(|(source, count)| Action::Grant { source, count });
        self.actions.extend(grants);
    }

    /// Posts the next send, in the order of messages and steps, if it has a credit, and if its
    /// block has arrived or its receive is posted. Waits for a target that has not granted credits
    /// yet, since a send that overtakes would be ahead by a whole message.
    fn post_next_offloaded_send(&mut self) -> bool {
        if self.sends_waiting.is_empty() {
            self.queue_next_send();
        }
        let Some(&send) = self.sends_waiting.front() else { return false };
        let bringing = self.bringing.get(&(send.message, send.transfer.block)).copied();
        let is_known = bringing.is_some() || self.holds(&send);
        match self.neighbour(send.transfer.target) {
            Some(neighbour) if is_known && neighbour.credits > 0 => neighbour.credits -= 1,
            _ => return false,
        }
        self.sends_waiting.pop_front();
        self.post_offloaded_send(send, bringing);
        true
    }

    fn queue_next_send(&mut self) {
        let (schedule, rank) = (&self.settings.schedule, self.settings.rank);
        let mut messages = self.messages.iter_mut();
        let next = messages.find_map(|message| message.take_send(schedule, rank));
        self.sends_waiting.extend(next);
    }

    fn post_offloaded_send(&mut self, send: Part, bringing: Option<ReceiveId>) {
        let Part { message, transfer } = send;
        let id = SendId(self.new_id());
        let after_send = self.predecessor();
        let source = bringing.and_then(|id| self.receives.get(&id)).map(|receive| receive.source);
        let Some(sent) = self.message(message) else { return };
        let (range, immediate) =
            (sent.blocks.range(transfer.block), sent.immediate(transfer.block));
        self.actions.push_back(Action::PostOffloadedSend {
            target: transfer.target,
            id,
            message,
            immediate,
            offset: range.offset,
            bytes: range.bytes,
            after_receive: source.zip(bringing),
            after_send,
        });
        self.sends_recent.push_back((transfer.target, id));
        self.sends.insert(id, send);
    }

    /// Returns the send that has to be done before the next may start, if it is not.
    fn predecessor(&mut self) -> Option<(u32, SendId)> {
        if self.sends_recent.len() < self.settings.window.sends as usize {
            return None;
        }
        self.sends_recent.pop_front().filter(|(_, id)| self.sends.contains_key(id))
    }
}
