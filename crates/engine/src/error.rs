//! The errors of the engine's calls.

use std::ops::RangeInclusive;

use relay::RelayError;
use transport::PostError;

use crate::failure::Failure;

/// Why a call of the engine was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The group has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The call is not valid in the group's state; nothing has changed.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// A group with this number exists.
    #[error("group number {0} is in use in this context; choose another or close that group")]
    NumberInUse(u64),
    /// The group does not exist, or has ended.
    #[error("there is no group {0} in this context")]
    NoSuchGroup(u64),
    /// The group is closing or closed.
    #[error("group {0} is closed")]
    Closed(u64),
    /// The region is shorter than the message; another region may be provided.
    #[error(
        "message {message} of group {group} has {bytes} bytes, but the region only {region_bytes}"
    )]
    RegionTooSmall {
        /// The group's number.
        group: u64,
        /// Message number.
        message: u64,
        /// Length of the message.
        bytes: u64,
        /// Length of the region.
        region_bytes: u64,
    },
    /// The region is read-only; another region may be provided.
    #[error("message {message} of group {group} cannot be received into a read-only region")]
    RegionReadOnly {
        /// The group's number.
        group: u64,
        /// Message number.
        message: u64,
    },
    /// A setting is out of range.
    #[error("{setting} is {value}; use {} to {}", range.start(), range.end())]
    OutOfRange {
        /// The field of [`crate::GroupSettings`].
        setting: &'static str,
        /// The value that was given.
        value: u64,
        /// The values that are allowed with this transport.
        range: RangeInclusive<u64>,
    },
    /// There is no link to a neighbour of this member.
    #[error("there is no link to member {0}")]
    NoLink(u32),
    /// The transport cannot use the link to a neighbour.
    #[error("link to member {member}: {error}")]
    Link {
        /// The neighbour.
        member: u32,
        /// The transport's reason.
        error: PostError,
    },
}
