//! The tree of a scatter or a gather.

use std::ops::Range;

use crate::distances::Distances;

/// The tree along which the parts of the root's message go to the other members, in ceil(log2 members) rounds; against its direction,
/// the parts of all go to the root.
///
/// Members are numbered from the root: v = (rank - root) mod members. The root has the parts of all. In round j, with i = ceil(log2
/// members) - 1 - j, a member that has the parts of more than `Skip[i]` members, from its own number on, keeps the first
/// `Skip[i]` and sends the others to the member whose part is the first of these. So every subtree is a range of numbers, and no
/// part is sent to a member twice. For a power of two it is a binomial tree, and for any number of members it uses the links of
/// [`crate::BroadcastTree`].
///
/// Cost: the root sends members - 1 parts, as it has to; a part takes ceil(log2 members) hops at most.
///
/// [`PartTree::direct`] has no member between the root and another: one hop, and a link from the root to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartTree {
    members: u32,
    root: u32,
    distances: Distances,
    is_direct: bool,
}

/// A member's place in the tree; members by number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Branch {
    /// The number of the member from which its parts come, with the round; `None` for the root.
    pub parent: Option<(u32, u32)>,
    /// The numbers of those whose parts it has, itself first.
    pub subtree: Range<u32>,
    /// The subtrees of those to which it sends parts, in the order of rounds, which is against that of numbers.
    pub children: Vec<Range<u32>>,
}

impl PartTree {
    /// Makes the tree of a team.
    ///
    /// # Panics
    /// `root` is not a rank, or there are more than [`crate::MEMBERS_MAX`] members.
    pub fn new(members: u32, root: u32) -> Self {
        assert!(root < members, "rank {root} of {members} members");
        Self { members, root, distances: Distances::new(members), is_direct: false }
    }

    /// Makes the tree in which every member has the root as its parent.
    ///
    /// # Panics
    /// As [`PartTree::new`].
    pub fn direct(members: u32, root: u32) -> Self {
        Self { is_direct: true, ..Self::new(members, root) }
    }

    /// Returns a member's number.
    pub fn number(&self, rank: u32) -> u32 {
        (rank + self.members - self.root) % self.members
    }

    /// Returns the rank of a number.
    pub fn rank(&self, number: u32) -> u32 {
        (self.root + number) % self.members
    }

    /// Returns a member's place in the tree.
    pub fn branch(&self, rank: u32) -> Branch {
        let number = self.number(rank);
        let all = Branch { parent: None, subtree: 0..self.members, children: Vec::new() };
        if self.is_direct {
            return match number {
                0 => Branch { children: (1..self.members).map(|it| it..it + 1).collect(), ..all },
                _ => Branch { parent: Some((0, number - 1)), subtree: number..number + 1, ..all },
            };
        }
        let (mut branch, mut left) = (all, 0..self.members);
        let (_, distances) = self.distances.as_slice().split_last().expect("one at least");
        for (round, distance) in (0..).zip(distances.iter().rev()) {
            let middle = left.start + distance;
            if middle >= left.end {
                continue;
            }
            if number >= middle {
                branch.parent = Some((left.start, round));
                branch.subtree = middle..left.end;
                left.start = middle;
            } else {
                if number == left.start {
                    branch.children.push(middle..left.end);
                }
                left.end = middle;
            }
        }
        branch
    }
}
