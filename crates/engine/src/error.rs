//! What calls of the engine can answer.

use relay::RelayError;

use crate::failure::Failure;

/// Why a call of the engine was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The group has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The call does not fit the group's rules or state; nothing has changed.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// A group with this number exists.
    #[error("group number {0} is in use in this context; choose another or close that group")]
    NumberInUse(u64),
    /// No such group, or it has ended.
    #[error("there is no group {0} in this context")]
    NoSuchGroup(u64),
    /// The group is closing or closed.
    #[error("group {0} is closed")]
    Closed(u64),
    /// The memory is smaller than the message; another region may be given.
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
    /// The memory is read-only; another region may be given.
    #[error("message {message} of group {group} cannot be received into a read-only region")]
    RegionReadOnly {
        /// The group's number.
        group: u64,
        /// Message number.
        message: u64,
    },
    /// A setting is out of range.
    #[error("{name} is {value}; use {allowed}")]
    Setting {
        /// Of [`crate::GroupSettings`].
        name: &'static str,
        /// As it was given.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// The transport refuses a link, or memory: which, and why.
    #[error("{0}")]
    Transport(String),
}
