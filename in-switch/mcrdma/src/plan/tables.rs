//! Table entries of the switches of a tree.

use std::net::IpAddr;

use roce::{Mac, Serial};

use super::{Node, Tree};
use crate::{Branch, GroupKey, Merging, Port, Region, Replication, Rewriting, Source};

/// A member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, by which bridges find its port; routers need none.
    pub mac: Option<Mac>,
    /// Its queue pair.
    pub qpn: u32,
    /// Added to the sender's packet numbers, modulo 2^24.
    pub psn_offset: u32,
    /// Its memory, for WRITEs.
    pub regions: Vec<Region>,
    /// Signed by the member: switches may copy this group's packets to it. Checked by agents.
    pub delegation: Vec<u8>,
}

/// A group before it has an identifier, as its members agree to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// The sender's address.
    pub sender: IpAddr,
    /// The sender's queue pair.
    pub sender_qpn: u32,
    /// Number of the sender's first packet.
    pub psn_first: Serial,
    /// Random number that the sender has drawn for this group.
    pub instance: u64,
}

/// A group, as it is installed in switches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The sender's address, and the identifier.
    pub key: GroupKey,
    /// The sender's Ethernet address, by which bridges find its port; routers need none.
    pub sender_mac: Option<Mac>,
    /// The sender's queue pair.
    pub sender_qpn: u32,
    /// Number of the sender's first packet.
    pub psn_first: Serial,
    /// Random number that the sender has drawn for this group.
    pub instance: u64,
    /// Address of the sender's virtual peer.
    pub virtual_address: IpAddr,
    /// The virtual peer's Ethernet address.
    pub virtual_mac: Mac,
    /// Each congestion notification goes to the sender.
    pub all_notifications: bool,
    /// Who receives.
    pub members: Vec<Member>,
}

/// A group's entry in one switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The switch.
    pub switch: Node,
    /// The copies that it makes.
    pub replication: Replication,
    /// At the sender's first switch only.
    pub merging: Option<Merging>,
}

impl Group {
    /// What its members have agreed to.
    #[must_use]
    pub const fn proposal(&self) -> Proposal {
        let Self { key, sender_qpn, psn_first, instance, .. } = *self;
        Proposal { sender: key.sender, sender_qpn, psn_first, instance }
    }

    /// Whether switches have the same entries for both: members may have signed them at different times.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let unsigned = |group: &Self| {
            let mut group = group.clone();
            group.members.iter_mut().for_each(|member| member.delegation.clear());
            group
        };
        self == other || unsigned(self) == unsigned(other)
    }

    /// The entry for merging at the sender's first switch, without ingress ports.
    #[must_use]
    pub fn merging(&self) -> Merging {
        let source = |member: &Member| Source {
            address: member.address,
            psn_offset: member.psn_offset,
            ports: Vec::new(),
        };
        Merging {
            psn_first: self.psn_first,
            virtual_address: self.virtual_address,
            virtual_mac: Some(self.virtual_mac),
            members: self.members.iter().map(source).collect(),
            all_notifications: self.all_notifications,
        }
    }

    /// The copy that leaves by this port to this Ethernet address. `members`: indices of the group's, at
    /// least one.
    #[must_use]
    pub fn branch(&self, port: Port, mac: Mac, members: &[usize]) -> Branch {
        let member = &self.members[members[0]];
        let rewriting = (members.len() == 1).then(|| Rewriting {
            qpn: member.qpn,
            psn_offset: member.psn_offset,
            regions: member.regions.clone(),
        });
        Branch { port, mac, target: member.address, rewriting }
    }
}

/// The entries of all switches of a tree that need one. `nodes` has the nodes of the group's members;
/// `hop` returns, for a switch, its equal next nodes and a member, a copy's egress port and destination
/// Ethernet address.
pub fn entries(
    tree: &Tree,
    group: &Group,
    nodes: &[Node],
    mut hop: impl FnMut(Node, &[Node], &Member) -> (Port, Mac),
) -> Vec<Entry> {
    let index = |node: &Node| nodes.iter().position(|known| known == node);
    let entry = |fork: &super::Fork| {
        let branches = fork.branches.iter().filter_map(|way| {
            let members: Vec<usize> = way.members.iter().filter_map(index).collect();
            let first = group.members.get(*members.first()?)?;
            let (port, mac) = hop(fork.switch, &way.next, first);
            Some(group.branch(port, mac, &members))
        });
        let replication = Replication {
            sender_qpn: group.sender_qpn,
            inputs: Vec::new(),
            branches: branches.collect(),
        };
        let merging = (fork.switch == tree.first).then(|| group.merging());
        Entry { switch: fork.switch, replication, merging }
    };
    tree.forks.iter().map(entry).collect()
}
