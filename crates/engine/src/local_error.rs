//! Errors at this member that fail a group.

use std::fmt;

use transport::{LeaseError, PostError};

/// An error that no neighbour and no lost connection has caused.
#[derive(Debug)]
pub(crate) enum LocalError {
    /// Memory that the application provided cannot be leased.
    Memory(LeaseError),
    /// This member's copy of a message is not the root's.
    Differs { message: u64, bytes: u64 },
    /// The transport has no room for a control word to this neighbour.
    ControlRefused { rank: u32, error: PostError },
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::Differs { message, bytes } => {
                write!(f, "message {message} of {bytes} bytes has another digest than at the root")
            }
            Self::ControlRefused { error, .. } => error.fmt(f),
        }
    }
}

impl From<LeaseError> for LocalError {
    fn from(error: LeaseError) -> Self {
        Self::Memory(error)
    }
}
