//! Members of a group that could not connect to each other, though both had all their time.
//!
//! All of them are given up after one group: one after the other would cost the time to join each.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// For how long other members may report the same, before they are told to leave. They report at about the same time, since
/// they were told of the group together.
const OTHERS_REPORT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Unjoined {
    /// Hosts; `None` is the root.
    pairs: BTreeSet<(usize, Option<usize>)>,
    /// Until when others may report.
    until: Option<Duration>,
}

impl Unjoined {
    /// A host could not connect to this member; `None` is the root.
    pub(super) fn add(&mut self, host: usize, member: Option<usize>, now: Duration) {
        let pair = match member {
            Some(other) if other < host => (other, Some(host)),
            other => (host, other),
        };
        if member != Some(host) {
            self.pairs.insert(pair);
            self.until.get_or_insert(now + OTHERS_REPORT);
        }
    }

    /// Until when others may report, if any could not connect.
    pub(super) fn until(&self) -> Option<Duration> {
        self.until
    }

    /// The members to which a host could not connect; `None` is the root.
    pub(super) fn with(&self, host: usize) -> Vec<Option<usize>> {
        let other = |&(one, other): &(usize, Option<usize>)| match one == host {
            true => Some(other),
            false => (other == Some(host)).then_some(Some(one)),
        };
        self.pairs.iter().filter_map(other).collect()
    }

    /// Few hosts without which all others could connect to each other: again and again the one with most members to which it
    /// could not connect, of equal ones the one that had most at first. The root is none of them.
    pub(super) fn to_give_up(&self) -> Vec<usize> {
        let (all, mut pairs, mut given_up) = (counts(&self.pairs), self.pairs.clone(), Vec::new());
        while let Some((host, _)) =
            counts(&pairs).into_iter().max_by_key(|&(host, left)| (left, all[&host]))
        {
            given_up.push(host);
            pairs.retain(|&(one, other)| one != host && other != Some(host));
        }
        given_up
    }
}

/// In how many pairs each host is.
fn counts(pairs: &BTreeSet<(usize, Option<usize>)>) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for host in pairs.iter().flat_map(|&(one, other)| [Some(one), other]).flatten() {
        *counts.entry(host).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(usize, Option<usize>)]) -> Unjoined {
        let mut unjoined = Unjoined::default();
        pairs.iter().for_each(|&(host, other)| unjoined.add(host, other, Duration::ZERO));
        unjoined
    }

    #[test]
    fn hosts_that_reach_the_root_alone_are_given_up_together() {
        // 0, 1 and 2 of ten, each with the neighbours that it has in a group, which report it, too.
        let neighbours = [(0, [1, 2, 9]), (1, [0, 4, 8]), (2, [0, 5, 7])];
        let mut pairs: Vec<_> =
            neighbours.iter().flat_map(|&(one, all)| all.map(|other| (one, Some(other)))).collect();
        pairs.extend([(9, Some(0)), (8, Some(1)), (5, Some(2))]);
        let unjoined = of(&pairs);
        let mut given_up = unjoined.to_give_up();
        given_up.sort_unstable();
        assert_eq!(given_up, [0, 1, 2]);
        assert_eq!(unjoined.with(1), [Some(0), Some(4), Some(8)]);
        assert_eq!(unjoined.with(9), [Some(0)]);
        assert!(unjoined.with(3).is_empty());
    }

    #[test]
    fn of_hosts_with_as_many_left_the_one_that_had_most_is_given_up() {
        // Both 1 and 2 reach the root alone.
        let unjoined = of(&[(1, Some(2)), (1, Some(3)), (1, Some(4)), (2, Some(9))]);
        assert_eq!(unjoined.to_give_up(), [1, 2]);
    }

    #[test]
    fn of_two_hosts_one_is_given_up_and_never_the_root() {
        assert_eq!(of(&[(1, Some(2)), (2, Some(1))]).to_give_up().len(), 1);
        assert_eq!(of(&[(1, None)]).to_give_up(), [1]);
        let claims_itself = of(&[(1, Some(1))]);
        assert!(claims_itself.to_give_up().is_empty() && claims_itself.until().is_none());
    }
}
