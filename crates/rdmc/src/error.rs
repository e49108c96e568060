//! What calls into the library can answer.

use std::{io, net::SocketAddr};

use engine::Failure;
use relay::RelayError;
use schedule::ScheduleError;
use transport::{Region, RegionError};

/// What calls into the library can answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The group has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The call does not fit the group's rules or state; nothing has changed.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// No schedule can be made of the group's settings.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// This host cannot use the network that was asked for.
    #[error("the fabric {fabric} cannot be used here: {cause}")]
    Fabric {
        /// Its name.
        fabric: String,
        /// Why, and what helps.
        cause: String,
    },
    /// A group with this number exists in this context.
    #[error("group number {0} is in use in this context; choose another or close that group")]
    NumberInUse(u64),
    /// No such group, or it has ended.
    #[error("there is no group {0} in this context")]
    NoSuchGroup(u64),
    /// The group is closing or closed.
    #[error("group {0} is closed")]
    Closed(u64),
    /// The context is closed.
    #[error("the context is closed")]
    ContextClosed,
    /// What moves the context's transfers on has panicked, with what it said. All its groups have
    /// failed; others live.
    #[error("the context has failed, start another: {0}")]
    ContextFailed(String),
    /// The memory is smaller than the message; another region may be given.
    #[error(
        "message {message} of group {group} has {bytes} bytes, but the region only {}",
        region.len()
    )]
    RegionTooSmall {
        /// The group's number.
        group: u64,
        /// Message number.
        message: u64,
        /// Length of the message.
        bytes: u64,
        /// The memory.
        region: Region,
    },
    /// The memory is read-only; another region may be given.
    #[error("group {group} cannot receive into a read-only region")]
    RegionReadOnly {
        /// The group's number.
        group: u64,
        /// The memory.
        region: Region,
    },
    /// As many messages are queued as may be.
    #[error("{messages} messages of group {group} are queued; wait until the first is complete")]
    QueueFull {
        /// The group's number.
        group: u64,
        /// The limit, [`crate::GroupSettings::send_queue_max`].
        messages: u32,
        /// The message that was not queued.
        region: Region,
    },
    /// The group has callbacks, which get what this call asks for.
    #[error("group {0} receives by callbacks; create it without to use this call")]
    HasCallbacks(u64),
    /// Memory could not be had.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Something did not happen in time.
    #[error("{what} took longer than {timeout_ms} ms")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        timeout_ms: u64,
    },
    /// A setting is out of range; says which and what would do.
    #[error("{0}")]
    Setting(String),
    /// A blocking call from inside a callback that it would wait for: which, and what to do there.
    #[error("{0} waits for callbacks and was called from one; {1}")]
    InsideCallback(&'static str, &'static str),
    /// A member could not be reached, or refused.
    #[error("member {member} at {address}: {cause}")]
    Member {
        /// Who.
        member: u32,
        /// Where.
        address: SocketAddr,
        /// What happened, and what to do.
        cause: String,
    },
    /// A peer does not belong here; it is named by its address.
    #[error("{address}: {cause}")]
    Peer {
        /// Where the peer is.
        address: SocketAddr,
        /// What happened, and what to do.
        cause: String,
    },
    /// Switches cannot copy the group's blocks; a group that relays may work.
    #[error("switches cannot copy blocks for group {group}: {cause}")]
    InSwitch {
        /// The group's number.
        group: u64,
        /// Which member or switch, at which step, and what helps.
        cause: String,
    },
    /// The system refused.
    #[error("{what}: {error}")]
    System {
        /// What was asked of it.
        what: String,
        /// Its answer.
        error: io::Error,
    },
}

impl From<session::Error> for Error {
    fn from(error: session::Error) -> Self {
        match error {
            session::Error::Peer { address, cause } => Self::Peer { address, cause },
            session::Error::Timeout { what, timeout_ms } => Self::Timeout { what, timeout_ms },
            session::Error::System { what, error } => Self::System { what, error },
            other => Self::Setting(other.to_string()),
        }
    }
}

impl From<certificates::Error> for Error {
    fn from(error: certificates::Error) -> Self {
        match error {
            certificates::Error::Unreadable { path, error } => {
                Self::System { what: path.display().to_string(), error }
            }
            other => Self::Setting(other.to_string()),
        }
    }
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Self {
        match error {
            engine::Error::Failed(failure) => Self::Failed(failure),
            engine::Error::Relay(error) => Self::Relay(error),
            engine::Error::NumberInUse(group) => Self::NumberInUse(group),
            engine::Error::NoSuchGroup(group) => Self::NoSuchGroup(group),
            engine::Error::Closed(group) => Self::Closed(group),
            other => Self::Setting(other.to_string()),
        }
    }
}
