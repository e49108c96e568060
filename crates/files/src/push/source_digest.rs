//! The source's digest, and the second read that checks it.

/// The digest of the source. When a copy differs, the source is read once more, for all hosts: it may have
/// changed without a change of its attributes.
#[derive(Default)]
pub(super) struct SourceDigest {
    pub(super) digest: Option<blake3::Hash>,
    /// A second read was requested.
    is_again: bool,
    /// The second read gave the same digest.
    is_the_same: bool,
}

/// The response to a copy that differs.
pub(super) enum Mismatch {
    /// Read the source again.
    ReadAgain,
    /// It is being read again.
    Wait,
    /// The second read gave the same digest: the copy is wrong.
    CopyIsWrong,
}

impl SourceDigest {
    /// The source was read. False if the digest differs from the first one.
    pub(super) fn on_read(&mut self, digest: blake3::Hash) -> bool {
        let is_the_same = *self.digest.get_or_insert(digest) == digest;
        self.is_the_same |= is_the_same && self.is_again;
        is_the_same
    }

    /// A copy differs.
    pub(super) fn on_mismatch(&mut self) -> Mismatch {
        match std::mem::replace(&mut self.is_again, true) {
            false => Mismatch::ReadAgain,
            true if self.is_the_same => Mismatch::CopyIsWrong,
            true => Mismatch::Wait,
        }
    }
}
