//! Sending ranges of an object in a group.

use rdmc::{Error, Failure, FailureKind, Group, GroupSettings, Region};

use crate::ranges::Ranges;

/// Sends each range as a message, and starts to close the group. A failed or closed group is no error here, since it
/// reports that by its callbacks.
pub(crate) fn send_ranges(group: &Group, region: &Region, ranges: &Ranges) -> Result<(), Error> {
    unless_ended((|| {
        for (start, end) in ranges.iter() {
            let part = region
                .slice(start as usize..end as usize)
                .map_err(|error| Error::Transport(error.to_string()))?;
            group.try_send(part)?;
        }
        group.start_close()
    })())
}

/// The error of a call of a group, unless that has ended, which it reports by its callbacks.
pub(crate) fn unless_ended(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Ok(()) | Err(Error::Failed(_) | Error::Closed(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The failure of a group that this member ends.
pub(crate) fn own_failure(settings: &GroupSettings, reason: &dyn std::fmt::Display) -> Failure {
    Failure {
        group: settings.number,
        member: None,
        reporter: settings.rank,
        kind: FailureKind::Application,
        detail: reason.to_string(),
        delivered: 0,
    }
}
