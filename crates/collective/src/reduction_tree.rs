//! The degree-k tree of a reduction.

/// The tree along which members' contributions come together at rank 0, with at most k senders to a member in each step
/// (the paper, section 4.2).
///
/// With r = k + 1: in step j the members whose rank is a multiple of r^(j+1) receive from rank + m r^j, m = 1..k, as far as
/// these exist; the senders have sent all that they have. Every subtree is a range of ranks, and children come in ascending
/// order, so that folding them in that order is right for functions that do not commute. The paper has powers of two
/// only; this works for any number of members and any degree.
///
/// Cost: members - 1 writes; ceil(log members / log r) steps; at most k writes to one member in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReductionTree {
    members: u32,
    degree: u32,
}

impl ReductionTree {
    /// Makes the tree of degree `degree` for a team.
    ///
    /// # Panics
    /// Either is 0.
    pub fn new(members: u32, degree: u32) -> Self {
        assert!(members > 0 && degree > 0, "degree {degree}, {members} members");
        Self { members, degree }
    }

    fn radix(&self) -> u64 {
        u64::from(self.degree) + 1
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> u32 {
        let mut reached = 1;
        let mut steps = 0;
        while reached < u64::from(self.members) {
            reached *= self.radix();
            steps += 1;
        }
        steps
    }

    /// Returns the number of members that send to rank 0 in a step: the most that send to any one then. 0 after the last
    /// step.
    pub fn senders(&self, step: u32) -> u32 {
        let unit = self.radix().checked_pow(step).unwrap_or(u64::MAX);
        (u64::from(self.members - 1) / unit).min(self.degree.into()) as u32
    }

    /// Returns the step in which a member sends what it has; `None` for rank 0, which has the result.
    pub fn step(&self, rank: u32) -> Option<u32> {
        let mut left = u64::from(rank);
        let mut step = 0;
        while left > 0 && left.is_multiple_of(self.radix()) {
            left /= self.radix();
            step += 1;
        }
        (rank > 0).then_some(step)
    }

    /// Returns the member to which a member sends; `None` for rank 0.
    pub fn parent(&self, rank: u32) -> Option<u32> {
        let unit = self.radix().pow(self.step(rank)? + 1);
        Some((u64::from(rank) / unit * unit) as u32)
    }

    /// Returns the members from which a member receives, with the step, in ascending order of both.
    pub fn children(&self, rank: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (members, radix) = (u64::from(self.members), self.radix());
        let last = self.step(rank).unwrap_or_else(|| self.steps());
        (0..last).flat_map(move |step| {
            let unit = radix.pow(step);
            let child = move |index| u64::from(rank) + index * unit;
            (1..radix)
                .map(child)
                .take_while(move |&child| child < members)
                .map(move |child| (step, child as u32))
        })
    }

    /// Returns the ranks whose contributions a member sends, itself included.
    pub fn subtree(&self, rank: u32) -> std::ops::Range<u32> {
        let end = match self.step(rank) {
            Some(step) => u64::from(rank) + self.radix().pow(step),
            None => u64::from(self.members),
        };
        rank..end.min(u64::from(self.members)) as u32
    }
}
