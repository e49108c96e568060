//! The library's error type.

use std::{io, net::SocketAddr, time::Duration};

use engine::Failure;
use relay::RelayError;
use schedule::ScheduleError;
use transport::{Region, RegionError};

/// An error that a call of this library returns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The group has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The call is not valid in the group's current state and had no effect.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// No schedule exists for the group's settings.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// This host cannot use the requested network.
    #[error("fabric {fabric} cannot be used on this host: {cause}")]
    Fabric {
        /// The fabric's name.
        fabric: String,
        /// The cause, and a remedy.
        cause: String,
    },
    /// A group with this number exists in this context.
    #[error("{}", engine::Error::NumberInUse(*.0))]
    NumberInUse(u64),
    /// The group does not exist, or has ended.
    #[error("{}", engine::Error::NoSuchGroup(*.0))]
    NoSuchGroup(u64),
    /// The group is closing or closed.
    #[error("{}", engine::Error::Closed(*.0))]
    Closed(u64),
    /// The context is closed.
    #[error("the context is closed")]
    ContextClosed,
    /// The context's progress code has panicked, with this text. All groups of the context have
    /// failed; other contexts are not affected.
    #[error("the context has failed; start another: {0}")]
    ContextFailed(String),
    /// The region is shorter than the message; another region may be provided.
    #[error("{}", too_small(*group, *message, *bytes, region))]
    RegionTooSmall {
        /// The group's number.
        group: u64,
        /// The message's number.
        message: u64,
        /// The message's length in bytes.
        bytes: u64,
        /// The region that was provided.
        region: Region,
    },
    /// The region is read-only; another region may be provided.
    #[error("group {group} cannot receive into a read-only region")]
    RegionReadOnly {
        /// The group's number.
        group: u64,
        /// The region that was provided.
        region: Region,
    },
    /// The send queue is full.
    #[error("{messages} messages of group {group} are queued; wait until the first is complete")]
    QueueFull {
        /// The group's number.
        group: u64,
        /// The limit, [`crate::GroupSettings::send_queue_max`].
        messages: u32,
        /// The message that was not queued.
        region: Region,
    },
    /// The group has callbacks, which receive what this call would return.
    #[error("group {0} receives through callbacks; create it without callbacks to use this call")]
    HasCallbacks(u64),
    /// Memory could not be allocated or used.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A timeout has expired.
    #[error("{}", timeout_text(what, *timeout))]
    Timeout {
        /// The operation or event that did not finish in time.
        what: String,
        /// The timeout.
        timeout: Duration,
        /// If the call waited for links: the ranks of the members to which no link was ever made.
        unconnected: Vec<u32>,
    },
    /// A setting is out of range, or incompatible with another setting.
    #[error("{name} is {value}; use {allowed}")]
    Setting {
        /// The field of [`crate::GroupSettings`] or [`crate::ContextSettings`].
        name: &'static str,
        /// The value of the setting.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// The network has refused a link or memory, for this reason.
    #[error("{0}")]
    Transport(String),
    /// Certificate files cannot be used.
    #[error(transparent)]
    Certificates(session::certificates::Error),
    /// The call requires [`crate::Progress::Caller`].
    #[error("this context has its own progress thread")]
    HasProgressThread,
    /// A blocking call was made from a callback that the call would wait for: the call, and its
    /// replacement in callbacks.
    #[error("{0} waits for callbacks and must not be called from one; {1}")]
    InsideCallback(&'static str, &'static str),
    /// A member is unreachable, or has refused the connection or the group.
    #[error("member {member} at {address}: {cause}")]
    Member {
        /// The member's rank.
        member: u32,
        /// The member's address.
        address: SocketAddr,
        /// The cause, and a remedy.
        cause: String,
    },
    /// A peer that is not an identified member of a group has failed, or has refused the connection.
    #[error("{address}: {cause}")]
    Peer {
        /// The peer's address.
        address: SocketAddr,
        /// The cause, and a remedy.
        cause: String,
    },
    /// Switches cannot copy the group's blocks; a group whose members relay may work.
    #[error("switches cannot copy blocks for group {group}: {cause}")]
    InSwitch {
        /// The group's number.
        group: u64,
        /// The member or switch that failed, the step, and a remedy.
        cause: String,
    },
    /// The team has failed.
    #[error(transparent)]
    TeamFailed(team::Failure),
    /// The team with this number is closed.
    #[error("team {0} is closed")]
    TeamClosed(u64),
    /// A team call is not valid and had no effect.
    #[error("{0}")]
    TeamCall(String),
    /// A system call has failed.
    #[error("{what}: {error}")]
    System {
        /// The operation that failed.
        what: String,
        /// The operating system's error.
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

impl From<team::Error> for Error {
    fn from(error: team::Error) -> Self {
        match error {
            team::Error::Failed(failure) => Self::TeamFailed(failure),
            team::Error::Closed(number) => Self::TeamClosed(number),
            other => Self::TeamCall(other.to_string()),
        }
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
            session::Error::Peer { address, cause, .. } => Self::Peer { address, cause },
            session::Error::Timeout { what, timeout_ms: u64::MAX } => {
                Self::Timeout { what, timeout: Duration::MAX, unconnected: Vec::new() }
            }
            session::Error::Timeout { what, timeout_ms } => {
                let timeout = Duration::from_millis(timeout_ms);
                Self::Timeout { what, timeout, unconnected: Vec::new() }
            }
            session::Error::System { what, error } => Self::System { what, error },
            other => Self::Transport(other.to_string()),
        }
    }
}

impl From<session::certificates::Error> for Error {
    fn from(error: session::certificates::Error) -> Self {
        match error {
            session::certificates::Error::Unreadable { path, error } => {
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
            engine::Error::OutOfRange(engine::OutOfRange { setting, value, range }) => {
                Self::setting(setting, value, format!("{} to {}", range.start(), range.end()))
            }
            // Errors that return a region are constructed where the region is available.
            other => Self::Transport(other.to_string()),
        }
    }
}
