//! Which part of the contributions goes where in a ring all-reduce.

/// The rounds of an all-reduce on a ring: reduce-scatter, then all-gather. Contributions are cut into as many chunks as there are
/// members. Chunk c starts at member c + 1, is folded at each member up to c, and goes on from there as the result.
///
/// Cost for n members and m bytes: 2 (n-1) rounds, in each of which every member sends a chunk to the next rank; 2 m (n-1) / n
/// bytes sent by each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingRounds {
    members: u32,
}

impl RingRounds {
    /// Makes the rounds of a team.
    ///
    /// # Panics
    /// There are 0 members or more than [`crate::MEMBERS_MAX`].
    pub fn new(members: u32) -> Self {
        assert!((1..=crate::MEMBERS_MAX).contains(&members), "{members} members");
        Self { members }
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> u32 {
        2 * (self.members - 1)
    }

    /// Returns whether what is received in a round is folded: in the first half.
    pub fn folds(&self, round: u32) -> bool {
        round < self.members - 1
    }

    /// Returns the chunk that a member sends in a round.
    pub fn sent(&self, rank: u32, round: u32) -> u32 {
        (rank + 2 * self.members - 1 - round % self.members) % self.members
    }

    /// Returns the chunk that a member receives in a round: what the member before it sends.
    pub fn received(&self, rank: u32, round: u32) -> u32 {
        (self.sent(rank, round) + self.members - 1) % self.members
    }
}
