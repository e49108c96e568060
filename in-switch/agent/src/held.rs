//! A group, as those want it who have asked for it, and as it is in force.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use mcrdma::plan::Group;

use crate::split::Split;

/// Changes of a group wait for each other.
pub(crate) type Entry = Arc<tokio::sync::Mutex<Held>>;

/// A group, while somebody wants it.
#[derive(Default)]
pub(crate) struct Held {
    /// It was forgotten while somebody waited for it.
    pub(crate) is_gone: bool,
    pub(crate) instance: u64,
    pub(crate) is_first: bool,
    /// The switch may answer who asks for the virtual address.
    pub(crate) is_proven: bool,
    pub(crate) hops_left: u32,
    /// By their names.
    pub(crate) callers: BTreeMap<String, Wanted>,
    /// What is in force.
    pub(crate) group: Option<Group>,
    pub(crate) split: Split,
    /// What the agents behind were asked to do.
    pub(crate) behind: BTreeMap<String, Group>,
    /// Agents behind of which nothing is heard, and since when.
    pub(crate) unheard: BTreeMap<String, Instant>,
    /// By what causes it.
    pub(crate) troubles: BTreeMap<String, String>,
}

/// What a caller wants.
pub(crate) struct Wanted {
    pub(crate) group: Group,
    pub(crate) heard: Instant,
}

impl Held {
    /// Why packets may not reach all members.
    pub(crate) fn trouble(&self) -> String {
        self.troubles.values().cloned().collect::<Vec<_>>().join("; ")
    }

    /// What all callers want, if they agree.
    pub(crate) fn wanted(&self) -> Option<&Group> {
        let mut all = self.callers.values().map(|wanted| &wanted.group);
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }
}
