//! How far a group has come.

use crate::{error::Error, failed::Failed};

/// Phases follow each other from top to bottom; one of the middle two is left out.
#[derive(Debug)]
pub(crate) enum Phase {
    Running,
    /// Every message is everywhere; connections are being closed.
    Closed,
    Failed(Failed),
    /// The last event has been taken.
    Ended,
}

impl Phase {
    /// Errors: the group of this number has failed, or is closed.
    pub(crate) fn check_running(&self, group: u64) -> Result<(), Error> {
        match self {
            Self::Running => Ok(()),
            Self::Failed(failed) => Err(Error::Failed(failed.failure().clone())),
            Self::Closed | Self::Ended => Err(Error::Closed(group)),
        }
    }
}
