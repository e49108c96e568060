//! A group's entries in a switch.

use std::{collections::BTreeSet, net::IpAddr};

use roce::{Headers, Mac, Patch, Serial};

use crate::{GroupKey, MEMBERS_MAX, PORTS_MAX, Port, REGIONS_MAX, Refused};

/// A member's memory region, and the virtual addresses that the sender uses for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region {
    /// First virtual address, as the sender uses it.
    pub start: u64,
    /// Length, in bytes; at least 1.
    pub bytes: u64,
    /// First address at the member.
    pub member_start: u64,
    /// The member's remote key (R_Key).
    pub member_key: u32,
}

impl Region {
    /// Address and key of a WRITE at the member, if all of it lies in the region.
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

/// How a copy is rewritten for its one member, behind the last fork on its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewriting {
    /// The member's queue pair.
    pub qpn: u32,
    /// Added to the sender's packet numbers, modulo 2^24.
    pub psn_offset: u32,
    /// Where WRITEs may go, at most [`REGIONS_MAX`]; they do not overlap. Tables keep them ordered by their start.
    pub regions: Vec<Region>,
}

impl Rewriting {
    /// Address and key of a WRITE at the member. `None`: it is not within a region.
    fn translate(&self, address: u64, bytes: u32) -> Option<(u64, u32)> {
        let after = self.regions.partition_point(|region| region.start <= address);
        self.regions[..after].last()?.translate(address, bytes)
    }

    fn check(&self, key: GroupKey, member: IpAddr) -> Result<(), Refused> {
        let count = self.regions.len();
        if count > REGIONS_MAX {
            return Err(Refused::Regions { key, member, count });
        }
        let mut end = 0;
        for &Region { start, bytes, .. } in &self.regions {
            let overlapping = Refused::Overlapping { key, member, start };
            if start < end || bytes == 0 {
                return Err(overlapping);
            }
            end = start.checked_add(bytes).ok_or(overlapping)?;
        }
        Ok(())
    }
}

/// A copy that a switch makes of each packet of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Branch {
    /// Egress port.
    pub port: Port,
    /// Destination Ethernet address on this link: the member's or the next router's.
    pub mac: Mac,
    /// Destination address: that of one of its members, so that plain routers can forward it.
    pub target: IpAddr,
    /// Behind the last fork; `None` where the copy is for several members.
    pub rewriting: Option<Rewriting>,
}

impl Branch {
    /// The rewrite of a packet for this branch. `None`: a WRITE to memory that is not in the tables.
    #[must_use]
    pub fn patch(&self, headers: &Headers) -> Option<Patch> {
        // As a router does, so that loops end.
        let hop_limit = Some(headers.ip.hop_limit.saturating_sub(1));
        let mut patch = Patch { target: Some(self.target), hop_limit, ..Patch::default() };
        let Some(rewriting) = &self.rewriting else {
            return Some(patch);
        };
        patch.target_qpn = Some(rewriting.qpn);
        patch.psn = Some(headers.bth.psn.plus(rewriting.psn_offset));
        // A WRITE of 0 bytes, often sent for its immediate alone, has no address to translate.
        if let Some(reth) = headers.reth.filter(|reth| reth.bytes > 0) {
            patch.memory = Some(rewriting.translate(reth.address, reth.bytes)?);
        }
        Some(patch)
    }
}

/// All copies that a switch makes of a group's packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replication {
    /// The sender's queue pair.
    pub sender_qpn: u32,
    /// Ingress ports of the group, at most [`PORTS_MAX`]: packets from other ports looped, or are
    /// spoofed, and are dropped. Empty: any port.
    pub inputs: Vec<Port>,
    /// 1 to [`MEMBERS_MAX`].
    pub branches: Vec<Branch>,
}

/// A member, by which its answers are matched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Its address.
    pub address: IpAddr,
    /// As in [`Rewriting`]: subtracted from the packet numbers of its answers.
    pub psn_offset: u32,
    /// Ingress ports of its answers, at most [`PORTS_MAX`]. Empty: any port.
    pub ports: Vec<Port>,
}

/// How answers are merged: at the sender's first switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merging {
    /// Number of the first packet that the sender sends.
    pub psn_first: Serial,
    /// Address of the sender's virtual peer.
    pub virtual_address: IpAddr,
    /// The Ethernet address with which the switch answers ARP and neighbour discovery for it. `None`: it
    /// does not answer.
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

/// Whether `port` is among the ingress ports, which are unrestricted if there are none.
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
    /// Memory regions of all branches.
    pub(crate) fn regions(&self) -> usize {
        let rewritings = self.branches.iter().filter_map(|branch| branch.rewriting.as_ref());
        rewritings.map(|rewriting| rewriting.regions.len()).sum()
    }

    /// Orders each branch's regions by their start.
    pub(crate) fn sort_regions(&mut self) {
        for rewriting in self.branches.iter_mut().filter_map(|branch| branch.rewriting.as_mut()) {
            rewriting.regions.sort_unstable_by_key(|region| region.start);
        }
    }

    /// Regions have to be sorted.
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
