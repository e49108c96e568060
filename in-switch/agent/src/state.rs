//! State of a group: what was requested, and what is installed.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Instant};

use mcrdma::plan::{Group, Member};

use crate::{split::Split, suspicion::Failing};

/// A lock for each group: its changes are serialized.
pub(crate) type Entry = Arc<tokio::sync::Mutex<State>>;

/// A group that has leases.
#[derive(Default)]
pub(crate) struct State {
    /// It was removed while another task waited for the lock.
    pub(crate) is_removed: bool,
    pub(crate) instance: u64,
    pub(crate) is_first: bool,
    /// The switch may answer ARP for the virtual address.
    pub(crate) is_proven: bool,
    pub(crate) hops_left: u32,
    /// By caller.
    pub(crate) leases: BTreeMap<String, Lease>,
    /// The group that is installed.
    pub(crate) group: Option<Group>,
    pub(crate) split: Split,
    /// The parts that downstream agents have installed.
    pub(crate) downstream: BTreeMap<String, Group>,
    /// Downstream agents that do not answer, and since when.
    pub(crate) unreachable_since: BTreeMap<String, Instant>,
    /// Members that seem to have failed.
    pub(crate) failing: Failing,
    /// By cause.
    pub(crate) troubles: BTreeMap<String, String>,
}

/// A caller's lease: what it has requested, and when it was renewed.
pub(crate) struct Lease {
    pub(crate) group: Group,
    pub(crate) renewed: Instant,
    /// When each member's delegation ends, by its address.
    pub(crate) delegated_until: BTreeMap<IpAddr, Instant>,
}

impl Lease {
    /// A member whose delegation has ended by then.
    pub(crate) fn overdue(&self, now: Instant) -> Option<IpAddr> {
        let has_ended = |member: &&Member| {
            self.delegated_until.get(&member.address).is_none_or(|until| *until <= now)
        };
        self.group.members.iter().find(has_ended).map(|member| member.address)
    }
}

impl State {
    /// Why packets may not reach all members.
    pub(crate) fn trouble(&self) -> String {
        self.troubles.values().cloned().collect::<Vec<_>>().join("; ")
    }

    /// The group that all callers request, if they agree.
    pub(crate) fn requested(&self) -> Option<&Group> {
        let mut all = self.leases.values().map(|lease| &lease.group);
        let first = all.next()?;
        all.all(|other| other.is_same(first)).then_some(first)
    }
}
