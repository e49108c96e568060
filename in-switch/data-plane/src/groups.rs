//! The groups of one switch: what its agent knows, and what its data plane has been told.

use std::{net::IpAddr, path::Path};

use mcrdma::{Counters, GroupKey, Merging, Replication, Source, Tables};

use crate::{KernelPlane, MemberState, PlaneError, UserspaceTables};

/// Where groups' packets are copied.
enum Plane {
    Kernel(Box<KernelPlane>),
    Userspace(UserspaceTables),
}

/// The groups of a switch. Every change is checked here first, so that the data plane is told nothing
/// that is no group; a change that fails has changed nothing.
pub struct Groups {
    plane: Plane,
    /// What the plane in the kernel has been told. The one in userspace has its own.
    told: Tables,
}

/// A group, and how far its members are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupState {
    /// Which.
    pub key: GroupKey,
    /// The copies that are made of its packets.
    pub replication: Replication,
    /// At the sender's first switch: what each member has answered.
    pub members: Vec<MemberState>,
}

impl Groups {
    /// The groups of a switch in the kernel: those that it has from an agent before are kept.
    ///
    /// `directory`: in a BPF file system, where the switch's maps are pinned.
    pub fn in_kernel(directory: &Path) -> Result<Self, PlaneError> {
        let plane = KernelPlane::open(directory)?;
        let mut told = Tables::default();
        for (key, replication, merging) in plane.groups()? {
            told.insert(key, replication, merging)?;
        }
        Ok(Self { plane: Plane::Kernel(Box::new(plane)), told })
    }

    /// The groups of a switch in userspace.
    #[must_use]
    pub fn in_userspace(tables: UserspaceTables) -> Self {
        Self { plane: Plane::Userspace(tables), told: Tables::default() }
    }

    /// The data plane, if it is in the kernel: its ports.
    pub fn kernel(&mut self) -> Option<&mut KernelPlane> {
        match &mut self.plane {
            Plane::Kernel(plane) => Some(plane),
            Plane::Userspace(_) => None,
        }
    }

    /// Takes a group; with `merging` where this is the sender's first switch.
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
                self.told.insert(key, replication.clone(), merging.clone())?;
                let told = plane.insert(key, &replication, merging.as_ref());
                if told.is_err() {
                    self.told.remove(key);
                    Self::forget_address(plane, &self.told, merging.as_ref());
                }
                told
            }
        }
    }

    /// Gives a group other branches, as after a change of routes; what was answered is kept. Whether
    /// there is such a group.
    pub fn replace(&mut self, key: GroupKey, replication: Replication) -> Result<bool, PlaneError> {
        match &mut self.plane {
            Plane::Userspace(tables) => Ok(tables.lock().tables.replace(key, replication)?),
            Plane::Kernel(plane) => {
                let Some(old) = self.told.replication(key).cloned() else {
                    return Ok(false);
                };
                self.told.replace(key, replication.clone())?;
                let told = plane.replace(key, &replication);
                if told.is_err() {
                    self.told.replace(key, old)?;
                }
                told.map(|()| true)
            }
        }
    }

    /// Answers of a group's members come in elsewhere from now on, as after a change of routes.
    /// Whether there is such a group, whose answers are merged here.
    pub fn relocate(&mut self, key: GroupKey, now: &[Source]) -> Result<bool, PlaneError> {
        match &mut self.plane {
            Plane::Userspace(tables) => Ok(tables.lock().tables.relocate(key, now)?),
            Plane::Kernel(plane) => {
                if !self.told.relocate(key, now)? {
                    return Ok(false);
                }
                let told = self.told.replication(key).zip(self.told.merging(key));
                told.map_or(Ok(false), |(group, merging)| {
                    plane.relocate(key.sender, group.sender_qpn, &merging.members).map(|()| true)
                })
            }
        }
    }

    /// Forgets a group. Whether it was there.
    pub fn remove(&mut self, key: GroupKey) -> Result<bool, PlaneError> {
        match &mut self.plane {
            Plane::Userspace(tables) => Ok(tables.lock().tables.remove(key)),
            Plane::Kernel(plane) => {
                let Some(old) = self.told.replication(key).cloned() else {
                    return Ok(false);
                };
                let merging = self.told.merging(key).cloned();
                self.told.remove(key);
                let removed = plane.remove(key, &old, merging.as_ref());
                Self::forget_address(plane, &self.told, merging.as_ref());
                removed.map(|()| true)
            }
        }
    }

    /// The virtual address of a group that is not, or no longer, told is answered for no more, unless
    /// another group has it.
    fn forget_address(plane: &mut KernelPlane, told: &Tables, merging: Option<&Merging>) {
        let answered = merging.filter(|merging| merging.virtual_mac.is_some());
        if let Some(address) = answered.map(|merging| merging.virtual_address)
            && told.mac(address).is_none()
        {
            plane.remove_address(address);
        }
    }

    /// The group goes on without the answers of a member. Whether it was one, and not the last.
    pub fn remove_member(&mut self, key: GroupKey, member: IpAddr) -> Result<bool, PlaneError> {
        match &mut self.plane {
            Plane::Userspace(tables) => Ok(tables.lock().tables.remove_member(key, member)),
            Plane::Kernel(plane) => match self.told.replication(key) {
                Some(group) if self.told.merging(key).is_some() => {
                    plane.remove_member(key.sender, group.sender_qpn, member)
                }
                _ => Ok(false),
            },
        }
    }

    /// What was told of a group.
    #[must_use]
    pub fn get(&self, key: GroupKey) -> Option<(Replication, Option<Merging>)> {
        let told = |tables: &Tables| {
            Some((tables.replication(key)?.clone(), tables.merging(key).cloned()))
        };
        match &self.plane {
            Plane::Userspace(tables) => told(&tables.lock().tables),
            Plane::Kernel(_) => told(&self.told),
        }
    }

    /// How far the members of a group are, if this is the sender's first switch.
    #[must_use]
    pub fn members(&self, key: GroupKey) -> Vec<MemberState> {
        match &self.plane {
            Plane::Userspace(tables) => {
                tables.lock().tables.merger(key).map_or(Vec::new(), members)
            }
            Plane::Kernel(plane) => {
                let told = self.told.replication(key).zip(self.told.merging(key));
                told.map_or(Vec::new(), |(replication, merging)| {
                    plane.members(key.sender, replication.sender_qpn, merging)
                })
            }
        }
    }

    /// How many groups there are.
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.plane {
            Plane::Userspace(tables) => tables.lock().tables.groups().count(),
            Plane::Kernel(_) => self.told.groups().count(),
        }
    }

    /// All groups, ordered by sender and identifier.
    #[must_use]
    pub fn all(&self) -> Vec<GroupState> {
        let keys: Vec<GroupKey> = match &self.plane {
            Plane::Userspace(tables) => tables.lock().tables.groups().map(|(key, _)| key).collect(),
            Plane::Kernel(_) => self.told.groups().map(|(key, _)| key).collect(),
        };
        let state = |key| {
            let (replication, _) = self.get(key)?;
            Some(GroupState { key, replication, members: self.members(key) })
        };
        let mut found: Vec<GroupState> = keys.into_iter().filter_map(state).collect();
        found.sort_by_key(|group| group.key);
        found
    }

    /// What has happened.
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
