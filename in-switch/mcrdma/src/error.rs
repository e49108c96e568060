//! Why tables refuse a group.

use std::net::IpAddr;

use crate::{GROUPS_MAX, GroupKey, MEMBERS_MAX, PORTS_MAX, REGIONS_MAX};

/// Why a switch refuses a group. Nothing has changed then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The table of groups is full.
    #[error(
        "{key}: this switch has {GROUPS_MAX} groups already; remove groups that are no longer used"
    )]
    TableFull {
        /// The group.
        key: GroupKey,
    },
    /// Too many copies, members that answer, or memory regions, over all groups.
    #[error(
        "{key}: {count} {what}, and this switch has capacity for {free} more; at most {most} for all its groups together: remove groups that are no longer used"
    )]
    CapacityExceeded {
        /// The group.
        key: GroupKey,
        /// Copies, members that answer, or memory regions.
        what: &'static str,
        /// How many the group needs.
        count: usize,
        /// How many are free.
        free: usize,
        /// How many the switch has in all.
        most: usize,
    },
    /// The identifier is in use.
    #[error("{key}: there is such a group already; choose another identifier")]
    Duplicate {
        /// The group.
        key: GroupKey,
    },
    /// Another group has the same sender's queue pair.
    #[error("{key}: queue pair {qpn:#x} of {sender} sends to another group already")]
    QueuePairTaken {
        /// The group.
        key: GroupKey,
        /// The sender.
        sender: IpAddr,
        /// Its queue pair.
        qpn: u32,
    },
    /// No members, or too many.
    #[error("{key}: {count} members; a group has 1 to {MEMBERS_MAX} at one switch")]
    Members {
        /// The group.
        key: GroupKey,
        /// How many.
        count: usize,
    },
    /// Too many ingress ports of the group, or of a member's answers.
    #[error(
        "{key}: {count} equally good ports for it or for a member's answers; at most {PORTS_MAX}"
    )]
    Ports {
        /// The group.
        key: GroupKey,
        /// How many.
        count: usize,
    },
    /// 0 is no interface's index.
    #[error("{key}: 0 is not a port number")]
    NoPort {
        /// The group.
        key: GroupKey,
    },
    /// Two members have the same address, so their answers would be indistinguishable.
    #[error("{key}: {address} is there twice; a host can be a member once")]
    SameAddress {
        /// The group.
        key: GroupKey,
        /// The address.
        address: IpAddr,
    },
    /// IPv4 and IPv6 addresses in one group.
    #[error("{key}: {address} is not of the sender's address family")]
    Families {
        /// The group.
        key: GroupKey,
        /// The first that is of another.
        address: IpAddr,
    },
    /// Too many regions of a member.
    #[error(
        "{key}: {count} memory regions of {member}; at most {REGIONS_MAX}: register fewer and larger ones"
    )]
    Regions {
        /// The group.
        key: GroupKey,
        /// The member that has them.
        member: IpAddr,
        /// How many.
        count: usize,
    },
    /// Regions of a member overlap, or reach beyond the address space.
    #[error(
        "{key}: the memory regions of {member} from {start:#x} on overlap, or one is empty or too long"
    )]
    Overlapping {
        /// The group.
        key: GroupKey,
        /// The member that has them.
        member: IpAddr,
        /// Where the later of them begins.
        start: u64,
    },
    /// A number that has more than 24 bits, or is reserved.
    #[error(
        "{key}: {number:#x} is not a queue pair number: they have 24 bits, and 0 and 1 are taken"
    )]
    QueuePairNumber {
        /// The group.
        key: GroupKey,
        /// What was given.
        number: u32,
    },
}
