//! Faults of members and of what connects them, for every simulator that runs on the simulated network.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use transport_sim::{Fault as LinkFault, SimNet};

use crate::dice::Dice;

/// The kinds of faults; members by their ranks. `for_ns: None` is for ever.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MemberFault {
    /// The member dies.
    Kill { member: u32 },
    /// All connections between two members are lost.
    Reset { members: [u32; 2] },
    /// A whole machine stops: process and network.
    Freeze { member: u32, for_ns: Option<u64> },
    /// A process stops; its network continues.
    Pause { member: u32, for_ns: u64 },
    /// Nothing is delivered between these members and the others.
    Partition { members: Vec<u32>, for_ns: Option<u64> },
    /// A member's ports become slow, or fast, from the next block or write on.
    Rate { member: u32, bytes_per_s: u64 },
}

impl MemberFault {
    /// Names of the kinds, in the order of [`MemberFault::kind`].
    pub(crate) const KINDS: [&'static str; 6] =
        ["death", "reset", "freeze", "pause", "partition", "rate"];

    /// Draws one that hits a member and another one, of this many.
    pub(crate) fn draw_reset(dice: &mut Dice, member: u32, size: u64) -> Self {
        let other = (u64::from(member) + 1 + dice.below(size - 1)) % size;
        Self::Reset { members: [member, other as u32] }
    }

    /// Draws one that separates this member from others.
    pub(crate) fn draw_partition(
        dice: &mut Dice,
        member: u32,
        size: u64,
        duration: impl FnOnce(&mut Dice) -> Option<u64>,
    ) -> Self {
        let mut members: Vec<u32> =
            (0..size as u32).filter(|&other| other != member && dice.percent(40)).collect();
        if members.is_empty() {
            members.push(member);
        }
        Self::Partition { members, for_ns: duration(dice) }
    }

    /// Returns the index of its kind.
    pub fn kind(&self) -> usize {
        match self {
            Self::Kill { .. } => 0,
            Self::Reset { .. } => 1,
            Self::Freeze { .. } => 2,
            Self::Pause { .. } => 3,
            Self::Partition { .. } => 4,
            Self::Rate { .. } => 5,
        }
    }

    /// Returns how long it delays something; `u64::MAX` for ever, 0 if it does not.
    pub fn holds_ns(&self) -> u64 {
        match self {
            Self::Freeze { for_ns, .. } | Self::Partition { for_ns, .. } => {
                for_ns.unwrap_or(u64::MAX)
            }
            Self::Pause { for_ns, .. } => *for_ns,
            _ => 0,
        }
    }

    /// Returns every member that it names.
    pub fn members(&self) -> Vec<u32> {
        match self {
            Self::Reset { members } => members.to_vec(),
            Self::Partition { members, .. } => members.clone(),
            Self::Kill { member }
            | Self::Freeze { member, .. }
            | Self::Pause { member, .. }
            | Self::Rate { member, .. } => vec![*member],
        }
    }

    /// Returns whether it separates two members: one is stopped, or nothing passes between them.
    pub(crate) fn separates(&self, one: u32, other: u32) -> bool {
        match self {
            Self::Freeze { member, .. } | Self::Pause { member, .. } => {
                [one, other].contains(member)
            }
            Self::Partition { members, .. } => members.contains(&one) != members.contains(&other),
            _ => false,
        }
    }

    /// Gives other members a member's rank. Returns `false` if that leaves nothing of the fault.
    pub(crate) fn without(&mut self, rank: u32) -> bool {
        match self {
            Self::Reset { members: [one, other] } => rename(one, rank) & rename(other, rank),
            Self::Partition { members, .. } => {
                members.retain_mut(|member| rename(member, rank));
                !members.is_empty()
            }
            Self::Kill { member }
            | Self::Freeze { member, .. }
            | Self::Pause { member, .. }
            | Self::Rate { member, .. } => rename(member, rank),
        }
    }

    /// Makes what it is for the network of this many members happen; the caller stops and ends processes.
    pub(crate) fn inject(&self, network: &SimNet, size: u32) {
        let lasting = |for_ns: Option<u64>| for_ns.map_or(Duration::MAX, Duration::from_nanos);
        match self {
            Self::Kill { .. } | Self::Pause { .. } => {}
            Self::Reset { members: [one, other] } => {
                network.inject(LinkFault::Reset(*one as usize, *other as usize));
            }
            Self::Freeze { member, for_ns } => {
                let (member, lasting) = (*member as usize, lasting(*for_ns));
                network.inject(LinkFault::Stall { member, lasting });
            }
            Self::Partition { members, for_ns } => {
                let lasting = lasting(*for_ns);
                for other in (0..size).filter(|other| !members.contains(other)) {
                    for &one in members {
                        let (one, other) = (one as usize, other as usize);
                        network.inject(LinkFault::Cut { one, other, lasting });
                    }
                }
            }
            Self::Rate { member, bytes_per_s } => {
                network.set_port_rate(*member as usize, *bytes_per_s);
            }
        }
    }

    /// Returns the member whose process it stops, and for how long.
    pub(crate) fn stops(&self) -> Option<(usize, Option<u64>)> {
        match self {
            Self::Freeze { member, for_ns } => Some((*member as usize, *for_ns)),
            Self::Pause { member, for_ns } => Some((*member as usize, Some(*for_ns))),
            _ => None,
        }
    }
}

/// Gives another member the rank of one that is removed. Returns `false` if it is that one.
pub(crate) fn rename(member: &mut u32, removed: u32) -> bool {
    let is_other = *member != removed;
    *member -= u32::from(*member > removed);
    is_other
}
