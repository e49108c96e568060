//! Hosts that are set apart: they get their copies by themselves, from the root, after the others.
//!
//! A pair that could not connect to each other does not tell which of both is the cause, and in a chain each host has only two
//! neighbours. So pairs are kept over the rounds of a push, and no host that reaches the root is given up.

use std::collections::BTreeSet;

use super::pairs::Pairs;

/// After more failed rounds than this every host of a pair is set apart, instead of the fewest that explain all pairs: each further
/// round would take the time to join again.
const ROUNDS_MAX: usize = 3;

/// What is known of all rounds of a push.
#[derive(Default)]
pub(super) struct Apart {
    pairs: Pairs,
    /// Rounds in which a new pair was reported.
    rounds: BTreeSet<u32>,
}

impl Apart {
    /// Members of a group of this round could not connect to each other. Returns the hosts to give up: those that could not connect
    /// to the root, and, if no pair is new, those of the pairs, since they would fail again.
    pub(super) fn on_failed(&mut self, pairs: &Pairs, round: u32) -> BTreeSet<usize> {
        if self.pairs.extend(pairs) {
            self.rounds.insert(round);
        }
        let is_known = !self.rounds.contains(&round);
        let is_given_up = |&host: &usize| is_known || pairs.with(host).contains(&None);
        pairs.cover(|_| true).into_iter().filter(is_given_up).collect()
    }

    /// Of the hosts that `counts`, those to set apart; the others could connect to each other so far.
    pub(super) fn hosts(&self, counts: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        match self.rounds.len() <= ROUNDS_MAX {
            true => self.pairs.cover(counts),
            false => self.pairs.hosts(counts),
        }
    }

    /// The members to which a host could not connect; `None` is the root.
    pub(super) fn with(&self, host: usize) -> Vec<Option<usize>> {
        self.pairs.with(host)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pairs of neighbours by rank in a group of this many members.
    fn chain(members: usize) -> Vec<(usize, usize)> {
        (1..members).map(|rank| (rank - 1, rank)).collect()
    }

    fn hypercube(members: usize) -> Vec<(usize, usize)> {
        let beside = |rank: usize| (0..5).map(move |bit| (rank, rank | 1 << bit));
        (0..members)
            .flat_map(beside)
            .filter(|&(one, other)| one != other && other < members)
            .collect()
    }

    /// The failed rounds of a push in which all hosts reach the root and two of them each other unless one is in `alone`, and
    /// whom each sets apart.
    fn failed_rounds(
        hosts: usize,
        alone: &BTreeSet<usize>,
        neighbours: fn(usize) -> Vec<(usize, usize)>,
    ) -> Vec<BTreeSet<usize>> {
        let (mut apart, mut rounds) = (Apart::default(), Vec::new());
        loop {
            let none = BTreeSet::new();
            let left = rounds.last().unwrap_or(&none);
            // The root has rank 0.
            let members: Vec<usize> = (0..hosts).filter(|host| !left.contains(host)).collect();
            let mut pairs = Pairs::default();
            for (one, other) in neighbours(members.len() + 1) {
                if one > 0 {
                    let (one, other) = (members[one - 1], members[other - 1]);
                    if alone.contains(&one) || alone.contains(&other) {
                        pairs.add(one, Some(other));
                    }
                }
            }
            if pairs.is_empty() {
                return rounds;
            }
            let given_up = apart.on_failed(&pairs, rounds.len() as u32 + 1);
            assert_eq!(given_up, BTreeSet::new(), "all reach the root");
            rounds.push(apart.hosts(|_| true));
        }
    }

    #[test]
    fn the_one_host_that_no_other_reaches_is_set_apart_after_two_rounds() {
        for neighbours in [chain, hypercube] {
            for hosts in 3..17 {
                for bad in 0..hosts {
                    let alone = BTreeSet::from([bad]);
                    let rounds = failed_rounds(hosts, &alone, neighbours);
                    assert!(rounds.len() <= 2, "{bad} of {hosts}: {rounds:?}");
                    // After one round it may be the other of the pair, which gets its copy as well.
                    match &rounds[..] {
                        [] => {}
                        [only] => assert_eq!(only.len(), 1, "{bad} of {hosts}"),
                        [.., last] => assert_eq!(last, &alone, "{hosts}: {rounds:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn every_other_host_of_a_chain_is_set_apart_after_two_rounds() {
        let rounds = failed_rounds(6, &BTreeSet::from([1, 3, 5]), chain);
        assert_eq!(rounds.len(), 2, "{rounds:?}");
        assert_eq!(rounds[1], BTreeSet::from([1, 3, 5]));
    }

    proptest! {
        #[test]
        fn few_rounds_fail_and_nobody_who_reaches_the_root_is_given_up(
            hosts in 3usize..17,
            alone in prop::collection::btree_set(0usize..16, 0..9),
            is_chain in any::<bool>(),
        ) {
            let neighbours = if is_chain { chain } else { hypercube };
            let rounds = failed_rounds(hosts, &alone, neighbours);
            prop_assert!(rounds.len() <= ROUNDS_MAX + 3, "{rounds:?}");
        }
    }

    #[test]
    fn who_does_not_reach_the_root_or_reports_the_same_again_is_given_up() {
        let (mut apart, mut pairs) = (Apart::default(), Pairs::default());
        pairs.add(1, Some(2));
        assert!(apart.on_failed(&pairs, 1).is_empty());
        assert!(apart.on_failed(&pairs, 1).is_empty(), "another group of this round");
        assert_eq!(apart.on_failed(&pairs, 2), BTreeSet::from([2]));
        let mut with_root = Pairs::default();
        with_root.add(3, None);
        assert_eq!(apart.on_failed(&with_root, 3), BTreeSet::from([3]));
        assert_eq!(apart.with(1), [Some(2)]);
    }
}
