//! The kernel's groups as a data plane: changes of them, and what is read of them.

use std::net::IpAddr;

use aya::maps::MapError;
use mcrdma::{Counters, GroupCounters, GroupKey, Merging, Replication, Source, Traced};
use roce::Serial;

use super::{KernelPlane, Members, entries::Traffic, layout, layout::RegionsKeyBytes};
use crate::{DataPlane, Entry, MemberState, PlaneError};

impl DataPlane for KernelPlane {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn insert(
        &mut self,
        key: GroupKey,
        replication: &Replication,
        merging: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        let written = self.write(key, replication, merging);
        if written.is_err() {
            // The first error is the one to report.
            let _ = self.remove(key, replication, merging);
        }
        written
    }

    /// Blocks for some milliseconds if another change was made before.
    fn replace(&mut self, key: GroupKey, new: &Replication) -> Result<(), PlaneError> {
        self.settle()?;
        let failed = self.failed("change a group");
        self.write_branches(key, new).map_err(failed)
    }

    fn relocate(
        &mut self,
        key: GroupKey,
        sender_qpn: u32,
        members: &[Source],
    ) -> Result<(), PlaneError> {
        for (index, member) in (0..).zip(members) {
            let (place, member) = Self::member(key.sender, sender_qpn, index, member);
            if self.maps.members.get(&place, 0).is_ok_and(|old| old == member) {
                continue;
            }
            self.settle()?;
            self.is_unsettled = true;
            self.maps.members.insert(place, member, 0).map_err(self.failed("move a member"))?;
        }
        Ok(())
    }

    /// ARP for its virtual address is answered until [`DataPlane::remove_address`].
    fn remove(
        &mut self,
        key: GroupKey,
        replication: &Replication,
        merging: Option<&Merging>,
    ) -> Result<(), PlaneError> {
        let failed = self.failed("remove a group");
        let group_key = layout::group_key(key.sender, key.id);
        self.is_unsettled = true;
        if let Ok(group) = self.maps.groups.get(&group_key, 0) {
            self.retire(&group);
        }
        self.traces.end(key);
        let removed = self.maps.groups.remove(&group_key);
        let _ = self.maps.traffic.remove(&group_key);
        // Some may not have been written.
        if let Some(merging) = merging {
            let qpn = replication.sender_qpn;
            let sender = layout::group_key(key.sender, qpn);
            let _ = self.maps.senders.remove(&sender);
            let _ = self.maps.answers.remove(&sender);
            for member in &merging.members {
                let _ =
                    self.maps.members.remove(&layout::member_key(key.sender, qpn, member.address));
            }
        }
        removed.map_err(failed)
    }

    fn remove_address(&mut self, address: IpAddr) {
        self.is_unsettled = true;
        let _ = self.maps.addresses.remove(&layout::address(address));
    }

    /// Has to be called in the ports' network namespace.
    fn remove_member(
        &mut self,
        GroupKey { sender, .. }: GroupKey,
        qpn: u32,
        member: IpAddr,
        members: &[Source],
    ) -> Result<bool, PlaneError> {
        let key = layout::group_key(sender, qpn);
        let member = layout::member_key(sender, qpn, member);
        let (Ok(index), Ok(mut bytes)) =
            (self.maps.members.get(&member, 0), self.maps.senders.get(&key, 0))
        else {
            return Ok(false);
        };
        let (index, _) = layout::read_member(&index);
        let is_there = layout::remove_member(&mut bytes, index);
        if is_there {
            self.settle()?;
            let failed = self.failed("remove a member");
            self.is_unsettled = true;
            self.maps.senders.insert(key, bytes, 0).map_err(failed)?;
            let answers = self.maps.answers.get(&key, 0).ok();
            let told = answers.and_then(|answers| {
                layout::repeated_answer(sender, qpn, &bytes, &answers, members)
            });
            if let Some((port, frame)) = told {
                // Where that fails, the sender learns of it when it retransmits.
                let _ = self.receive(port, &frame);
            }
        }
        Ok(is_there)
    }

