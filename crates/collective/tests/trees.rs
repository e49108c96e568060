//! The trees: each member once, both ends agree, the number of steps, and the order of folds.

use std::ops::Range;

use collective::{ALL_PAIRS_MAX, BroadcastTree, PartTree, ReductionTree, links};
use proptest::prelude::*;

fn ceil_log2(members: u32) -> u32 {
    members.next_power_of_two().ilog2()
}

fn check_broadcast(members: u32, root: u32) {
    let tree = BroadcastTree::new(members, root);
    assert_eq!(tree.rounds(), ceil_log2(members));
    let mut reached = vec![false; members as usize];
    reached[root as usize] = true;
    assert_eq!((tree.parent(root), tree.round(root)), (None, None));
    for rank in 0..members {
        let rounds: Vec<_> = tree.children(rank).map(|child| tree.round(child).unwrap()).collect();
        assert!(rounds.windows(2).all(|pair| pair[0] < pair[1]), "{rank}: one child in a round");
        let own = tree.round(rank);
        assert!(
            rounds.iter().all(|&round| own.is_none_or(|own| own < round)),
            "{rank}: sends what it has"
        );
        for child in tree.children(rank) {
            assert_eq!(tree.parent(child), Some(rank));
            assert!(
                !std::mem::replace(&mut reached[child as usize], true),
                "{child} is reached twice"
            );
        }
        let path = tree.path(rank);
        assert_eq!((path[0], path[path.len() - 1]), (root, rank));
        assert!(path.windows(2).all(|pair| tree.parent(pair[1]) == Some(pair[0])));
    }
    assert!(reached.iter().all(|&reached| reached));
}

/// Hands ranges of numbers down the tree; each member has to get its own.
fn check_parts(members: u32, root: u32) {
    let tree = PartTree::new(members, root);
    let mut has: Vec<Range<u32>> = vec![0..0; members as usize];
    has[root as usize] = 0..members;
    let by_number = |number| tree.branch(tree.rank(number));
    for number in 0..members {
        // Parents come first.
        let (rank, branch) = (tree.rank(number), by_number(number));
        assert_eq!((tree.number(rank), branch.subtree.start), (number, number));
        assert_eq!(has[rank as usize], branch.subtree);
        let mut end = branch.subtree.end;
        for child in &branch.children {
            assert_eq!(child.end, end, "all behind go on");
            end = child.start;
            let (parent, round) = by_number(child.start).parent.unwrap();
            assert_eq!(parent, number);
            assert!(round < ceil_log2(members) && branch.parent.is_none_or(|(_, own)| own < round));
            has[tree.rank(child.start) as usize] = child.clone();
        }
        assert_eq!(end, number + 1);
    }
    let direct = PartTree::direct(members, root).branch(root);
    assert_eq!(direct.children.len() as u32, members - 1);
}

/// Folds names of ranks along the tree; what reaches rank 0 has to be in order.
fn check_reduction(members: u32, degree: u32) {
    let tree = ReductionTree::new(members, degree);
    let mut folded: Vec<Vec<u32>> = (0..members).map(|rank| vec![rank]).collect();
    for step in 0..tree.steps() {
        let mut senders = 0;
        let mut most = 0;
        for rank in 0..members {
            let children: Vec<u32> =
                tree.children(rank).filter(|&(at, _)| at == step).map(|(_, child)| child).collect();
            assert!(children.len() <= degree as usize);
            most = most.max(children.len() as u32);
            for child in children {
                assert_eq!((tree.parent(child), tree.step(child)), (Some(rank), Some(step)));
                assert_eq!(folded[child as usize], tree.subtree(child).collect::<Vec<_>>());
                let contribution = std::mem::take(&mut folded[child as usize]);
                folded[rank as usize].extend(contribution);
                senders += 1;
            }
        }
        assert!(senders > 0, "step {step} does something");
        assert_eq!(tree.senders(step), most);
    }
    assert_eq!(tree.senders(tree.steps()), 0);
    assert_eq!(folded[0], (0..members).collect::<Vec<_>>());
    assert!(folded[1..].iter().all(Vec::is_empty), "a member kept its contribution");
    assert_eq!((tree.parent(0), tree.step(0)), (None, None));
}

#[test]
fn every_broadcast_reaches_each_member_once() {
    for members in 1..=64 {
        (0..members).for_each(|root| check_broadcast(members, root));
    }
}

#[test]
fn every_scatter_gives_each_member_its_part() {
    for members in 1..=64 {
        (0..members).for_each(|root| check_parts(members, root));
    }
}

#[test]
fn every_reduction_folds_each_member_once_in_order() {
    for members in 1..=64 {
        (1..members.max(2)).for_each(|degree| check_reduction(members, degree));
    }
}

/// The paper's example: 32 members, degree 3 (its Fig. 4).
#[test]
fn last_step_may_have_fewer_senders() {
    let tree = ReductionTree::new(32, 3);
    let children: Vec<_> = tree.children(0).collect();
    assert_eq!(children, [(0, 1), (0, 2), (0, 3), (1, 4), (1, 8), (1, 12), (2, 16)]);
    assert_eq!((tree.steps(), tree.parent(21), tree.parent(28)), (3, Some(20), Some(16)));
}

fn check_links(members: u32, degrees: &[u32], root: u32) {
    let all: Vec<Vec<u32>> = (0..members).map(|rank| links(members, rank, degrees)).collect();
    let linked = |one: u32, other: u32| all[one as usize].binary_search(&other).is_ok();
    let tree = BroadcastTree::new(members, root);
    for rank in 0..members {
        assert!(!linked(rank, rank));
        assert!(
            all[rank as usize].iter().all(|&other| linked(other, rank)),
            "both ends have the link"
        );
        assert!(tree.children(rank).all(|child| linked(rank, child)));
        let parts = PartTree::new(members, root);
        let children = parts.branch(rank).children;
        assert!(children.iter().all(|child| linked(rank, parts.rank(child.start))));
        for &degree in degrees {
            let mut children = ReductionTree::new(members, degree).children(rank);
            assert!(children.all(|(_, child)| linked(rank, child)));
        }
    }
}

#[test]
fn trees_use_links_only() {
    for members in (1..=80).chain([100, 257, 1000]) {
        check_links(members, &[1, 3], members / 3);
    }
    assert_eq!(links(ALL_PAIRS_MAX, 3, &[]).len() as u32, ALL_PAIRS_MAX - 1);
    // Few links in a large team: 2 log2 members, those with whom it exchanges, and those of the trees.
    assert!(links(1000, 500, &[1, 3]).len() <= 2 * 10 + 9 + 8);
}

proptest! {
    #[test]
    fn large_teams(members in 65_u32..3000, seed in any::<u32>(), degree in 1_u32..40) {
        check_broadcast(members, seed % members);
        check_parts(members, seed % members);
        check_reduction(members, degree);
        check_links(members.min(400), &[degree], seed % members.min(400));
    }
}
