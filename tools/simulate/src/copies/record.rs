//! A session, and what was there before and after what others did.

use files::simulation::{CopySession, CopySource};

use super::{
    scenario::CopySessionPlan,
    snapshot::{Node, Snapshot},
};

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

    /// Whether another process has written to this file from a call on, and it has these contents still.
    pub(super) fn is_written_from(&self, call: u64, node: &Node) -> bool {
        let mut acts = self.acts.iter().filter(|act| act.call >= call);
        acts.any(|act| {
            let [before, after] = [&act.before, &act.after].map(|it| it.of_inode(node.inode));
            before.zip(after).is_some_and(|(before, after)| {
                before.bytes != after.bytes && after.bytes == node.bytes
            })
        })
    }
}
