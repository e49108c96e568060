//! What calls into the library can answer.

use std::{io, net::SocketAddr, time::Duration};

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
    #[error("{}", engine::Error::NumberInUse(*.0))]
    NumberInUse(u64),
    /// No such group, or it has ended.
    #[error("{}", engine::Error::NoSuchGroup(*.0))]
    NoSuchGroup(u64),
    /// The group is closing or closed.
    #[error("{}", engine::Error::Closed(*.0))]
    Closed(u64),
    /// The context is closed.
    #[error("the context is closed")]
    ContextClosed,
    /// What moves the context's transfers on has panicked, with what it said. All its groups have
    /// failed; others live.
    #[error("the context has failed, start another: {0}")]
    ContextFailed(String),
    /// The memory is smaller than the message; another region may be given.
    #[error("{}", too_small(*group, *message, *bytes, region))]
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
    #[error("{}", timeout_text(what, *timeout))]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        timeout: Duration,
    },
    /// A setting is out of range, or does not go with another.
    #[error("{name} is {value}; use {allowed}")]
    Setting {
        /// The field of [`crate::GroupSettings`] or [`crate::ContextSettings`].
        name: &'static str,
        /// As it was given.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// The network refuses a link, or memory: which, and why.
    #[error("{0}")]
    Transport(String),
    /// Files of certificates cannot be used.
    #[error(transparent)]
    Certificates(certificates::Error),
    /// The call is for contexts that their callers drive ([`crate::Progress::Caller`]).
    #[error("this context has its own progress thread")]
    HasProgressThread,
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

impl Error {
    pub(crate) fn setting(
        name: &'static str,
        value: impl ToString,
        allowed: impl Into<String>,
    ) -> Self {
        Self::Setting { name, value: value.to_string(), allowed: allowed.into() }
    }
}

fn too_small(group: u64, message: u64, bytes: u64, region: &Region) -> engine::Error {
    let region_bytes = region.len() as u64;
    engine::Error::RegionTooSmall { group, message, bytes, region_bytes }
}

fn timeout_text(what: &str, timeout: Duration) -> session::Error {
    session::Error::Timeout { what: what.to_owned(), timeout_ms: session::millis(timeout) }
}

impl From<session::Error> for Error {
    fn from(error: session::Error) -> Self {
        match error {
            session::Error::Peer { address, cause } => Self::Peer { address, cause },
            session::Error::Timeout { what, timeout_ms: u64::MAX } => {
                Self::Timeout { what, timeout: Duration::MAX }
            }
            session::Error::Timeout { what, timeout_ms } => {
                Self::Timeout { what, timeout: Duration::from_millis(timeout_ms) }
            }
            session::Error::System { what, error } => Self::System { what, error },
            other => Self::Transport(other.to_string()),
        }
    }
}

impl From<certificates::Error> for Error {
    fn from(error: certificates::Error) -> Self {
        match error {
            certificates::Error::Unreadable { path, error } => {
                Self::System { what: path.display().to_string(), error }
            }
            other => Self::Certificates(other),
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
            engine::Error::OutOfRange { setting, value, range } => {
                Self::setting(setting, value, format!("{} to {}", range.start(), range.end()))
            }
            // Errors about a region are made where it is at hand, to give it back.
            other => Self::Transport(other.to_string()),
        }
    }
}