    fn members(&self, key: GroupKey, sender_qpn: u32, merging: &Merging) -> Vec<MemberState> {
        let Ok(answers) = self.maps.answers.get(&layout::group_key(key.sender, sender_qpn), 0)
        else {
            return Vec::new();
        };
        // Records are in the members' order.
        let state = |(index, source): (u32, &Source)| {
            let (expected, msn) = layout::read_record(&answers, index);
            MemberState { address: source.address, expected, msn }
        };
        (0..).zip(&merging.members).map(state).collect()
    }

    fn entered(&self, key: GroupKey) -> Option<Serial> {
        let group = self.maps.groups.get(&layout::group_key(key.sender, key.id), 0).ok()?;
        layout::read_entered(&group)
    }

    fn groups(&self) -> Result<Vec<Entry>, PlaneError> {
        let mut members = Members::new();
        for entry in self.maps.members.iter() {
            let (key, member) = entry.map_err(self.failed("read the members"))?;
            let (sender, qpn, address) = layout::read_member_key(&key);
            let (index, ports) = layout::read_member(&member);
            members.entry((sender, qpn)).or_default().push((index, address, ports));
        }
        let mut found = Vec::new();
        for entry in self.maps.groups.iter() {
            let (key, bytes) = entry.map_err(self.failed("read the groups"))?;
            let key = layout::read_group_key(&key);
            let regions = |key: &RegionsKeyBytes| self.maps.regions.get(key, 0).ok();
            let replication = layout::read_group(&bytes, regions);
            let merging = self.merging(key, replication.sender_qpn, &members);
            found.push((key, replication, merging));
        }
        Ok(found)
    }

    /// Over all processors.
    fn counters(&self) -> Result<Counters, PlaneError> {
        let mut counts = [0; mcrdma::Counter::ALL.len()];
        for (index, count) in (0..).zip(&mut counts) {
            let values = self.counters.get(&index, 0).map_err(self.failed("read the counters"))?;
            *count = values.iter().sum();
        }
        Ok(Counters::new(counts))
    }

    fn trace(&mut self, key: GroupKey, sender_qpn: u32, is_on: bool) -> Result<(), PlaneError> {
        let failed = self.failed("trace a group");
        self.settle()?;
        self.is_unsettled = true;
        if is_on {
            let lost = self.trace_lost(key)?;
            self.traces.begin(key, lost);
        }
        let written = self.maps.trace(key, sender_qpn, is_on).map_err(failed);
        if !is_on || written.is_err() {
            self.traces.end(key);
        }
        // A program that still runs by the entry before would note packets in the next trace of the group.
        written.and_then(|()| self.settle())
    }

    fn take_traced(&mut self, key: GroupKey) -> Result<Option<Traced>, PlaneError> {
        if !self.traces.contains(key) {
            return Ok(None);
        }
        let lost = self.trace_lost(key)?;
        Ok(self.traces.take(key, lost))
    }

    fn group_counters(
        &self,
        key: GroupKey,
        sender_qpn: u32,
        merging: Option<&Merging>,
    ) -> Result<GroupCounters, PlaneError> {
        let failed = self.failed("read a group's counters");
        let read = || {
            let traffic = self.maps.traffic.get(&layout::group_key(key.sender, key.id), 0)?;
            let Traffic { counts, request_bytes, .. } = layout::read_traffic(traffic.iter());
            let packets = Counters::new(counts);
            let mut members = Vec::new();
            if let Some(merging) = merging {
                let sender = layout::group_key(key.sender, sender_qpn);
                let answers = self.maps.answers.get(&sender, 0)?;
                members.extend(layout::read_answered(&answers, &merging.members));
            }
            Ok::<_, MapError>(GroupCounters { packets, request_bytes, members })
        };
        read().map_err(failed)
    }
}
