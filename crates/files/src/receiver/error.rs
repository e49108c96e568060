//! Errors of a session.

use rdmc::Error;

use crate::{TargetError, messages::ToRoot, reason::shortened};

/// Why a session ended without a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The target could not be prepared or published.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The destination is not acceptable here.
    #[error("{0}")]
    Refused(String),
    /// The root ended the session.
    #[error("the root ended the session: {reason}")]
    Aborted {
        /// The reason that the root gives.
        reason: String,
        /// Whether to keep the partial copy for a later session.
        keep: bool,
    },
    /// The control connection to the root was lost.
    #[error("lost the root: {0}")]
    Root(Error),
    /// The copy could not be written, or read to be passed on: with its path and what to do.
    #[error("{0}")]
    Storage(String),
    /// The received data could not be read back.
    #[error("{0}")]
    ReadBack(std::io::Error),
    /// What is at a URL could not be read here: with its URL and what to do.
    #[error("{0}")]
    Url(String),
    /// The output of a stream cannot be written.
    #[error("cannot write the stream out: {0}")]
    Sink(std::io::Error),
    /// The command that takes a stream has failed.
    #[error("the command has failed ({how}){}{line}", if line.is_empty() { "" } else { ": " })]
    Command {
        /// Its exit status, or the signal that has ended it.
        how: String,
        /// The last line of its output.
        line: String,
    },
    /// A stream ended early.
    #[error("{cause}; the first {bytes} bytes of the stream were verified and written out")]
    Stream {
        /// The error that ended it.
        cause: Box<Self>,
        /// How much was verified and written out. A file of them is removed.
        bytes: u64,
    },
    /// The receiver was stopped.
    #[error("the receiver was interrupted")]
    Stopped,
    /// The system or the library refused.
    #[error("{0}")]
    System(String),
}

impl ReceiveError {
    /// Whether to keep the partial copy: a later session can resume after a lost root or neighbour, or after this
    /// receiver was stopped, and once there is space again.
    pub fn keeps_partial(&self) -> bool {
        match self {
            Self::Root(_) | Self::Stopped | Self::Storage(_) => true,
            Self::Aborted { keep, .. } => *keep,
            // Stopped while it was reading.
            Self::ReadBack(error) => error.kind() == std::io::ErrorKind::Interrupted,
            _ => false,
        }
    }

    /// The last message to the root, unless it is lost or ended the session itself.
    #[doc(hidden)]
    pub fn last_message(&self) -> Option<ToRoot> {
        match self {
            Self::Aborted { .. } | Self::Root(_) => None,
            // The root knows how much.
            Self::Stream { cause, .. } => cause.last_message(),
            Self::Target(TargetError::Shared { host, .. }) => {
                Some(ToRoot::Shares { host: host.clone() })
            }
            error => Some(ToRoot::Failed { reason: shortened(&error.to_string()) }),
        }
    }
}
