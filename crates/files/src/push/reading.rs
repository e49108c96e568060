//! What reading the source has shown, once or twice.

/// Digests of the source. It is read again when a copy differs, since its attributes may not tell that it has
/// changed; once for all hosts.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) digest: Option<blake3::Hash>,
    /// It was asked for a second time.
    is_again: bool,
    /// It was read a second time, and was the same.
    is_the_same: bool,
}

/// What to do about a copy that differs.
pub(super) enum Suspicion {
    /// Read the source again.
    ReadAgain,
    /// It is being read again.
    Wait,
    /// The source reads as it did before: the copy is wrong.
    CopyIsWrong,
}

impl Reading {
    /// The source was read. False if it is not the same as the first time.
    pub(super) fn read(&mut self, digest: blake3::Hash) -> bool {
        let is_the_same = *self.digest.get_or_insert(digest) == digest;
        self.is_the_same |= is_the_same && self.is_again;
        is_the_same
    }

    /// A copy differs.
    pub(super) fn suspect(&mut self) -> Suspicion {
        match std::mem::replace(&mut self.is_again, true) {
            false => Suspicion::ReadAgain,
            true if self.is_the_same => Suspicion::CopyIsWrong,
            true => Suspicion::Wait,
        }
    }
}
