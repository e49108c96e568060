//! Where the parts of a scatter or a gather are in a member's memory.

use std::ops::Range;

use crate::{Call, Kind, PartTree, Way, part_tree::Branch, place::Place, settings::Settings};

/// The parts that a member has to do with. The root has those of all, by rank; in a reduce-scatter all members have. Another member
/// has those of its subtree, its own first.
#[derive(Debug)]
pub(crate) struct Parts {
    tree: PartTree,
    pub(crate) branch: Branch,
    members: u32,
    /// The number whose part is first in memory.
    first: u32,
    /// Length of a part.
    bytes: u64,
    has_all: bool,
}

impl Parts {
    pub(crate) fn of(call: &Call, way: Way, settings: &Settings) -> Self {
        let Settings { members, rank, .. } = *settings;
        let tree = match way {
            Way::Direct => PartTree::direct(members, call.root),
            _ => PartTree::new(members, call.root),
        };
        let has_all = call.kind == Kind::ReduceScatter || rank == call.root;
        let first = tree.number(if has_all { 0 } else { rank });
        Self { tree, branch: tree.branch(rank), members, first, bytes: call.bytes, has_all }
    }

    /// Returns the length of the memory in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let parts = if self.has_all { self.members } else { self.branch.subtree.len() as u32 };
        self.bytes.saturating_mul(parts.into())
    }

    /// Returns the rank of the member from which parts come, or to which they go; `None` at the root.
    pub(crate) fn parent(&self) -> Option<u32> {
        self.branch.parent.map(|(number, _)| self.tree.rank(number))
    }

    /// Returns the ranks of those on the other side, with the place of their subtrees' parts: the last place first.
    pub(crate) fn children(&self) -> impl DoubleEndedIterator<Item = (u32, Place)> + '_ {
        let children = self.branch.children.iter();
        children.map(|numbers| (self.tree.rank(numbers.start), self.place(numbers)))
    }

    /// Returns the place of the parts of this member's subtree.
    pub(crate) fn own(&self) -> Place {
        self.place(&self.branch.subtree)
    }

    /// Returns the place of the parts of some numbers. It is divided, at all members alike, where the ranks begin again: there it is
    /// at the root.
    fn place(&self, numbers: &Range<u32>) -> Place {
        let again = self.tree.number(0);
        let again = if again == 0 { numbers.end } else { again.clamp(numbers.start, numbers.end) };
        let range = |numbers: Range<u32>| {
            let index = (numbers.start + self.members - self.first) % self.members;
            let start = u64::from(index) * self.bytes;
            start..start + numbers.len() as u64 * self.bytes
        };
        Place { first: range(numbers.start..again), second: range(again..numbers.end) }
    }
}
