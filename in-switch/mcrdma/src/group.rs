//! What a switch is told of a group.

use std::{collections::BTreeSet, net::IpAddr};

use roce::{Mac, Serial};

use crate::{GroupKey, MEMBERS_MAX, PORTS_MAX, Port, REGIONS_MAX, Refused};

/// Memory of a member, by the address that the sender uses for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    /// First address that the sender uses.
    pub start: u64,
    /// Length, in bytes; at least 1.
    pub bytes: u64,
    /// First address at the member.
    pub member_start: u64,
    /// The member's key.
    pub member_key: u32,
}

impl Region {
    /// What a WRITE there becomes at the member, if all of it lies in the region.
    #[must_use]
    pub const fn translate(&self, address: u64, bytes: u32) -> Option<(u64, u32)> {
        let Some(offset) = address.checked_sub(self.start) else {
            return None;
        };
        // Not `offset + bytes`: that may wrap.
        if offset >= self.bytes || (bytes as u64) > self.bytes - offset {
            return None;
        }
        Some((self.member_start.wrapping_add(offset), self.member_key))
    }
}

/// What a copy becomes behind the last fork on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewriting {
    /// The member's queue pair.
    pub qpn: u32,
    /// Added to the sender's packet numbers, modulo 2^24.
    pub psn_offset: u32,
    /// Of WRITEs; they do not overlap.
    pub regions: Vec<Region>,
}

/// A copy that a switch makes of each packet of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Branch {
    /// Where it leaves.
    pub port: Port,
    /// Who takes it on this link: the member, or the next router.
    pub mac: Mac,
    /// Its destination: a member that it is for, so that plain routers find the way.
    pub target: IpAddr,
    /// Behind the last fork: it becomes this member's. `None` where it is for several.
    pub rewriting: Option<Rewriting>,
}

/// All copies that a switch makes of a group's packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replication {
    /// The sender's queue pair.
    pub sender_qpn: u32,
    /// Where the group's packets come in, at most [`PORTS_MAX`]: those that come in elsewhere have
    /// gone in a circle, or are not the sender's, and end here. Empty: anywhere.
    pub inputs: Vec<Port>,
    /// 1 to [`MEMBERS_MAX`].
    pub branches: Vec<Branch>,
}

/// A member, as its answers are known by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Its address.
    pub address: IpAddr,
    /// As in [`Rewriting`]: taken from the packet numbers of its answers.
    pub psn_offset: u32,
    /// Where its answers come in, at most [`PORTS_MAX`]: others are not its own. Empty: anywhere.
    pub ports: Vec<Port>,
}

/// How answers are merged: at the sender's first switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merging {
    /// Number of the first packet that the sender sends.
    pub psn_first: Serial,
    /// What the sender takes for its peer.
    pub virtual_address: IpAddr,
    /// Ethernet address that the switch gives for it. `None`: it answers nobody who asks for that.
    pub virtual_mac: Option<Mac>,
    /// 1 to [`MEMBERS_MAX`].
    pub members: Vec<Source>,
    /// Each congestion notification goes to the sender, as the paper has it.
    pub all_notifications: bool,
}

fn check_qpn(key: GroupKey, number: u32) -> Result<(), Refused> {
    if (2..Serial::COUNT).contains(&number) {
        return Ok(());
    }
    Err(Refused::QueuePairNumber { key, number })
}

fn check_count(key: GroupKey, count: usize) -> Result<(), Refused> {
    if (1..=MEMBERS_MAX).contains(&count) {
        return Ok(());
    }
    Err(Refused::Members { key, count })
}

fn check_ports(key: GroupKey, ports: &[Port]) -> Result<(), Refused> {
    let count = ports.len();
    if count > PORTS_MAX {
        return Err(Refused::Ports { key, count });
    }
    // No interface has the number 0.
    if ports.contains(&0) {
        return Err(Refused::NoPort { key });
    }
    Ok(())
}

pub(crate) fn check_sources(key: GroupKey, sources: &[Source]) -> Result<(), Refused> {
    sources.iter().try_for_each(|source| check_ports(key, &source.ports))
}

/// Whether what came in at this port came in where it should.
pub(crate) fn is_among(ports: &[Port], port: Port) -> bool {
    ports.is_empty() || ports.contains(&port)
}

fn check_family(key: GroupKey, address: IpAddr) -> Result<(), Refused> {
    if address.is_ipv4() == key.sender.is_ipv4() {
        return Ok(());
    }
    Err(Refused::Families { key, address })
}

impl Replication {
    pub(crate) fn check(&self, key: GroupKey) -> Result<(), Refused> {
        check_qpn(key, key.id)?;
        check_qpn(key, self.sender_qpn)?;
        check_count(key, self.branches.len())?;
        check_ports(key, &self.inputs)?;
        for branch in &self.branches {
            check_family(key, branch.target)?;
            if let Some(rewriting) = &branch.rewriting {
                check_qpn(key, rewriting.qpn)?;
                rewriting.check(key, branch.target)?;
            }
        }
        Ok(())
    }
}

impl Rewriting {
    fn check(&self, key: GroupKey, member: IpAddr) -> Result<(), Refused> {
        let count = self.regions.len();
        if count > REGIONS_MAX {
            return Err(Refused::Regions { key, member, count });
        }
        let mut regions = self.regions.clone();
        regions.sort_by_key(|region| region.start);
        let mut end = 0;
        for Region { start, bytes, .. } in regions {
            let overlapping = Refused::Overlapping { key, member, start };
            if start < end || bytes == 0 {
                return Err(overlapping);
            }
            end = start.checked_add(bytes).ok_or(overlapping)?;
        }
        Ok(())
    }
}

impl Merging {
    pub(crate) fn check(&self, key: GroupKey) -> Result<(), Refused> {
        check_count(key, self.members.len())?;
        check_family(key, self.virtual_address)?;
        let mut addresses = BTreeSet::new();
        for Source { address, ports, .. } in &self.members {
            let address = *address;
            check_family(key, address)?;
            check_ports(key, ports)?;
            if !addresses.insert(address) {
                return Err(Refused::SameAddress { key, address });
            }
        }
        Ok(())
    }
}
