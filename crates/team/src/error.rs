//! Errors of a team's calls.

use collective::{Kind, model::WriteCosts};
use engine::OutOfRange;
use transport::{LeaseError, PostError};

use crate::Failure;

/// Why a call of a team was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The team has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The team is closing or closed.
    #[error("team {0} is closed")]
    Closed(u64),
    /// A setting is out of range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// Costs that are negative or no numbers.
    #[error("the costs {0} are not all finite and at least 0")]
    Costs(WriteCosts),
    /// An operation was called before this member had received how ways are chosen.
    #[error("rank 0 has not yet sent how ways are chosen")]
    NotTold,
    /// The operation's memory has another length than the call.
    #[error("the memory has {bytes} bytes; {needed} are needed")]
    WrongLength {
        /// Length of the memory.
        bytes: u64,
        /// The length that the call needs.
        needed: u64,
    },
    /// A long operation whose memory is lent.
    #[error("an operation of {0} bytes is long: its memory has to be owned, or a region")]
    LentMemory(u64),
    /// The operation's memory cannot be used.
    #[error("the memory cannot be used: {0}")]
    Memory(#[from] LeaseError),
    /// A reduction without an operator or a function.
    #[error("{0} needs an operator or a function")]
    NoReduction(Kind),
    /// An operator or a function for an operation that folds nothing.
    #[error("{0} folds nothing: call it without an operator or a function")]
    Reduction(Kind),
    /// The contribution is not a whole number of elements.
    #[error("{bytes} bytes are not a whole number of elements of {element} bytes")]
    CutElement {
        /// Length of the contribution.
        bytes: u64,
        /// Length of an element.
        element: u64,
    },
    /// The network has no one-sided writes.
    #[error("this network has no one-sided writes, which teams need")]
    NoWrites,
    /// There is no link to a member.
    #[error("there is no link to member {0}")]
    NoLink(u32),
    /// The transport cannot use the link to a member.
    #[error("link to member {member}: {error}")]
    Link {
        /// The member.
        member: u32,
        /// The transport's reason.
        error: PostError,
    },
}
