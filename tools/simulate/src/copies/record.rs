//! A session, and what was there before and after what others did.

use files::simulation::{CopySession, CopySource};

use super::{scenario::CopySessionPlan, snapshot::Snapshot};

/// What another process did before a call.
#[derive(Debug)]
pub(super) struct Act {
    pub(super) call: u64,
    pub(super) before: Snapshot,
    pub(super) after: Snapshot,
}

/// A session, and what was there before and after it.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) plan: CopySessionPlan,
    pub(super) source: CopySource,
    pub(super) session: CopySession,
    pub(super) start: Snapshot,
    pub(super) acts: Vec<Act>,
    pub(super) end: Snapshot,
}

impl Record {
    /// What was there when the session had looked.
    pub(super) fn look(&self) -> &Snapshot {
        let before = self.acts.iter().rfind(|act| act.call < self.session.looked_at);
        before.map_or(&self.start, |act| &act.after)
    }

    /// Changes by other processes from a call on, by path.
    pub(super) fn changed_from(&self, call: u64) -> Vec<&str> {
        let acts = self.acts.iter().filter(|act| act.call >= call);
        acts.flat_map(|act| act.after.changed_since(&act.before)).collect()
    }
}
