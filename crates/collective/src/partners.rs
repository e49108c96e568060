//! Who exchanges with whom.

use crate::{Call, distances::Distances};

/// The pairs of an exchange, for any number of members.
///
/// What is folded: the largest power of two of *vertices* exchange, in step j with the vertex at XOR 2^j, all that they have folded.
/// A vertex is a member, or two members of adjacent ranks: then the higher one writes to the lower one in a step before, and gets
/// the result in a step behind. Vertices are in the order of ranks, so that what a member has folded is always of contiguous
/// ranks: associative functions need not commute, and all members have the same bits.
///
/// A barrier, which folds nothing: in step j a member writes to the one that is `Skip[j]` ahead, the distances of the circulant
/// graph, and waits for the one that is as far behind. It then knows of the `Skip[j + 1]` members up to itself.
///
/// Cost: log2 n steps for powers of two, otherwise floor(log2 n) + 2, of a barrier ceil(log2 n); at most n writes in each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partners {
    members: u32,
    folds: bool,
}

/// What a member does in one step of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// The member to which it writes all that it has; before it takes anything in this step.
    pub to: Option<u32>,
    /// The member that writes to it.
    pub from: Option<u32>,
    /// What that one writes is folded; otherwise it is the result.
    pub folds: bool,
}

impl Partners {
    /// Returns the pairs of a team, which fold something, or only wait for each other.
    ///
    /// # Panics
    /// There are 0 members or more than [`crate::MEMBERS_MAX`].
    pub fn new(members: u32, folds: bool) -> Self {
        assert!((1..=crate::MEMBERS_MAX).contains(&members), "{members} members");
        Self { members, folds }
    }

    /// Returns the pairs of a call.
    pub(crate) fn of(call: &Call, members: u32) -> Self {
        Self::new(members, !call.kind.is_barrier())
    }

    /// Returns how many vertices have two members.
    fn twins(&self) -> u32 {
        self.members - (1 << self.members.ilog2())
    }

    /// Returns the number of steps after which all members have the result.
    pub fn steps(&self) -> u32 {
        match (self.folds, self.twins()) {
            (false, _) => Distances::new(self.members).rounds(),
            (true, 0) => self.members.ilog2(),
            (true, _) => self.members.ilog2() + 2,
        }
    }

    /// Returns the number of writes of all members.
    pub fn writes(&self) -> u64 {
        let (members, twins) = (u64::from(self.members), u64::from(self.twins()));
        match self.folds {
            false => members * u64::from(self.steps()),
            true => (members - twins) * u64::from(self.members.ilog2()) + 2 * twins,
        }
    }

    /// Returns what a member does in a step.
    pub fn at(&self, rank: u32, step: u32) -> Meeting {
        if !self.folds {
            let distance = Distances::new(self.members).as_slice()[step as usize];
            let to = (rank + distance) % self.members;
            let from = (rank + self.members - distance) % self.members;
            return Meeting { to: Some(to), from: Some(from), folds: true };
        }
        let twins = self.twins();
        let first = u32::from(twins > 0);
        let (is_before, is_behind) = (step < first, step == first + self.members.ilog2());
        let is_twin = rank < 2 * twins;
        let is_higher = is_twin && rank % 2 == 1;
        if is_before || is_behind {
            let twin = is_twin.then_some(rank ^ 1);
            let writes = is_higher == is_before;
            let (to, from) = (twin.filter(|_| writes), twin.filter(|_| !writes));
            return Meeting { to, from, folds: is_before };
        }
        let vertex = if is_twin { rank / 2 } else { rank - twins };
        let other = vertex ^ (1 << (step - first));
        let partner = if other < twins { 2 * other } else { other + twins };
        let partner = (!is_higher).then_some(partner);
        Meeting { to: partner, from: partner, folds: true }
    }
}
