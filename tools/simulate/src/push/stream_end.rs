//! What a receiver has of a stream.

use std::collections::{BTreeMap, VecDeque};

use files::machines::Announcements;
use rdmc::{Failure, Region};

/// What a receiver has of a stream.
#[derive(Default)]
pub(super) struct StreamEnd {
    pub(super) announced: Announcements,
    pub(super) groups: BTreeMap<u64, StreamGroup>,
    pub(super) written: Vec<u8>,
    /// Of the digests of all pieces that are written.
    pub(super) digest: blake3::Hasher,
    /// A consumer takes a message.
    pub(super) is_writing: bool,
}

/// A group of a stream at a receiver, until its messages are written out and its end is reported.
pub(super) struct StreamGroup {
    /// Where its next message begins.
    pub(super) end: u64,
    /// Messages that are arriving or whole, in order.
    pub(super) messages: VecDeque<Arriving>,
    /// How it has ended, once it has.
    pub(super) ended: Option<Result<(), Failure>>,
    /// It has brought other bytes than those that were announced: nothing more of it is taken.
    pub(super) is_altered: bool,
}

/// A message that arrives, and its place in the stream.
pub(super) struct Arriving {
    pub(super) message: u64,
    pub(super) at: u64,
    pub(super) region: Region,
    pub(super) is_whole: bool,
}

impl StreamEnd {
    /// Returns a message that arrives and is not written out.
    pub(super) fn arriving(&self) -> Option<&Region> {
        let mut messages = self.groups.values().flat_map(|group| &group.messages);
        messages.next().map(|arriving| &arriving.region)
    }

    /// Returns the digest of the digests of all pieces.
    pub(super) fn digest(&self) -> blake3::Hash {
        self.digest.finalize()
    }

    /// Returns the first group with a whole message, or with an end and none.
    pub(super) fn due_group(&self) -> Option<u64> {
        let is_due = |group: &StreamGroup| match group.messages.front() {
            Some(arriving) => arriving.is_whole || group.ended.is_some(),
            None => group.ended.is_some(),
        };
        self.groups.iter().find(|(_, group)| is_due(group)).map(|(&number, _)| number)
    }
}
