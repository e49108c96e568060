//! What a stream's root keeps because some host has not written it out.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rdmc::Region;

use crate::stream_message::StreamMessage;

/// What is sent as one message while others are under way; less if none is.
const MESSAGE_BYTES: usize = 4 << 20;
/// How long what was read may wait for more of the same message.
const PENDING_MAX: Duration = Duration::from_millis(100);
/// From so many messages on that some host has not written out, only long ones are sent.
const SHORT_MESSAGES_MAX: usize = 64;

/// What was read and is not at all hosts.
#[derive(Default)]
pub(super) struct Kept {
    /// Messages, with their places in the stream.
    pub(super) messages: VecDeque<(u64, Region)>,
    /// Read, and not in a message.
    pending: Vec<u8>,
    /// Since when some of that waits.
    pending_since: Option<Instant>,
    /// How much was read.
    pub(super) end: u64,
    /// The digest of everything, once all is read.
    pub(super) digest: Option<blake3::Hash>,
    /// Of the digests of the pieces of all messages.
    pieces: blake3::Hasher,
}

impl Kept {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.pending_since.get_or_insert_with(Instant::now);
        self.pending.extend_from_slice(bytes);
        self.end += bytes.len() as u64;
    }

    /// The end of the last message.
    pub(super) fn messages_end(&self) -> u64 {
        self.end - self.pending.len() as u64
    }

    /// Whether what was read is to be sent now: enough for a message, or nothing is under way, or it has waited.
    pub(super) fn is_due(&self) -> bool {
        let has_ended = self.digest.is_some() || self.messages.is_empty();
        let is_due = self.pending.len() >= MESSAGE_BYTES || has_ended;
        !self.pending.is_empty() && (is_due || self.due_in().is_some_and(|left| left.is_zero()))
    }

    /// When it is if nothing happens; `None` for never.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let since = self.pending_since.filter(|_| self.messages.len() < SHORT_MESSAGES_MAX)?;
        Some(PENDING_MAX.saturating_sub(since.elapsed()))
    }

    /// Makes what was read a message.
    pub(super) fn take_message(&mut self) -> (StreamMessage, Region) {
        let at = self.messages_end();
        self.pending_since = None;
        let message = StreamMessage::of(at, &self.pending);
        for digest in &message.digests {
            self.pieces.update(digest);
        }
        let region = Region::from_vec(std::mem::take(&mut self.pending));
        self.messages.push_back((at, region.clone()));
        (message, region)
    }

    /// What receivers compare at the end: of the digests of the pieces of all messages.
    pub(super) fn digest_of_pieces(&self) -> blake3::Hash {
        self.pieces.finalize()
    }

    /// All hosts have written this much.
    pub(super) fn release(&mut self, prefix: u64) {
        while let Some((at, region)) = self.messages.front()
            && at + region.len() as u64 <= prefix
        {
            self.messages.pop_front();
        }
    }

    /// How much is kept.
    pub(super) fn bytes(&self) -> u64 {
        self.messages.front().map_or(self.pending.len() as u64, |(at, _)| self.end - at)
    }
}
