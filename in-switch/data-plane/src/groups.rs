//! The groups of one switch, in whichever data plane.

use std::{any::Any, net::IpAddr, path::Path};

use mcrdma::{Counters, GroupCounters, GroupKey, Merging, Replication, Source, Tables, Traced};
use roce::Serial;

use crate::{DataPlane, KernelPlane, MemberState, PlaneError, UserspaceTables};

/// The groups of a switch. Every change is validated before it is written to the data plane; one that
/// fails has changed nothing.
pub struct Groups {
    plane: Box<dyn DataPlane>,
    /// What is installed there.
    installed: Tables,
}

/// A group, and its members' progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupState {
    /// Its key.
    pub key: GroupKey,
    /// The copies that are made of its packets.
    pub replication: Replication,
    /// At the sender's first switch: each member's progress.
    pub members: Vec<MemberState>,
}

impl Groups {
    /// The groups of a switch in the kernel, with those that a former agent has left there.
    ///
    /// `directory`: in a BPF file system, where the switch's maps are pinned.
    pub fn in_kernel(directory: &Path) -> Result<Self, PlaneError> {
        Self::in_plane(Box::new(KernelPlane::open(directory)?))
    }

    /// The groups of a switch in userspace, in which there are none yet.
    #[must_use]
    pub fn in_userspace(tables: UserspaceTables) -> Self {
        Self { plane: Box::new(tables), installed: Tables::default() }
    }

    /// The groups of any other switch, with those that are installed there.
    pub fn in_plane(plane: Box<dyn DataPlane>) -> Result<Self, PlaneError> {
        let mut installed = Tables::default();
        for (key, replication, merging) in plane.groups()? {
            installed.insert(key, replication, merging)?;
        }
        Ok(Self { plane, installed })
    }

    /// The data plane's name in reports.
    #[must_use]
    pub fn plane_name(&self) -> &'static str {
        self.plane.name()
    }

    /// The data plane, if it is in the kernel: its ports.
    pub fn kernel(&mut self) -> Option<&mut KernelPlane> {
        let plane: &mut dyn Any = &mut *self.plane;
        plane.downcast_mut()
    }

    /// Inserts a group; with `merging` where this is the sender's first switch.
    pub fn insert(
        &mut self,
        key: GroupKey,
        replication: Replication,
        merging: Option<Merging>,
    ) -> Result<(), PlaneError> {
        self.installed.insert(key, replication.clone(), merging.clone())?;
        let written = self.plane.insert(key, &replication, merging.as_ref());
        if written.is_err() {
            self.installed.remove(key);
            self.forget_address(merging.as_ref());
        }
        written
    }

    /// Replaces a group's branches, as after a change of routes; the state of its answers is kept.
    /// Whether there is such a group.
    pub fn replace(&mut self, key: GroupKey, replication: Replication) -> Result<bool, PlaneError> {
        let Some(old) = self.installed.replication(key).cloned() else {
            return Ok(false);
        };
        self.installed.replace(key, replication.clone())?;
        let written = self.plane.replace(key, &replication);
        if written.is_err() {
            self.installed.replace(key, old)?;
        }
        written.map(|()| true)
    }

    /// Changes the ingress ports of members' answers, as after a change of routes. Whether there is such
    /// a group, whose answers are merged here.
    pub fn relocate(&mut self, key: GroupKey, now: &[Source]) -> Result<bool, PlaneError> {
        if !self.installed.relocate(key, now)? {
            return Ok(false);
        }
        let entry = self.installed.replication(key).zip(self.installed.merging(key));
        entry.map_or(Ok(false), |(group, merging)| {
            self.plane.relocate(key, group.sender_qpn, &merging.members).map(|()| true)
        })
    }

    /// Removes a group. Whether it was there.
    pub fn remove(&mut self, key: GroupKey) -> Result<bool, PlaneError> {
        let Some(old) = self.installed.replication(key).cloned() else {
            return Ok(false);
        };
        let merging = self.installed.merging(key).cloned();
        self.installed.remove(key);
        let removed = self.plane.remove(key, &old, merging.as_ref());
        self.forget_address(merging.as_ref());
        removed.map(|()| true)
    }

    /// Removes the virtual address of a group that is not installed, unless another group has it.
    fn forget_address(&mut self, merging: Option<&Merging>) {
        let answered = merging.filter(|merging| merging.virtual_mac.is_some());
        if let Some(address) = answered.map(|merging| merging.virtual_address)
            && self.installed.mac(address).is_none()
        {
            self.plane.remove_address(address);
        }
    }

    /// No longer waits for a member's answers. Whether it was one, and not the last.
    pub fn remove_member(&mut self, key: GroupKey, member: IpAddr) -> Result<bool, PlaneError> {
        let entry = self.installed.replication(key).zip(self.installed.merging(key));
        entry.map_or(Ok(false), |(group, merging)| {
            self.plane.remove_member(key, group.sender_qpn, member, &merging.members)
        })
    }

    /// A group's entries.
    #[must_use]
    pub fn get(&self, key: GroupKey) -> Option<(Replication, Option<Merging>)> {
        let replication = self.installed.replication(key)?.clone();
        Some((replication, self.installed.merging(key).cloned()))
    }

    /// The progress of a group's members, if this is the sender's first switch.
    #[must_use]
    pub fn members(&self, key: GroupKey) -> Vec<MemberState> {
        let entry = self.installed.replication(key).zip(self.installed.merging(key));
        entry.map_or(Vec::new(), |(replication, merging)| {
            self.plane.members(key, replication.sender_qpn, merging)
        })
    }

    /// What was counted of a group since it was inserted. `None`: there is no such group.
    pub fn group_counters(&self, key: GroupKey) -> Result<Option<GroupCounters>, PlaneError> {
        let Some(replication) = self.installed.replication(key) else { return Ok(None) };
        let merging = self.installed.merging(key);
        self.plane.group_counters(key, replication.sender_qpn, merging).map(Some)
    }

    /// Begins to note each packet of a group, or ends it. Whether there is such a group.
    pub fn trace(&mut self, key: GroupKey, is_on: bool) -> Result<bool, PlaneError> {
        let Some(replication) = self.installed.replication(key) else { return Ok(false) };
        self.plane.trace(key, replication.sender_qpn, is_on).map(|()| true)
    }

    /// Takes what was noted of a group. `None`: it is not traced, or was removed.
    pub fn take_traced(&mut self, key: GroupKey) -> Result<Option<Traced>, PlaneError> {
        self.plane.take_traced(key)
    }

    /// The number of the packet of a group that came last, since the group was inserted or replaced.
    #[must_use]
    pub fn entered(&self, key: GroupKey) -> Option<Serial> {
        self.plane.entered(key)
    }

    /// Number of groups.
    #[must_use]
    pub fn count(&self) -> usize {
        self.installed.groups().count()
    }

    /// All groups, ordered by sender and identifier.
    #[must_use]
    pub fn all(&self) -> Vec<GroupState> {
        let state = |(key, replication): (GroupKey, &Replication)| GroupState {
            key,
            replication: replication.clone(),
            members: self.members(key),
        };
        let mut found: Vec<GroupState> = self.installed.groups().map(state).collect();
        found.sort_by_key(|group| group.key);
        found
    }

    /// Values of all counters.
    pub fn counters(&self) -> Result<Counters, PlaneError> {
        self.plane.counters()
    }
}
