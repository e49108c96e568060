//! One end of a link, as plain data.

use std::collections::{BTreeMap, VecDeque};

use files::machines::Owed;
use rdmc::Failure;

/// One end of a link, from when its group was created.
#[derive(Default)]
pub(super) struct Link {
    /// The session has begun to send or to take what comes; before, nothing is reported.
    pub(super) has_begun: bool,
    /// What the other end still has to get.
    pub(super) owed: Option<Owed>,
    pub(super) incoming: Incoming,
    /// How it has ended, which is reported once all chunks are taken.
    pub(super) ended: Option<Result<(), Failure>>,
}

/// What comes in a link.
#[derive(Default)]
pub(super) struct Incoming {
    /// The number of the chunk that comes next.
    number: Option<u32>,
    /// Chunks that came and were not compared with their digests.
    waiting: VecDeque<(u32, Vec<u8>)>,
    /// Another chunk than the root's has come: no more is taken.
    pub(super) is_altered: bool,
}

impl Incoming {
    /// The next message.
    pub(super) fn take(&mut self, message: Vec<u8>) {
        match self.number.take() {
            None => self.number = message.try_into().ok().map(u32::from_le_bytes),
            Some(number) => self.waiting.push_back((number, message)),
        }
    }

    /// The next chunk whose digest is known.
    pub(super) fn next(&mut self, digests: &BTreeMap<u32, [u8; 32]>) -> Option<(u32, Vec<u8>)> {
        let is_known = |(chunk, _): &(u32, Vec<u8>)| digests.contains_key(chunk);
        if self.is_altered || !self.waiting.front().is_some_and(is_known) {
            return None;
        }
        self.waiting.pop_front()
    }

    /// A chunk whose place is in use now comes again.
    pub(super) fn put_back(&mut self, chunk: u32, bytes: Vec<u8>) {
        self.waiting.push_front((chunk, bytes));
    }

    /// Whether nothing more is taken. A group that has failed does not wait for digests.
    pub(super) fn is_done(&self, digests: &BTreeMap<u32, [u8; 32]>, is_failed: bool) -> bool {
        let waits = self.waiting.front().is_some_and(|(chunk, _)| !digests.contains_key(chunk));
        self.is_altered || self.waiting.is_empty() || waits && is_failed
    }
}
