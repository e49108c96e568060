//! Errors at this member that fail a group.

use std::fmt;

use transport::{LeaseError, PostError};

/// An error that no neighbour and no lost connection has caused.
#[derive(Debug)]
pub(crate) enum LocalError {
    /// Memory that the application provided cannot be leased.
    Memory(LeaseError),
    /// The transport has no room for a control word to this neighbour.
    ControlRefused { rank: u32, error: PostError },
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::ControlRefused { error, .. } => error.fmt(f),
        }
    }
}

impl From<LeaseError> for LocalError {
    fn from(error: LeaseError) -> Self {
        Self::Memory(error)
    }
}
