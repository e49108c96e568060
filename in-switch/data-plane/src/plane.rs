//! What a data plane has to be able to do.

use std::{any::Any, net::IpAddr};

use mcrdma::{Counters, GroupCounters, GroupKey, Merger, Merging, Replication, Source, Traced};
use roce::Serial;

use crate::{MemberState, PlaneError, UserspaceTables};

/// A group as it was inserted, with `Merging` at the sender's first switch.
pub type Entry = (GroupKey, Replication, Option<Merging>);

/// Writes groups to whatever copies packets: a program in the kernel, a bridge in userspace, an ASIC.
/// `docs/internals/switch-adapters.md` maps its methods to tables and registers.
///
/// [`Groups`](crate::Groups) is its only caller, one change at a time. It has validated every change, and
/// checked it against limits and the other groups; a plane checks nothing again, and may refuse for lack of
/// its own resources. A method that fails has to leave the group as it was.
///
/// Packets go on while entries change. They have to find the old or the new version of a group, never a
/// mixture of both.
pub trait DataPlane: Any + Send {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Installs a group that is not there. All of `merging.members` are waited for, from `psn_first` on.
    fn insert(
        &mut self,
        key: GroupKey,
        replication: &Replication,
        merging: Option<&Merging>,
    ) -> Result<(), PlaneError>;

    /// Replaces the branches of a group that is there. The state of its answers stays.
    fn replace(&mut self, key: GroupKey, replication: &Replication) -> Result<(), PlaneError>;

    /// Changes the ingress ports of the answers of a group that is there, which come to this queue pair of
    /// the sender's. `members` are all of its members, in the order in which they were inserted.
    fn relocate(
        &mut self,
        key: GroupKey,
        sender_qpn: u32,
        members: &[Source],
    ) -> Result<(), PlaneError>;

    /// Removes a group that is there, as it was inserted; or what is left of one that was inserted in part.
    fn remove(
        &mut self,
        key: GroupKey,
        replication: &Replication,
        merging: Option<&Merging>,
    ) -> Result<(), PlaneError>;

    /// No longer answers ARP and neighbour discovery for a virtual address, which no group has any more.
    fn remove_address(&mut self, address: IpAddr);

    /// No longer waits for a member's answers, and drops those that still come. If the group advances by that,
    /// the sender is notified at once. `members` are as for [`DataPlane::relocate`]. Whether it was waited for, and is
    /// not the last.
    fn remove_member(
        &mut self,
        key: GroupKey,
        sender_qpn: u32,
        member: IpAddr,
        members: &[Source],
    ) -> Result<bool, PlaneError>;

    /// The progress of a group's members, by their answers.
    fn members(&self, key: GroupKey, sender_qpn: u32, merging: &Merging) -> Vec<MemberState>;

    /// The number of the packet of a group that came last from its sender. `None`: none has come since the group was
    /// inserted or replaced. What members have not acknowledged of it tells that an only one, or all, are silent.
    fn entered(&self, key: GroupKey) -> Option<Serial>;

    /// Reads all groups, for an agent that starts. A plane that forgets them with its agent has none.
    fn groups(&self) -> Result<Vec<Entry>, PlaneError>;

    /// Begins to note each packet of a group that is there, or ends it. Of one that is not noted, a packet costs no more than
    /// a look at its entry.
    fn trace(&mut self, key: GroupKey, sender_qpn: u32, is_on: bool) -> Result<(), PlaneError>;

    /// Takes what was noted of a group. It may have been replaced meanwhile. `None`: it is not traced, or was removed.
    fn take_traced(&mut self, key: GroupKey) -> Result<Option<Traced>, PlaneError>;

    /// Values of all counters.
    fn counters(&self) -> Result<Counters, PlaneError>;

    /// What was counted of a group since it was inserted; `merging` as it was inserted. Changes of the group keep it, and
    /// a plane that keeps groups when its agent ends keeps it with them.
    fn group_counters(
        &self,
        key: GroupKey,
        sender_qpn: u32,
        merging: Option<&Merging>,
    ) -> Result<GroupCounters, PlaneError>;
}

impl DataPlane for UserspaceTables {
    fn name(&self) -> &'static str {
        "userspace"
    }

    fn insert(
        &mut self,
        key: GroupKey,
        replication: &Replication,
        merging: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        Ok(self.lock().tables.insert(key, replication.clone(), merging.cloned())?)
    }

    fn replace(&mut self, key: GroupKey, replication: &Replication) -> Result<(), PlaneError> {
        self.lock().tables.replace(key, replication.clone())?;
        Ok(())
    }

    fn relocate(&mut self, key: GroupKey, _: u32, members: &[Source]) -> Result<(), PlaneError> {
        self.lock().tables.relocate(key, members)?;
        Ok(())
    }

    fn remove(
        &mut self,
        key: GroupKey,
        _: &Replication,
        _: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        self.lock().tables.remove(key);
        Ok(())
    }

    /// Its tables count the groups that have an address.
    fn remove_address(&mut self, _: IpAddr) {}

    fn remove_member(
        &mut self,
        key: GroupKey,
        _: u32,
        member: IpAddr,
        _: &[Source],
    ) -> Result<bool, PlaneError> {
        Ok(UserspaceTables::remove_member(self, key, member))
    }

    fn members(&self, key: GroupKey, _: u32, _: &Merging) -> Vec<MemberState> {
        let state = |(address, expected, msn)| MemberState { address, expected, msn };
        let members = |merger: &Merger| merger.members().map(state).collect();
        self.lock().tables.merger(key).map_or(Vec::new(), members)
    }

    fn entered(&self, key: GroupKey) -> Option<Serial> {
        self.lock().tables.entered(key)
    }

    fn groups(&self) -> Result<Vec<Entry>, PlaneError> {
        let switch = self.lock();
        let entry = |(key, replication): (GroupKey, &Replication)| {
            (key, replication.clone(), switch.tables.merging(key).cloned())
        };
        Ok(switch.tables.groups().map(entry).collect())
    }

    fn trace(&mut self, key: GroupKey, _: u32, is_on: bool) -> Result<(), PlaneError> {
        self.lock().tables.trace(key, is_on);
        Ok(())
    }

    fn take_traced(&mut self, key: GroupKey) -> Result<Option<Traced>, PlaneError> {
        Ok(self.lock().tables.take_traced(key))
    }

    fn counters(&self) -> Result<Counters, PlaneError> {
        Ok(self.lock().tables.counters)
    }

    fn group_counters(
        &self,
        key: GroupKey,
        _: u32,
        _: Option<&Merging>,
    ) -> Result<GroupCounters, PlaneError> {
        Ok(self.lock().tables.group_counters(key).unwrap_or_default())
    }
}
