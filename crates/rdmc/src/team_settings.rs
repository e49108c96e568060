//! Settings of a team.

use std::{net::SocketAddr, time::Duration};

use team::WriteEnds;

/// The settings of a team at one member. All fields except `rank`, `ends` and `connect_timeout` must be the same at all
/// members; [`crate::Context::create_team`] compares them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TeamSettings {
    /// Identifies the team; unique among the groups and teams of its members' contexts.
    pub number: u64,
    /// The address of each member's context as the other members reach it, by rank; 1 to 65,536 members.
    pub members: Vec<SocketAddr>,
    /// The rank of this member.
    pub rank: u32,
    /// The number of slots in each ring of a link; 1 to 4,096. A member can be this many slots ahead of another.
    pub slots: u32,
    /// Length in bytes of a slot, including a header of 48 bytes; 64 to 1 MiB. Each link takes
    /// two rings of memory at either end.
    pub slot_bytes: u32,
    /// The degrees of reductions, as pairs (bytes, degree) in ascending order of bytes: for contributions of
    /// at most `bytes`, `degree` members may write to one member in a step. Longer contributions have degree 1.
    pub degrees: Vec<(u64, u32)>,
    /// The longest all-reduces and barriers, in bytes, that members exchange in pairs rather than through
    /// a root. Applies if the number of members is a power of two; two members exchange all messages shorter
    /// than `long_bytes`.
    pub exchange_bytes: u64,
    /// The length in bytes from which messages go from memory to memory, in blocks along a pipeline or a
    /// ring, rather than through slots.
    pub long_bytes: u64,
    /// Length in bytes of the blocks of such messages; 1 to 1 GiB.
    pub block_bytes: u32,
    /// How this member detects that a slot in its memory was written.
    pub ends: WriteEnds,
    /// The time limit for creating the team; `None`, the default: [`crate::ContextSettings::connect_timeout`].
    pub connect_timeout: Option<Duration>,
}

impl TeamSettings {
    /// Returns the settings for member `rank` of a team of `members`, with defaults for
    /// everything else: 16 slots for 32 KiB each, degree 3 for up to 1 KiB, exchange for up to
    /// 16 KiB, and blocks of 128 KiB for messages of 128 KiB or more.
    pub fn new(number: u64, members: Vec<SocketAddr>, rank: u32) -> Self {
        let defaults = team::TeamSettings::new(number, 1, rank);
        Self {
            number,
            members,
            rank,
            slots: defaults.core.slots,
            slot_bytes: defaults.core.slot_bytes,
            degrees: defaults.core.degrees,
            exchange_bytes: defaults.core.exchange_bytes,
            long_bytes: defaults.core.long_bytes,
            block_bytes: defaults.core.block_bytes,
            ends: defaults.ends,
            connect_timeout: None,
        }
    }

    /// Sets [`TeamSettings::slots`].
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// Sets [`TeamSettings::slot_bytes`].
    #[must_use]
    pub fn slot_bytes(mut self, bytes: u32) -> Self {
        self.slot_bytes = bytes;
        self
    }

    /// Sets [`TeamSettings::degrees`].
    #[must_use]
    pub fn degrees(mut self, degrees: Vec<(u64, u32)>) -> Self {
        self.degrees = degrees;
        self
    }

    /// Sets [`TeamSettings::exchange_bytes`].
    #[must_use]
    pub fn exchange_bytes(mut self, bytes: u64) -> Self {
        self.exchange_bytes = bytes;
        self
    }

    /// Sets [`TeamSettings::long_bytes`].
    #[must_use]
    pub fn long_bytes(mut self, bytes: u64) -> Self {
        self.long_bytes = bytes;
        self
    }

    /// Sets [`TeamSettings::block_bytes`].
    #[must_use]
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Sets [`TeamSettings::ends`].
    #[must_use]
    pub fn ends(mut self, ends: WriteEnds) -> Self {
        self.ends = ends;
        self
    }

    /// Sets [`TeamSettings::connect_timeout`].
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// Returns the settings in the form that the crate `team` takes.
    pub(crate) fn made(&self) -> team::TeamSettings {
        let members = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let mut made = team::TeamSettings::new(self.number, members, self.rank);
        (made.core.slots, made.core.slot_bytes, made.ends) =
            (self.slots, self.slot_bytes, self.ends);
        made.core.degrees.clone_from(&self.degrees);
        made.core.exchange_bytes = self.exchange_bytes;
        (made.core.long_bytes, made.core.block_bytes) = (self.long_bytes, self.block_bytes);
        made
    }
}
