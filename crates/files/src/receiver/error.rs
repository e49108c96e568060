//! Why a session ended.

use rdmc::Error;

use crate::{TargetError, messages::ToRoot};

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
        /// Why.
        reason: String,
        /// Whether what has come is of use to a later session.
        keep: bool,
    },
    /// The control connection to the root was lost, or could not be had.
    #[error("lost the root: {0}")]
    Root(Error),
    /// What was received could not be read back.
    #[error("cannot read back what was received: {0}")]
    ReadBack(std::io::Error),
    /// It was asked to stop.
    #[error("interrupted")]
    Stopped,
    /// The system or the library refused.
    #[error("{0}")]
    System(String),
}

impl ReceiveError {
    /// Whether a later session can go on with what has come: what a lost root, a dead neighbour, or
    /// the end of this receiver has left undone.
    pub fn keeps(&self) -> bool {
        match self {
            Self::Root(_) | Self::Stopped => true,
            Self::Aborted { keep, .. } => *keep,
            // It was reading when it was asked to stop.
            Self::ReadBack(error) => error.kind() == std::io::ErrorKind::Interrupted,
            _ => false,
        }
    }

    /// What the root is told, if it may be there and does not know.
    #[doc(hidden)]
    pub fn last_word(&self) -> Option<ToRoot> {
        match self {
            Self::Aborted { .. } | Self::Root(_) => None,
            error => Some(ToRoot::Failed { reason: error.to_string() }),
        }
    }
}
