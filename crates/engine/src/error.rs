//! The errors of the engine's calls, and those at this member that fail a group.

use std::{io, ops::RangeInclusive};

use relay::RelayError;
use transport::{LeaseError, PostError};

use crate::{failure::Failure, jobs::What};

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
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
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

/// A setting is out of range.
#[derive(Debug, thiserror::Error)]
#[error("{setting} is {value}; use {} to {}", range.start(), range.end())]
pub struct OutOfRange {
    /// What was set.
    pub setting: &'static str,
    /// The value that was given.
    pub value: u64,
    /// The values that are allowed, with this transport.
    pub range: RangeInclusive<u64>,
}

/// Checks a value of a setting.
///
/// Errors: it is not in this range.
pub fn check_range<T: Into<u64> + Copy>(
    setting: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), OutOfRange> {
    let (value, range) = (value.into(), (*range.start()).into()..=(*range.end()).into());
    if range.contains(&value) { Ok(()) } else { Err(OutOfRange { setting, value, range }) }
}

/// Why a group cannot go on at this member.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// An event was not valid.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// Memory that the application provided cannot be leased.
    #[error(transparent)]
    Memory(#[from] LeaseError),
    /// A job could not be done.
    #[error("{error}: {what}")]
    Job { error: io::Error, what: What },
    /// This member's copy of a message is not the root's.
    #[error("message {message} of {bytes} bytes has a different digest at the root")]
    Differs { message: u64, bytes: u64 },
    /// The transport has no room for a control word to this neighbour.
    #[error("{error}")]
    ControlRefused { rank: u32, error: PostError },
}
