//! Which members of a team are linked.

use std::collections::BTreeSet;

use crate::{Partners, distances::Distances, reduction_tree::ReductionTree};

/// Up to this many members, every pair is linked, so that any degree can be chosen.
pub const ALL_PAIRS_MAX: u32 = 32;

/// Returns the members to which a member is linked, in ascending order: in a team of at most [`ALL_PAIRS_MAX`] all others,
/// else those at the distances of the circulant graph, which serve broadcasts from any root, those with which it exchanges, and its
/// neighbours in the reduction trees of these degrees.
pub fn links(members: u32, rank: u32, degrees: &[u32]) -> Vec<u32> {
    if members <= ALL_PAIRS_MAX {
        return (0..members).filter(|&other| other != rank).collect();
    }
    let mut linked = BTreeSet::new();
    for &distance in Distances::new(members).as_slice() {
        linked.extend([(rank + distance) % members, (rank + members - distance) % members]);
    }
    let partners = Partners::new(members, true);
    linked.extend((0..partners.steps()).flat_map(|step| {
        let meeting = partners.at(rank, step);
        [meeting.to, meeting.from].into_iter().flatten()
    }));
    for &degree in degrees {
        let tree = ReductionTree::new(members, degree);
        linked.extend(tree.parent(rank));
        linked.extend(tree.children(rank).map(|(_, child)| child));
    }
    linked.remove(&rank);
    linked.into_iter().collect()
}
