//! Which parts of the contributions go where when they are halved.

use crate::distances::Distances;

/// The rounds of an all-reduce on the circulant graph (Träff's reduce-scatter and all-gather, for every number of members):
/// contributions are cut into as many chunks as there are members. In the first half a member sends about half of the chunks that
/// it has to do with, in each round to another member, and folds as many into those that it keeps, until it has folded its own
/// chunk of all members. In the second half the same edges carry results back.
///
/// With q = ceil(log2 n) and the distances `Skip` of the graph: in a round of distance s = `Skip[i]`, where s' = `Skip[i + 1]`,
/// member r sends chunks r + s .. r + s' to r + s, and receives r .. r + s' - s of r - s; in the second half it sends
/// r .. r + s' - s to r - s, and receives r + s .. r + s' of r + s. All are mod n.
///
/// Cost for n members and m bytes: 2 q rounds, in each of which every member sends once; 2 m (n-1) / n bytes sent by each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Halving {
    members: u32,
    distances: Distances,
}

/// Chunks that follow one another; behind the last one comes chunk 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunks {
    /// The first.
    pub first: u32,
    /// How many; at least 1.
    pub count: u32,
}

impl Halving {
    /// Makes the rounds of a team.
    ///
    /// # Panics
    /// There are 0 members or more than [`crate::MEMBERS_MAX`].
    pub fn new(members: u32) -> Self {
        Self { members, distances: Distances::new(members) }
    }

    /// Returns the number of rounds, of which the second half is an all-gather.
    pub fn rounds(&self) -> u32 {
        2 * self.distances.rounds()
    }

    /// Returns whether what is received in a round is folded: in the first half.
    pub fn folds(&self, round: u32) -> bool {
        round < self.distances.rounds()
    }

    /// Returns how far apart the members are that meet in a round.
    pub fn distance(&self, round: u32) -> u32 {
        self.distances.as_slice()[self.index(round)]
    }

    /// Returns how many chunks a member sends in a round.
    pub fn chunks(&self, round: u32) -> u32 {
        let index = self.index(round);
        self.distances.as_slice()[index + 1] - self.distances.as_slice()[index]
    }

    fn index(&self, round: u32) -> usize {
        let half = self.distances.rounds();
        let index = if self.folds(round) { half - 1 - round } else { round - half };
        index as usize
    }

    /// Returns the member to which a member sends in a round.
    pub fn to(&self, rank: u32, round: u32) -> u32 {
        if self.folds(round) { self.ahead(rank, round) } else { self.behind(rank, round) }
    }

    /// Returns the member of which a member receives in a round.
    pub fn from(&self, rank: u32, round: u32) -> u32 {
        if self.folds(round) { self.behind(rank, round) } else { self.ahead(rank, round) }
    }

    /// Returns the chunks that a member sends in a round.
    pub fn sent(&self, rank: u32, round: u32) -> Chunks {
        self.of(rank, round, self.folds(round))
    }

    /// Returns the chunks that a member receives in a round: what the other one sends.
    pub fn received(&self, rank: u32, round: u32) -> Chunks {
        self.of(rank, round, !self.folds(round))
    }

    fn of(&self, rank: u32, round: u32, is_ahead: bool) -> Chunks {
        let first = if is_ahead { self.ahead(rank, round) } else { rank };
        Chunks { first, count: self.chunks(round) }
    }

    fn ahead(&self, rank: u32, round: u32) -> u32 {
        (rank + self.distance(round)) % self.members
    }

    fn behind(&self, rank: u32, round: u32) -> u32 {
        (rank + self.members - self.distance(round)) % self.members
    }
}
