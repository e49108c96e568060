//! Proof that a copy is equal to its source.

use super::error::TargetError;

/// Proof that a copy's digest equals the source's; made by [`Verified::compare`] only.
#[derive(Debug)]
pub struct Verified(());

impl Verified {
    /// Compares digests. Errors: [`TargetError::Mismatch`].
    pub fn compare(received: blake3::Hash, sent: blake3::Hash) -> Result<Self, TargetError> {
        if received == sent { Ok(Self(())) } else { Err(TargetError::Mismatch { received, sent }) }
    }
}
