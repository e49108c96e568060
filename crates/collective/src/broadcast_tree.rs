//! The tree of a broadcast from any root.

use crate::distances::Distances;

/// The tree along which a message goes from the root to all other members, in ceil(log2 members) rounds.
///
/// Members are numbered from the root: v = (rank - root) mod members. In round j those with v < `Skip[j]` send to
/// v + `Skip[j]`, as far as that is below `Skip[j + 1]`. Since `Skip[j + 1]` is at most 2 `Skip[j]`, all members below
/// `Skip[j + 1]` then have the message. For a power of two it is the binomial tree (the paper, section 4.1), and for any
/// number of members it uses the same links for every root.
///
/// Cost: members - 1 writes of the message, at most ceil(log2 members) by one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BroadcastTree {
    root: u32,
    members: u32,
    distances: Distances,
}

impl BroadcastTree {
    /// Makes the tree of a team.
    ///
    /// # Panics
    /// `root` is not a rank, or there are more than [`crate::MEMBERS_MAX`] members.
    pub fn new(members: u32, root: u32) -> Self {
        assert!(root < members, "rank {root} of {members} members");
        Self { root, members, distances: Distances::new(members) }
    }

    /// Returns the number of rounds after which all members have the message.
    pub fn rounds(&self) -> u32 {
        self.distances.rounds()
    }

    fn number(&self, rank: u32) -> u32 {
        (rank + self.members - self.root) % self.members
    }

    fn rank(&self, number: u32) -> u32 {
        (self.root + number) % self.members
    }

    /// Returns the round in which a member receives; `None` for the root.
    pub fn round(&self, rank: u32) -> Option<u32> {
        let number = self.number(rank);
        let first = self.distances.as_slice().partition_point(|&distance| distance <= number);
        (number > 0).then(|| first as u32 - 1)
    }

    /// Returns the member from which a member receives; `None` for the root.
    pub fn parent(&self, rank: u32) -> Option<u32> {
        let round = self.round(rank)?;
        Some(self.rank(self.number(rank) - self.distances.as_slice()[round as usize]))
    }

    /// Returns the members to which a member sends, in order: by round, so that the largest subtree comes first.
    pub fn children(&self, rank: u32) -> impl Iterator<Item = u32> + '_ {
        let number = self.number(rank);
        self.distances
            .as_slice()
            .windows(2)
            .filter(move |pair| number < pair[0] && number + pair[0] < pair[1])
            .map(move |pair| self.rank(number + pair[0]))
    }

    /// Returns the members on the way from the root to a member: the root first, the member last.
    pub fn path(&self, to: u32) -> Vec<u32> {
        let mut path = vec![to];
        let mut at = to;
        while let Some(parent) = self.parent(at) {
            path.push(parent);
            at = parent;
        }
        path.reverse();
        path
    }
}
