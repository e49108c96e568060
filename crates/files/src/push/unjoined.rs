//! Members of a group that could not connect to each other, though both had all their time.

use std::time::Duration;

use super::pairs::Pairs;

/// For how long other members may report the same, before they are ordered to leave. They report at about the same time, since
/// they were notified of the group together.
const OTHERS_REPORT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Unjoined {
    pairs: Pairs,
    /// Until when others may report.
    until: Option<Duration>,
}

impl Unjoined {
    /// A host could not connect to this member; `None` is the root.
    pub(super) fn add(&mut self, host: usize, member: Option<usize>, now: Duration) {
        if self.pairs.add(host, member) {
            self.until.get_or_insert(now + OTHERS_REPORT);
        }
    }

    /// Until when others may report, if any could not connect.
    pub(super) fn until(&self) -> Option<Duration> {
        self.until
    }

    pub(super) fn pairs(&self) -> &Pairs {
        &self.pairs
    }
}
