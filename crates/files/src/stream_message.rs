//! What a root announces about a message of a stream before its bytes may be passed on.

use serde::{Deserialize, Serialize};

/// The length of all pieces of a message but the last.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// The longest message of a stream. A root sends at most some 8 MiB at once.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// A message of a stream as the root has read it. Members that relay the message authenticate themselves only, so its bytes
/// count once they match this, which comes from the root itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StreamMessage {
    /// Where it begins in the stream.
    pub at: u64,
    /// Its length, which is not 0.
    pub bytes: u64,
    /// The BLAKE3 digest of each piece of it.
    pub digests: Vec<[u8; 32]>,
}

impl StreamMessage {
    /// A message that begins at this place.
    pub fn of(at: u64, contents: &[u8]) -> Self {
        let digests = contents.chunks(PIECE_BYTES).map(|piece| blake3::hash(piece).into());
        Self { at, bytes: contents.len() as u64, digests: digests.collect() }
    }

    /// Where the next one begins.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.bytes)
    }

    /// Errors: it is no message, or a too long one.
    pub(crate) fn check(&self) -> Result<(), String> {
        let pieces = self.bytes.div_ceil(PIECE_BYTES as u64);
        let is_valid = (1..=MESSAGE_BYTES_MAX).contains(&self.bytes)
            && self.digests.len() as u64 == pieces
            && self.at.checked_add(self.bytes).is_some();
        let (bytes, digests) = (self.bytes, self.digests.len());
        is_valid.then_some(()).ok_or_else(|| format!("{digests} digests of {bytes} bytes"))
    }
}
