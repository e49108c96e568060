//! Proof that a copy is equal to its source.

use super::error::TargetError;

/// Proof that a copy's digest equals the source's; made by [`Verified::compare`] only.
#[derive(Debug)]
pub struct Verified(blake3::Hash);

impl Verified {
    /// Compares digests. Errors: [`TargetError::Mismatch`].
    pub fn compare(received: blake3::Hash, sent: blake3::Hash) -> Result<Self, TargetError> {
        if received == sent {
            Ok(Self(sent))
        } else {
            Err(TargetError::Mismatch { received, sent })
        }
    }

    /// The digest that both have.
    pub fn digest(&self) -> &blake3::Hash {
        &self.0
    }
}
