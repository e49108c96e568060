//! Why a schedule cannot be built.

use core::fmt;

use crate::{algorithm::Algorithm, limits::MAX_MEMBERS};

/// Why a [`Schedule`](crate::Schedule) cannot be built. Queries on a built schedule never fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A group has 1 to [`MAX_MEMBERS`] members.
    Members {
        /// How many were asked for.
        members: usize,
    },
    /// The root is not a rank of the group.
    Root {
        /// The rank asked for.
        root: u32,
        /// How many members there are: ranks go from 0 to one less.
        members: u32,
    },
    /// The algorithm needs to know which member is in which rack.
    RacksNeeded {
        /// The algorithm asked for.
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
                "{algorithm} needs to know which member is in which rack: give the racks, or choose {}",
                Algorithm::BinomialPipeline
            ),
        }
    }
}

impl core::error::Error for ScheduleError {}
