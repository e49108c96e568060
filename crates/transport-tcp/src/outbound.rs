//! What the sending half of a stream holds for one channel.

use std::collections::VecDeque;

use transport::{Completion, EndpointId};

use crate::{offered::Offered, posted_send::PostedSend, wire::Header};

/// The sends of one channel on one stream.
pub(crate) struct Outbound {
    /// First, so that it is dropped before any memory is given back.
    pub(crate) offered: Offered,
    pub(crate) endpoint: EndpointId,
    pub(crate) sends: VecDeque<PostedSend>,
    /// Whether it waits for a turn on a shared connection.
    pub(crate) has_turn: bool,
    /// The endpoint is closing: the first send ends with the segment that was begun.
    pub(crate) cut: bool,
    /// How many bytes of control frames had been queued on the stream with the bye.
    pub(crate) bye_at: u64,
    /// How many bytes the stream had accepted when it was seen that the bye is among them.
    pub(crate) bye_end: Option<u64>,
}

impl Outbound {
    pub(crate) fn new(endpoint: EndpointId) -> Self {
        Self {
            offered: Offered::default(),
            endpoint,
            sends: VecDeque::new(),
            has_turn: false,
            cut: false,
            bye_at: 0,
            bye_end: None,
        }
    }

    /// Returns whether a send of which no segment was begun goes as a reference.
    pub(crate) fn is_referred(&self, send: &PostedSend) -> bool {
        send.sent_bytes == 0 && self.offered.takes(send)
    }

    /// Returns whether the next segment, or the reference in place of it, can be sent now.
    pub(crate) fn can_send(&self) -> bool {
        self.sends.front().is_some_and(|send| match self.is_referred(send) {
            true => send.reference().is_some(),
            false => send.has_segment(send.sent_bytes),
        })
    }

    /// Returns whether a segment can be sent now.
    pub(crate) fn has_segment(&self) -> bool {
        let first = self.sends.front();
        first.is_some_and(|send| !self.is_referred(send) && send.has_segment(send.sent_bytes))
    }

    /// Returns where the segment begins that follows these bytes of a send, if it can be sent now: the index of its send, and its
    /// first byte there.
    pub(crate) fn segment_behind(
        &self,
        index: usize,
        from: usize,
        is_begun: bool,
    ) -> Option<(usize, usize)> {
        let send = self.sends.get(index)?;
        // A block of 0 bytes also has one segment.
        if from == send.bytes() && (from > 0 || is_begun) {
            return self.segment_behind(index + 1, 0, false);
        }
        let is_segment = !self.cut && (is_begun || !self.is_referred(send));
        (is_segment && send.has_segment(from)).then_some((index, from))
    }

    /// Takes the first block if the peer is to be referred to it, and it is there.
    pub(crate) fn take_reference(&mut self) -> Option<(Header, u64)> {
        let send = self.sends.front().filter(|send| self.is_referred(send))?;
        let (header, address) = send.reference()?;
        self.offered.push(self.sends.pop_front()?);
        Some((header, address))
    }

    /// Completes the first block that the peer was referred to. Errors: it has copied another one.
    pub(crate) fn complete(
        &mut self,
        block: u32,
        completed: &mut Vec<Completion>,
    ) -> Result<(), String> {
        self.offered.complete(block, self.endpoint, completed)
    }

    /// Cancels all sends but the first `kept`.
    pub(crate) fn cancel(&mut self, kept: usize, completed: &mut Vec<Completion>) {
        let endpoint = self.endpoint;
        self.offered.withdraw(endpoint, completed);
        let cancelled = self.sends.drain(kept..);
        completed.extend(
            cancelled.map(|send| Completion::Cancelled { endpoint, token: send.into_token() }),
        );
    }
}
