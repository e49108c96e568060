//! Errors from building a schedule.

use core::fmt;

use crate::{algorithm::Algorithm, limits::MAX_MEMBERS};

/// Why a [`Schedule`](crate::Schedule) cannot be built. Queries on a built schedule never fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The number of members is not in 1 ..= [`MAX_MEMBERS`].
    Members {
        /// The number of members.
        members: usize,
    },
    /// The root is not a rank of the group.
    Root {
        /// The given rank.
        root: u32,
        /// The number of members; ranks are 0 to `members - 1`.
        members: u32,
    },
    /// The algorithm requires the rack of each member.
    RacksNeeded {
        /// The given algorithm.
        algorithm: Algorithm,
    },
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Members { members } => {
                write!(f, "a group has 1 to {MAX_MEMBERS} members, not {members}")
            }
            Self::Root { root, members } => {
                write!(
                    f,
                    "root {root} is not a rank: with {members} members, ranks are 0 to {}",
                    members - 1
                )
            }
            Self::RacksNeeded { algorithm } => write!(
                f,
                "{algorithm} requires the rack of each member: give the racks, or choose {}",
                Algorithm::BinomialPipeline
            ),
        }
    }
}

impl core::error::Error for ScheduleError {}
