//! The source's digests, and the second read that checks them.

use crate::{
    digests::{Digests, KnownDigests},
    ranges::Ranges,
};

/// The digests of the source. When a copy differs, the source is read once more, for all hosts: it may have
/// changed without a change of its attributes.
#[derive(Default)]
pub(super) struct SourceDigest {
    known: KnownDigests,
    /// What was or is being read of a tree.
    requested: Ranges,
    /// A second read was requested.
    is_again: bool,
    /// The second read gave the same digests.
    is_the_same: bool,
}

/// The response to a copy that differs.
pub(super) enum Mismatch {
    /// Read the source again: these ranges of it.
    ReadAgain(Ranges),
    /// It is being read again.
    Wait,
    /// The second read gave the same digest: the copy is wrong.
    CopyIsWrong,
}

impl SourceDigest {
    /// Of a source that hosts read: what one of them has read is not read again, as its version is pinned.
    pub(super) fn of_readers() -> Self {
        Self { is_again: true, is_the_same: true, ..Self::default() }
    }

    /// What has to be read of a tree of this length, so that a host that has these ranges can verify its copy; empty if
    /// it was requested before.
    pub(super) fn request(&mut self, has: &Ranges, bytes: u64) -> Ranges {
        let lacking = has.missing(bytes);
        let new: Ranges = lacking.iter().filter(|&range| !self.requested.covers(range)).collect();
        self.requested.extend(new.iter());
        new
    }

    /// The source was read. False if the digests differ from the first ones.
    pub(super) fn on_read(&mut self, digests: Digests) -> bool {
        let is_the_same = self.known.add(digests);
        self.is_the_same |= is_the_same && self.is_again;
        is_the_same
    }

    /// See [`KnownDigests::of_copy`].
    pub(super) fn of_copy(&self, is_tree: bool, has: &Ranges, bytes: u64) -> Option<blake3::Hash> {
        self.known.of_copy(is_tree, has, bytes)
    }

    /// A copy differs.
    pub(super) fn on_mismatch(&mut self) -> Mismatch {
        match std::mem::replace(&mut self.is_again, true) {
            false => Mismatch::ReadAgain(self.requested.clone()),
            true if self.is_the_same => Mismatch::CopyIsWrong,
            true => Mismatch::Wait,
        }
    }
}
