//! What a stream's root keeps because some host has not written it out.

use std::collections::VecDeque;

use rdmc::Region;

/// What was read and is not at all hosts.
#[derive(Default)]
pub(super) struct Kept {
    /// Messages, with their places in the stream.
    pub(super) messages: VecDeque<(u64, Region)>,
    /// Read, and not in a message.
    pub(super) pending: Vec<u8>,
    /// How much was read.
    pub(super) end: u64,
    pub(super) has_ended: bool,
    pub(super) digest: blake3::Hasher,
}

impl Kept {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.pending.extend_from_slice(bytes);
        self.end += bytes.len() as u64;
    }

    /// The end of the last message.
    pub(super) fn messages_end(&self) -> u64 {
        self.end - self.pending.len() as u64
    }

    pub(super) fn take_message(&mut self) -> Region {
        let at = self.messages_end();
        let region = Region::from_vec(std::mem::take(&mut self.pending));
        self.messages.push_back((at, region.clone()));
        region
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
