//! Faults between two ends.

use serde::{Deserialize, Serialize};

/// A fault, and when it happens.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlannedWireFault {
    /// When it happens, in virtual time.
    pub at_ns: u64,
    /// What happens.
    pub what: WireFault,
}

/// What can happen. Connections, their streams and the two ends have numbers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum WireFault {
    /// A stream is reset.
    Reset { connection: usize, stream: usize },
    /// What is sent arrives later, in order: on one stream only, from one end only, for a time only, or without these on all, from
    /// both, for ever.
    Stall { connection: usize, stream: Option<usize>, from: Option<usize>, for_ns: Option<u64> },
    /// A bit, from 0 to 7, of a byte that is on its way from an end changes, or of the next one; `at`: which byte, modulo how many
    /// are on the way.
    Alter { connection: usize, stream: usize, from: usize, at: usize, bit: u8 },
    /// The program of an end does not run, while its network goes on.
    Pause { end: usize, for_ns: u64 },
    /// The process of an end dies.
    Kill { end: usize },
    /// The owner of an end finds out that the peer has failed.
    BreakOff { end: usize, connection: usize },
}

impl WireFault {
    /// The names of all kinds.
    pub const KINDS: [&'static str; 6] = ["reset", "stall", "alter", "pause", "kill", "break off"];

    /// Returns the index of its kind.
    pub fn kind(&self) -> usize {
        match self {
            Self::Reset { .. } => 0,
            Self::Stall { .. } => 1,
            Self::Alter { .. } => 2,
            Self::Pause { .. } => 3,
            Self::Kill { .. } => 4,
            Self::BreakOff { .. } => 5,
        }
    }

    /// Returns for how long it lasts; 0 if it is over at once, or for ever.
    pub(super) fn holds_ns(&self) -> u64 {
        match self {
            Self::Stall { for_ns, .. } => for_ns.unwrap_or(0),
            Self::Pause { for_ns, .. } => *for_ns,
            _ => 0,
        }
    }

    /// Returns the connection that it concerns; `None` for all.
    pub(super) fn connection(&self) -> Option<usize> {
        match self {
            Self::Reset { connection, .. }
            | Self::Stall { connection, .. }
            | Self::Alter { connection, .. }
            | Self::BreakOff { connection, .. } => Some(*connection),
            Self::Pause { .. } | Self::Kill { .. } => None,
        }
    }

    /// Changes it to what it is without a connection. Returns false if it does not happen then.
    pub(super) fn without(&mut self, removed: usize) -> bool {
        match self {
            Self::Reset { connection, .. }
            | Self::Stall { connection, .. }
            | Self::Alter { connection, .. }
            | Self::BreakOff { connection, .. } => {
                let stays = *connection != removed;
                *connection -= usize::from(*connection > removed);
                stays
            }
            Self::Pause { .. } | Self::Kill { .. } => true,
        }
    }

    /// Checks that it concerns something; `streams`: how many each connection has.
    pub(super) fn check(&self, streams: &[usize]) -> Result<(), String> {
        let stream = match *self {
            Self::Reset { stream, .. } | Self::Alter { stream, .. } => stream,
            Self::Stall { stream, .. } => stream.unwrap_or(0),
            _ => 0,
        };
        let end = match *self {
            Self::Alter { from, .. } => from,
            Self::Stall { from, .. } => from.unwrap_or(0),
            Self::Pause { end, .. } | Self::Kill { end } | Self::BreakOff { end, .. } => end,
            Self::Reset { .. } => 0,
        };
        let bit = if let Self::Alter { bit, .. } = self { *bit } else { 0 };
        let is_known = self
            .connection()
            .is_none_or(|it| streams.get(it).is_some_and(|&streams| stream < streams));
        if is_known && end < 2 && bit < 8 { Ok(()) } else { Err(format!("{self:?} names nothing")) }
    }
}
