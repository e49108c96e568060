//! The phase of a group.

use crate::{error::Error, failed::Failed};

/// Phases follow each other from top to bottom; a group is either closed or failed before it ends.
#[derive(Debug)]
pub(crate) enum Phase {
    Running,
    /// Every message is complete at every member; connections are being closed.
    Closed,
    Failed(Failed),
    /// The last event has been taken.
    Ended,
}

impl Phase {
    /// Checks that the group is running. Errors: the group, which has this number, has failed or is
    /// closed.
    pub(crate) fn check_running(&self, group: u64) -> Result<(), Error> {
        match self {
            Self::Running => Ok(()),
            Self::Failed(failed) => Err(Error::Failed(failed.failure().clone())),
            Self::Closed | Self::Ended => Err(Error::Closed(group)),
        }
    }
}
