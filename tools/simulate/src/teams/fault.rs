//! Faults of teams.

use serde::{Deserialize, Serialize};

use super::calls::OtherCall;
use crate::member_fault::{MemberFault, rename};

/// The kinds of faults; members by their ranks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TeamFault {
    /// An application aborts the team.
    Abort { member: u32 },
    /// An application aborts the team, and its process ends.
    Drop { member: u32 },
    /// An application leaves the team before the others.
    Leave { member: u32 },
    /// A member's next call is another than that of the others.
    Differ { member: u32, by: OtherCall },
    /// An application waits for its operation no longer.
    TimeOut { member: u32 },
    /// A fault of members and of what connects them.
    #[serde(untagged)]
    Member(MemberFault),
}

impl TeamFault {
    /// Names of the kinds, in the order of [`TeamFault::kind`].
    pub const KINDS: [&'static str; 11] = {
        let [a, b, c, d, e, f] = MemberFault::KINDS;
        [a, b, c, d, e, f, "abort", "drop", "leaving", "other call", "timeout"]
    };

    /// Returns the index of its kind.
    pub fn kind(&self) -> usize {
        let own = match self {
            Self::Member(fault) => return fault.kind(),
            Self::Abort { .. } => 0,
            Self::Drop { .. } => 1,
            Self::Leave { .. } => 2,
            Self::Differ { .. } => 3,
            Self::TimeOut { .. } => 4,
        };
        MemberFault::KINDS.len() + own
    }

    /// Returns how long it delays something; `u64::MAX` for ever, 0 if it does not.
    pub fn holds_ns(&self) -> u64 {
        if let Self::Member(fault) = self { fault.holds_ns() } else { 0 }
    }

    /// Returns every member that it names.
    pub fn members(&self) -> Vec<u32> {
        match self {
            Self::Member(fault) => fault.members(),
            Self::Abort { member }
            | Self::Drop { member }
            | Self::Leave { member }
            | Self::Differ { member, .. }
            | Self::TimeOut { member } => vec![*member],
        }
    }

    /// Returns whether it separates two members: one is stopped, or nothing passes between them.
    pub(super) fn separates(&self, one: u32, other: u32) -> bool {
        matches!(self, Self::Member(fault) if fault.separates(one, other))
    }

    /// Gives other members a member's rank. Returns `false` if that leaves nothing of the fault.
    pub(super) fn without(&mut self, rank: u32) -> bool {
        match self {
            Self::Member(fault) => fault.without(rank),
            Self::Abort { member }
            | Self::Drop { member }
            | Self::Leave { member }
            | Self::Differ { member, .. }
            | Self::TimeOut { member } => rename(member, rank),
        }
    }
}
