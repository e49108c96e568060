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

    /// When the first of the members' delegations ends.
    fn delegated_until(&self) -> Option<Instant> {
        self.delegated_until.values().min().copied()
    }
}

impl State {
    /// Why packets may not reach all members.
    pub(crate) fn trouble(&self) -> String {
        self.troubles.values().cloned().collect::<Vec<_>>().join("; ")
    }

    /// The group that all callers request, if they agree, with the delegations that end last.
    pub(crate) fn requested(&self) -> Option<&Group> {
        let newest = &self.leases.values().max_by_key(|lease| lease.delegated_until())?.group;
        self.leases.values().all(|lease| lease.group.is_same(newest)).then_some(newest)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcrdma::GroupKey;
    use roce::{Mac, Serial};

    use super::*;

    /// Signed then by its only member, until as many seconds later.
    fn lease(start: Instant, qpn: u32, until: u8) -> Lease {
        let address = IpAddr::from([10, 0, 0, 2]);
        let (mac, delegation) = (Some(Mac([2, 0, 0, 0, 0, 2])), vec![until]);
        let member = Member { address, mac, qpn, psn_offset: 0, regions: Vec::new(), delegation };
        let group = Group {
            key: GroupKey { sender: IpAddr::from([10, 0, 0, 1]), id: 0x80_0000 },
            sender_mac: None,
            sender_qpn: 18,
            psn_first: Serial::new(7),
            instance: 1,
            virtual_address: address,
            virtual_mac: Mac([2, 0, 0, 0, 0, 2]),
            all_notifications: false,
            members: vec![member],
        };
        let end = start + Duration::from_secs(until.into());
        Lease { group, renewed: start, delegated_until: BTreeMap::from([(address, end)]) }
    }

    /// Of several callers one may be the last to hear of a member's next delegation, or never.
    #[test]
    fn switches_behind_get_the_delegations_that_end_last() {
        let start = Instant::now();
        for ends in [[9, 30], [30, 9]] {
            let mut state = State::default();
            for (caller, end) in ["spine-1", "spine-2"].into_iter().zip(ends) {
                state.leases.insert(caller.to_owned(), lease(start, 33, end));
            }
            assert_eq!(state.requested().unwrap().members[0].delegation, [30]);
            state.leases.insert("spine-2".to_owned(), lease(start, 34, 60));
            assert_eq!(state.requested(), None, "they do not agree");
        }
    }
}
