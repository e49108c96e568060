//! Why a link or a transport could not be made.

use std::io;

/// Why a link or a transport could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// The peer's bytes are not an offer of this version.
    #[error("the peer's offer is not one of shared memory, or of another version of rdmc")]
    NotAnOffer,
    /// Nobody has connected, or answered, in time.
    #[error("{0} took too long")]
    TimedOut(&'static str),
    /// The process at the other end is another user's.
    #[error("the peer's process is of user {0}; processes of one user share memory")]
    OtherUser(u32),
    /// The peer has ended, or passes something other than its memory.
    #[error("the peer's process passes no memory, or has ended")]
    NoMemory,
    /// A setting is out of range.
    #[error("{0}")]
    Setting(&'static str),
    /// The system refused.
    #[error("{step}: {error}")]
    System {
        /// What it refused.
        step: &'static str,
        /// Its error.
        error: io::Error,
    },
}

impl ShmError {
    /// Returns a conversion of the system's errors at a step.
    pub(crate) fn at<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::System { step, error: error.into() }
    }
}
