//! Why a member cannot go on by itself.

use std::fmt;

use transport::{LeaseError, PostError};

/// What makes a group fail, though no neighbour has said or done anything wrong.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Memory that the application gave cannot be leased.
    Memory(LeaseError),
    /// There is no room for a word to this neighbour.
    Unwritable { rank: u32, error: PostError },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::Unwritable { error, .. } => error.fmt(f),
        }
    }
}

impl From<LeaseError> for Trouble {
    fn from(error: LeaseError) -> Self {
        Self::Memory(error)
    }
}
