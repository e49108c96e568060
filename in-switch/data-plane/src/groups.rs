//! The groups of one switch, in whichever data plane.

use std::{net::IpAddr, path::Path};

use mcrdma::{Counters, GroupKey, Merging, Replication, Source, Tables};

use crate::{KernelPlane, MemberState, PlaneError, UserspaceTables};

enum Plane {
    Kernel(Box<KernelPlane>),
    Userspace(UserspaceTables),
}

/// The groups of a switch. Every change is validated before it is written to the data plane; one that
/// fails has changed nothing.
pub struct Groups {
    plane: Plane,
    /// What is installed in the kernel. The plane in userspace has its own tables.
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
        let plane = KernelPlane::open(directory)?;
        let mut installed = Tables::default();
        for (key, replication, merging) in plane.groups()? {
            installed.insert(key, replication, merging)?;
        }
        Ok(Self { plane: Plane::Kernel(Box::new(plane)), installed })
    }

    /// The groups of a switch in userspace.
    #[must_use]
    pub fn in_userspace(tables: UserspaceTables) -> Self {
        Self { plane: Plane::Userspace(tables), installed: Tables::default() }
    }

    /// The data plane, if it is in the kernel: its ports.
    pub fn kernel(&mut self) -> Option<&mut KernelPlane> {
        match &mut self.plane {
            Plane::Kernel(plane) => Some(plane),
            Plane::Userspace(_) => None,
        }
    }

    /// Inserts a group; with `merging` where this is the sender's first switch.
    pub fn insert(
        &mut self,
        key: GroupKey,
        replication: Replication,
        merging: Option<Merging>,
    ) -> Result<(), PlaneError> {
        match &mut self.plane {
            Plane::Userspace(tables) => {
                Ok(tables.lock().tables.insert(key, replication, merging)?)
            }
            Plane::Kernel(plane) => {
                self.installed.insert(key, replication.clone(), merging.clone())?;
                let written = plane.insert(key, &replication, merging.as_ref());
                if written.is_err() {
                    self.installed.remove(key);
                    Self::forget_address(plane, &self.installed, merging.as_ref());
                }
                written
            }
        }
    }

    /// Replaces a group's branches, as after a change of routes; the state of its answers is kept.
    /// Whether there is such a group.
    pub fn replace(&mut self, key: GroupKey, replication: Replication) -> Result<bool, PlaneError> {
        match &mut self.plane {
            Plane::Userspace(tables) => Ok(tables.lock().tables.replace(key, replication)?),
            Plane::Kernel(plane) => {
                let Some(old) = self.installed.replication(key).cloned() else {
                    return Ok(false);
                };
                self.installed.replace(key, replication.clone())?;
                let written = plane.replace(key, &replication);
                if written.is_err() {
                    self.installed.replace(key, old)?;
                }
                written.map(|()| true)
            }
        }
    }

    /// Changes the ingress ports of members' answers, as after a change of routes. Whether there is such
    /// a group, whose answers are merged here.
    pub fn relocate(&mut self, key: GroupKey, now: &[Source]) -> Result<bool, PlaneError> {
        match &mut self.plane {
            Plane::Userspace(tables) => Ok(tables.lock().tables.relocate(key, now)?),
            Plane::Kernel(plane) => {
                if !self.installed.relocate(key, now)? {
                    return Ok(false);
                }
                let entry = self.installed.replication(key).zip(self.installed.merging(key));
                entry.map_or(Ok(false), |(group, merging)| {
                    plane.relocate(key.sender, group.sender_qpn, &merging.members).map(|()| true)
                })
            }
        }
    }

    /// Removes a group. Whether it was there.
    pub fn remove(&mut self, key: GroupKey) -> Result<bool, PlaneError> {
        match &mut self.plane {
            Plane::Userspace(tables) => Ok(tables.lock().tables.remove(key)),
            Plane::Kernel(plane) => {
                let Some(old) = self.installed.replication(key).cloned() else {
                    return Ok(false);
                };
                let merging = self.installed.merging(key).cloned();
                self.installed.remove(key);
                let removed = plane.remove(key, &old, merging.as_ref());
                Self::forget_address(plane, &self.installed, merging.as_ref());
                removed.map(|()| true)
            }
        }
    }

    /// Removes the virtual address of a group that is not installed, unless another group has it.
    fn forget_address(plane: &mut KernelPlane, installed: &Tables, merging: Option<&Merging>) {
        let answered = merging.filter(|merging| merging.virtual_mac.is_some());
        if let Some(address) = answered.map(|merging| merging.virtual_address)
            && installed.mac(address).is_none()
        {
            plane.remove_address(address);
        }
    }

    /// No longer waits for a member's answers. Whether it was one, and not the last.
    pub fn remove_member(&mut self, key: GroupKey, member: IpAddr) -> Result<bool, PlaneError> {
        match &mut self.plane {
            Plane::Userspace(tables) => Ok(tables.remove_member(key, member)),
            Plane::Kernel(plane) => {
                let entry = self.installed.replication(key).zip(self.installed.merging(key));
                entry.map_or(Ok(false), |(group, merging)| {
                    let sender = (key.sender, group.sender_qpn);
                    plane.remove_member(sender, member, &merging.members)
                })
            }
        }
    }

    fn read<R>(&self, read: impl FnOnce(&Tables) -> R) -> R {
        match &self.plane {
            Plane::Userspace(tables) => read(&tables.lock().tables),
            Plane::Kernel(_) => read(&self.installed),
        }
    }

    /// A group's entries.
    #[must_use]
    pub fn get(&self, key: GroupKey) -> Option<(Replication, Option<Merging>)> {
        self.read(|tables| Some((tables.replication(key)?.clone(), tables.merging(key).cloned())))
    }

    /// The progress of a group's members, if this is the sender's first switch.
    #[must_use]
    pub fn members(&self, key: GroupKey) -> Vec<MemberState> {
        match &self.plane {
            Plane::Userspace(tables) => {
                tables.lock().tables.merger(key).map_or(Vec::new(), members)
            }
            Plane::Kernel(plane) => {
                let entry = self.installed.replication(key).zip(self.installed.merging(key));
                entry.map_or(Vec::new(), |(replication, merging)| {
                    plane.members(key.sender, replication.sender_qpn, merging)
                })
            }
        }
    }

    /// Number of groups.
    #[must_use]
    pub fn count(&self) -> usize {
        self.read(|tables| tables.groups().count())
    }

    /// All groups, ordered by sender and identifier.
    #[must_use]
    pub fn all(&self) -> Vec<GroupState> {
        let keys: Vec<GroupKey> = self.read(|tables| tables.groups().map(|(key, _)| key).collect());
        let state = |key| {
            let (replication, _) = self.get(key)?;
            Some(GroupState { key, replication, members: self.members(key) })
        };
        let mut found: Vec<GroupState> = keys.into_iter().filter_map(state).collect();
        found.sort_by_key(|group| group.key);
        found
    }

    /// Values of all counters.
    pub fn counters(&self) -> Result<Counters, PlaneError> {
        match &self.plane {
            Plane::Userspace(tables) => Ok(tables.lock().tables.counters),
            Plane::Kernel(plane) => plane.counters(),
        }
    }
}

fn members(merger: &mcrdma::Merger) -> Vec<MemberState> {
    let state = |(address, expected, msn)| MemberState { address, expected, msn };
    merger.members().map(state).collect()
}
