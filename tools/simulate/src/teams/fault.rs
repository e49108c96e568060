//! Faults of teams.

use serde::{Deserialize, Serialize};

use super::calls::OtherCall;

/// A fault, and when it is injected.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlannedTeamFault {
    /// The step of the run.
    pub step: u64,
    /// The fault.
    pub what: TeamFault,
}

/// The kinds of faults. `for_ns: None` is for ever.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TeamFault {
    /// The member dies.
    Kill {
        /// Its rank.
        member: u32,
    },
    /// The connection between two members is lost.
    Reset {
        /// Their ranks.
        members: [u32; 2],
    },
    /// A whole machine stops: process and network.
    Freeze {
        /// Its rank.
        member: u32,
        /// Duration.
        for_ns: Option<u64>,
    },
    /// A process stops; its network continues.
    Pause {
        /// Its rank.
        member: u32,
        /// Duration.
        for_ns: u64,
    },
    /// Nothing is delivered between these members and the others.
    Partition {
        /// One side of it.
        members: Vec<u32>,
        /// Duration.
        for_ns: Option<u64>,
    },
    /// A member's port becomes slow, or fast.
    Rate {
        /// Its rank.
        member: u32,
        /// From the next write on.
        bytes_per_s: u64,
    },
    /// An application aborts the team.
    Abort {
        /// Its rank.
        member: u32,
    },
    /// An application aborts the team, and its process ends.
    Drop {
        /// Its rank.
        member: u32,
    },
    /// An application leaves the team before the others.
    Leave {
        /// Its rank.
        member: u32,
    },
    /// A member's next call is another than that of the others.
    Differ {
        /// Its rank.
        member: u32,
        /// In what.
        by: OtherCall,
    },
    /// An application waits for its operation no longer.
    TimeOut {
        /// Its rank.
        member: u32,
    },
}

impl TeamFault {
    /// Names of the kinds, in the order of [`TeamFault::kind`].
    pub const KINDS: [&'static str; 11] = [
        "death",
        "reset",
        "freeze",
        "pause",
        "partition",
        "rate",
        "abort",
        "drop",
        "leaving",
        "other call",
        "timeout",
    ];

    /// Returns the index of its kind.
    pub fn kind(&self) -> usize {
        match self {
            Self::Kill { .. } => 0,
            Self::Reset { .. } => 1,
            Self::Freeze { .. } => 2,
            Self::Pause { .. } => 3,
            Self::Partition { .. } => 4,
            Self::Rate { .. } => 5,
            Self::Abort { .. } => 6,
            Self::Drop { .. } => 7,
            Self::Leave { .. } => 8,
            Self::Differ { .. } => 9,
            Self::TimeOut { .. } => 10,
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
            | Self::Rate { member, .. }
            | Self::Abort { member }
            | Self::Drop { member }
            | Self::Leave { member }
            | Self::Differ { member, .. }
            | Self::TimeOut { member } => vec![*member],
        }
    }

    /// Returns whether it separates two members: one is stopped, or nothing passes between them.
    pub(super) fn separates(&self, one: u32, other: u32) -> bool {
        match self {
            Self::Freeze { member, .. } | Self::Pause { member, .. } => {
                [one, other].contains(member)
            }
            Self::Partition { members, .. } => members.contains(&one) != members.contains(&other),
            _ => false,
        }
    }

    /// Gives other members a member's rank. Returns `false` if that leaves nothing of the fault.
    pub(super) fn without(&mut self, rank: u32) -> bool {
        let rename = |member: &mut u32| *member -= u32::from(*member > rank);
        match self {
            Self::Reset { members } => {
                let is_other = !members.contains(&rank);
                members.iter_mut().for_each(rename);
                is_other
            }
            Self::Partition { members, .. } => {
                members.retain(|&member| member != rank);
                members.iter_mut().for_each(rename);
                !members.is_empty()
            }
            Self::Kill { member }
            | Self::Freeze { member, .. }
            | Self::Pause { member, .. }
            | Self::Rate { member, .. }
            | Self::Abort { member }
            | Self::Drop { member }
            | Self::Leave { member }
            | Self::Differ { member, .. }
            | Self::TimeOut { member } => {
                let is_other = *member != rank;
                rename(member);
                is_other
            }
        }
    }
}
