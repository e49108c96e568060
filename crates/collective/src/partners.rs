//! Who exchanges with whom.

/// The pairs of an exchange: in step j a member and the one at rank XOR 2^j write to each other what they have folded.
///
/// Cost: n log2 n writes; log2 n steps, in each of which a member writes once and is written to once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Partners {
    members: u32,
}

impl Partners {
    /// Returns the pairs of a team; `None` where the number of members is no power of two.
    pub fn new(members: u32) -> Option<Self> {
        members.is_power_of_two().then_some(Self { members })
    }

    /// Returns the number of steps after which all members have the result.
    pub fn steps(&self) -> u32 {
        self.members.ilog2()
    }

    /// Returns the member with which a member exchanges in a step.
    pub fn partner(&self, rank: u32, step: u32) -> u32 {
        rank ^ (1 << step)
    }
}
