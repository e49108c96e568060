//! Groups whose blocks the network relays by itself.

use std::fmt;

use crate::settings::GroupSettings;

/// How many operations an offloading member keeps posted in each direction. The message's whole
/// graph is posted if it fits; further operations are posted as earlier ones complete, which
/// requires the member's process. The queues of a network card hold some thousand entries.
const OFFLOADED_OPEN_MAX: u32 = 4_096;

/// Whether the network itself relays a group's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Offload {
    /// Not requested ([`GroupSettings::offload`]).
    NotAsked,
    /// The network relays blocks.
    Used,
    /// Requested, but this member's process relays blocks, for this reason.
    Unavailable(&'static str),
}

impl Offload {
    /// Returns the offload of a group on a network that can offload or cannot.
    pub fn of(settings: &GroupSettings, can_offload: bool) -> Self {
        match (settings.offload, can_offload) {
            (false, _) => Self::NotAsked,
            (true, true) => Self::Used,
            (true, false) => Self::Unavailable(
                "this fabric does not support triggered sends; the fabrics cxi (in hardware) and sockets (in \
                 software, for trials) do",
            ),
        }
    }

    /// Returns whether the network relays blocks.
    pub fn is_used(self) -> bool {
        self == Self::Used
    }

    /// Returns how many operations the group's relay may have open in each direction, if it
    /// offloads.
    pub(crate) fn limit(self) -> Option<u32> {
        self.is_used().then_some(OFFLOADED_OPEN_MAX)
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not requested"),
            Self::Used => f.write_str("used"),
            Self::Unavailable(reason) => write!(f, "unavailable: {reason}"),
        }
    }
}
