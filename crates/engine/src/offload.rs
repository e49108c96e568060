//! Groups whose blocks the network relays by itself.

use std::fmt;

use crate::settings::GroupSettings;

/// How many operations an offloading member keeps posted in each direction. The message's whole
/// graph is posted where it fits; what is beyond follows as operations complete, which then takes
/// the member's program again. A network card's queues have some thousand places.
const OFFLOADED_OPEN_MAX: u32 = 4_096;

/// Whether the network relays a group's blocks by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Offload {
    /// Nobody asked for it ([`GroupSettings::offload`]).
    NotAsked,
    /// It does.
    Used,
    /// It was asked for, but this member's program relays; with the reason.
    Unavailable(&'static str),
}

impl Offload {
    /// What a group gets on a network that can or cannot offload.
    pub fn of(settings: &GroupSettings, can_offload: bool) -> Self {
        match (settings.offload, can_offload) {
            (false, _) => Self::NotAsked,
            (true, true) => Self::Used,
            (true, false) => Self::Unavailable(
                "this fabric cannot start sends by itself; the fabrics sockets (in software, to try \
                 it) and cxi (in hardware) can",
            ),
        }
    }

    /// Whether blocks are relayed by the network.
    pub fn is_used(self) -> bool {
        self == Self::Used
    }

    /// How many operations the group's relay may have open each way, if it offloads.
    pub(crate) fn limit(self) -> Option<u32> {
        self.is_used().then_some(OFFLOADED_OPEN_MAX)
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not asked for"),
            Self::Used => f.write_str("used"),
            Self::Unavailable(reason) => write!(f, "unavailable: {reason}"),
        }
    }
}
