//! Pairs of members that could not connect to each other.

use std::collections::{BTreeMap, BTreeSet};

/// Pairs of members that could not connect to each other, though both had all their time. Hosts by index; `None` is the root.
#[derive(Clone, Default, Debug)]
pub(super) struct Pairs(BTreeSet<(usize, Option<usize>)>);

impl Pairs {
    /// A host could not connect to this member. False if that is known, or if it is the same one.
    pub(super) fn add(&mut self, host: usize, member: Option<usize>) -> bool {
        member != Some(host) && self.0.insert(ordered(host, member))
    }

    /// Whether a host could not connect to this member.
    pub(super) fn has(&self, host: usize, member: Option<usize>) -> bool {
        self.0.contains(&ordered(host, member))
    }

    /// Adds these. False if all are known.
    pub(super) fn extend(&mut self, others: &Self) -> bool {
        let before = self.0.len();
        self.0.extend(&others.0);
        self.0.len() > before
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members to which a host could not connect, the root first.
    pub(super) fn with(&self, host: usize) -> Vec<Option<usize>> {
        let other = |&(one, other): &(usize, Option<usize>)| match one == host {
            true => Some(other),
            false => (other == Some(host)).then_some(Some(one)),
        };
        self.0.iter().filter_map(other).collect()
    }

    /// The hosts of all pairs of two hosts that `counts`.
    pub(super) fn hosts(&self, counts: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        ends(&self.among(counts)).collect()
    }

    /// Few hosts without which those that `counts` could all connect to each other: those that could not connect to the root, then again
    /// and again the one with most members left to which it could not connect. Of equal ones the one with most in all pairs, also
    /// of hosts that no longer count; then the last.
    pub(super) fn cover(&self, counts: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let mut left = self.among(counts);
        let mut cover: BTreeSet<usize> =
            left.iter().filter(|(_, other)| other.is_none()).map(|&(host, _)| host).collect();
        let is_left = |cover: &BTreeSet<usize>, &(one, other): &(usize, Option<usize>)| {
            !cover.contains(&one) && other.is_none_or(|other| !cover.contains(&other))
        };
        let all = count(ends(&self.0));
        loop {
            left.retain(|pair| is_left(&cover, pair));
            let most =
                count(ends(&left)).into_iter().max_by_key(|&(host, left)| (left, all[&host]));
            let Some((host, _)) = most else { return cover };
            cover.insert(host);
        }
    }

    fn among(&self, counts: impl Fn(usize) -> bool) -> BTreeSet<(usize, Option<usize>)> {
        let is_left =
            |&&(one, other): &&(usize, Option<usize>)| counts(one) && other.is_none_or(&counts);
        self.0.iter().filter(is_left).copied().collect()
    }
}

/// The one form that a pair has.
fn ordered(host: usize, member: Option<usize>) -> (usize, Option<usize>) {
    match member {
        Some(other) if other < host => (other, Some(host)),
        other => (host, other),
    }
}

/// The hosts of pairs, each as often as it is in one.
fn ends(pairs: &BTreeSet<(usize, Option<usize>)>) -> impl Iterator<Item = usize> {
    pairs.iter().flat_map(|&(one, other)| [Some(one), other]).flatten()
}

fn count(hosts: impl Iterator<Item = usize>) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    hosts.for_each(|host| *counts.entry(host).or_default() += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(usize, Option<usize>)]) -> Pairs {
        let mut all = Pairs::default();
        for &(host, other) in pairs {
            all.add(host, other);
        }
        all
    }

    fn cover(pairs: &Pairs) -> Vec<usize> {
        pairs.cover(|_| true).into_iter().collect()
    }

    #[test]
    fn hosts_that_reach_the_root_alone_cover_all_pairs() {
        // 0, 1 and 2 of ten, each with the neighbours that it has in a group, which report it, too.
        let neighbours = [(0, [1, 2, 9]), (1, [0, 4, 8]), (2, [0, 5, 7])];
        let mut all: Vec<_> =
            neighbours.iter().flat_map(|&(one, all)| all.map(|other| (one, Some(other)))).collect();
        all.extend([(9, Some(0)), (8, Some(1)), (5, Some(2))]);
        let pairs = of(&all);
        assert_eq!(cover(&pairs), [0, 1, 2]);
        assert_eq!(pairs.with(1), [Some(0), Some(4), Some(8)]);
        assert_eq!(pairs.with(9), [Some(0)]);
        assert!(pairs.with(3).is_empty());
    }

    #[test]
    fn of_hosts_with_as_many_left_the_one_that_had_most_is_chosen() {
        // Both 1 and 2 reach the root alone.
        assert_eq!(cover(&of(&[(1, Some(2)), (1, Some(3)), (1, Some(4)), (2, Some(9))])), [1, 2]);
        // Also if the others of the pairs have failed meanwhile.
        assert_eq!(cover(&of(&[(1, Some(2)), (1, Some(3))])), [1]);
        let left = of(&[(1, Some(2)), (1, Some(3))]).cover(|host| host != 2);
        assert_eq!(left.into_iter().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn of_two_hosts_one_is_chosen_and_never_the_root() {
        assert_eq!(cover(&of(&[(1, Some(2)), (2, Some(1))])), [2]);
        assert_eq!(cover(&of(&[(1, None), (1, Some(2))])), [1]);
        assert!(of(&[(1, Some(1))]).is_empty(), "it is the same one");
    }
}
