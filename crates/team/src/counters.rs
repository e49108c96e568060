//! Counters of a team.

/// What a member of a team has done so far. Counts never decrease. Lengths are those of messages and contributions, without what
/// the network adds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Operations that are complete at this member.
    pub operations: u64,
    /// Bytes given to the network for others.
    pub bytes_sent: u64,
    /// Bytes that have come from others.
    pub bytes_received: u64,
}
