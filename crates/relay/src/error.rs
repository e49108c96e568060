//! Errors of a relay.

/// Why an event was refused.
///
/// After [`RelayError::Peer`] the group cannot continue; the others are errors of the caller and
/// change nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// A setting is out of range.
    #[error("{0}")]
    Setting(&'static str),
    /// Only the root sends.
    #[error("only the root (rank {root}) may send, or wait for delivery; this is rank {rank}")]
    NotRoot {
        /// The group's root.
        root: u32,
        /// This member.
        rank: u32,
    },
    /// The message would have more blocks than can be numbered.
    #[error(
        "{bytes} bytes in blocks of {block_bytes} make more than {} blocks; use larger blocks",
        u32::MAX
    )]
    TooManyBlocks {
        /// Length of the message.
        bytes: u64,
        /// Length of a block.
        block_bytes: u64,
    },
    /// The message would have more blocks than offload can distinguish.
    #[error(
        "{blocks} blocks are more than the {blocks_max} that offload can tell apart with this many \
         messages in flight; use larger blocks or fewer messages in flight"
    )]
    TooManyOffloaded {
        /// How many blocks the message would have.
        blocks: u32,
        /// The limit.
        blocks_max: u64,
    },
    /// A message or operation with this number is not known, or not in the state for this event.
    #[error("{what} {number} is not known or not waiting for this")]
    Unknown {
        /// The kind of what was named.
        what: &'static str,
        /// Its number.
        number: u64,
    },
    /// A peer has violated the protocol.
    #[error("member {member} {what}")]
    Peer {
        /// Its rank.
        member: u32,
        /// What it did.
        what: String,
    },
}

impl RelayError {
    /// Returns the error of a member that has violated the protocol.
    pub fn peer(member: u32, what: impl Into<String>) -> Self {
        Self::Peer { member, what: what.into() }
    }
}
