//! What the root of a group has chosen, and how the other members learn it.
//!
//! A member that leaves its algorithm or its block size open asks its parent in a binomial tree of the ranks, counted
//! from the root: a member answers at most `ceil(log2 n)` others, and the answer takes as many hops at most. A parent that asks
//! itself answers once it knows. The tree's edges are links of the binomial pipeline if the number of members is
//! a power of two. What members believe by mistake differs in the terms of their links, which are compared.

use std::{net::SocketAddr, sync::OnceLock};

use schedule::Algorithm;
use serde::{Deserialize, Serialize};

use super::terms::Addresses;
use crate::{GroupSettings, group_settings::BLOCK_BYTES_UNASKED_MAX};

/// What the root has chosen, as members tell each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RootChoice {
    /// [`Algorithm::code`].
    algorithm: u8,
    block_bytes: u64,
}

impl RootChoice {
    pub(crate) fn of(settings: &engine::GroupSettings) -> Self {
        let algorithm = settings.schedule.algorithm().code();
        Self { algorithm, block_bytes: settings.block_bytes }
    }

    /// Returns a member's settings with what they leave open as the root has chosen it.
    ///
    /// Errors: why this member does not take the choice, with the remedy.
    pub(crate) fn apply(self, settings: GroupSettings) -> Result<GroupSettings, String> {
        let Some(algorithm) = Algorithm::from_code(self.algorithm) else {
            return Err(format!(
                "the root has taken an algorithm of number {}, which is not known here; use the same version of \
                 rdmc at all members",
                self.algorithm
            ));
        };
        let takes_algorithm = settings.schedule.algorithm().is_none();
        if takes_algorithm && algorithm.needs_racks() && settings.schedule.racks().is_empty() {
            return Err(format!(
                "the root has taken {algorithm}; give the same racks at all members"
            ));
        }
        if settings.block_bytes.is_none()
            && !(1..=BLOCK_BYTES_UNASKED_MAX).contains(&self.block_bytes)
        {
            return Err(format!(
                "the root has taken blocks of {} bytes; without block_bytes at this member, use 1 to \
                 {BLOCK_BYTES_UNASKED_MAX}",
                self.block_bytes
            ));
        }
        Ok(settings.with_choice(algorithm, self.block_bytes))
    }
}

/// Asks a member what the root of a group has chosen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) group: u64,
    pub(crate) from: u32,
    to: u32,
    root: u32,
    addresses: Addresses,
    /// How long the member that asks waits.
    pub(crate) timeout_ms: u64,
}

impl Question {
    /// Whether it takes no more memory than that of any group; peers make it.
    pub(crate) fn is_bounded(&self) -> bool {
        self.addresses.is_bounded()
    }
}

/// Why a group cannot be created: the member that differs, its address, and the difference.
pub(crate) type Problem = (u32, SocketAddr, String);

/// What a member answers to questions about a group, from the time at which it begins to create it.
#[derive(Debug)]
pub(crate) struct Decision {
    group: u64,
    rank: u32,
    /// `None` for a team.
    root: Option<u32>,
    addresses: Addresses,
    /// Set once it is known.
    choice: OnceLock<RootChoice>,
    /// The first member that has asked about another group of this number.
    problem: OnceLock<Problem>,
}

impl Decision {
    pub(crate) fn new(settings: &GroupSettings) -> Self {
        let GroupSettings { number, rank, root, members, .. } = settings;
        Self::of(*number, *rank, Some(*root), members)
    }

    /// A team of the number has no choice.
    pub(crate) fn of_team(number: u64, rank: u32, members: &[SocketAddr]) -> Self {
        Self::of(number, rank, None, members)
    }

    fn of(group: u64, rank: u32, root: Option<u32>, members: &[SocketAddr]) -> Self {
        let addresses = Addresses::new(members);
        let (choice, problem) = (OnceLock::new(), OnceLock::new());
        Self { group, rank, root, addresses, choice, problem }
    }

    /// Sets what is answered; of effect once.
    pub(crate) fn decide(&self, choice: RootChoice) {
        let _ = self.choice.set(choice);
    }

    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.problem.get()
    }

    /// Returns the question for another member of a group.
    pub(crate) fn question(&self, to: u32, timeout_ms: u64) -> Question {
        Question {
            group: self.group,
            from: self.rank,
            to,
            root: self.root.unwrap_or_default(),
            addresses: self.addresses.clone(),
            timeout_ms,
        }
    }

    /// Answers a question from this address; `None` until the choice is known. Notes the first problem.
    pub(crate) fn answer(
        &self,
        question: &Question,
        peer: SocketAddr,
    ) -> Option<Result<RootChoice, String>> {
        if let Some(difference) = self.difference(question) {
            let _ = self.problem.set((question.from, peer, difference.clone()));
            return Some(Err(difference));
        }
        self.choice.get().copied().map(Ok)
    }

    fn difference(&self, question: &Question) -> Option<String> {
        let Question { group, from, to, root, addresses, .. } = question;
        let difference = match (self.root, self.addresses.difference(addresses)) {
            (None, _) => Some("it is a team here, a group there".to_owned()),
            (Some(own), None) if own != *root => Some(format!("root: {own} here, {root} there")),
            (Some(_), found) => found,
        };
        if let Some(difference) = difference {
            return Some(format!(
                "members {} and {from} have different settings for group {group}: {difference} (seen from member {})",
                self.rank, self.rank
            ));
        }
        (*to != self.rank).then(|| {
            format!("this is member {}, not member {to}: the member lists differ", self.rank)
        })
    }
}

/// Returns whom a member asks; `None` for the root and for ranks that are not in the group.
pub(crate) fn parent(rank: u32, root: u32, members: u32) -> Option<u32> {
    if rank >= members || root >= members {
        return None;
    }
    let (rank, root, members) = (u64::from(rank), u64::from(root), u64::from(members));
    let from_root = (rank + members - root) % members;
    // Without its lowest one.
    let above = from_root & from_root.checked_sub(1)?;
    Some(((above + root) % members) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Scheduling;

    fn settings(members: u16, rank: u32) -> GroupSettings {
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        GroupSettings::new(7, (0..members).map(address).collect(), rank)
    }

    fn choice(algorithm: Algorithm, block_bytes: u64) -> RootChoice {
        RootChoice { algorithm: algorithm.code(), block_bytes }
    }

    #[test]
    fn members_take_the_roots_choice_for_what_they_leave_open() {
        let chosen = choice(Algorithm::Chain, 4096);
        let taken = |settings| {
            let taken = chosen.apply(settings).unwrap();
            (taken.schedule.algorithm().unwrap(), taken.block_bytes.unwrap())
        };
        assert_eq!(taken(settings(4, 1)), (Algorithm::Chain, 4096));
        assert_eq!(taken(settings(4, 1).block_bytes(10)), (Algorithm::Chain, 10));
        let tree = settings(4, 1).schedule(Algorithm::BinomialTree);
        assert_eq!(taken(tree), (Algorithm::BinomialTree, 4096));
        // The root's own settings give the same choice again.
        let root = chosen.apply(settings(4, 0)).unwrap();
        let made = engine::GroupSettings::try_from(&root).unwrap();
        assert_eq!(RootChoice::of(&made), chosen);
    }

    #[test]
    fn a_root_cannot_make_others_take_what_they_do_not_allow() {
        let refused = |choice: RootChoice, settings| choice.apply(settings).unwrap_err();
        let unknown = RootChoice { algorithm: 200, block_bytes: 1 };
        assert!(refused(unknown, settings(4, 1)).contains("number 200"));
        for bytes in [0, BLOCK_BYTES_UNASKED_MAX + 1, u64::MAX] {
            let long = choice(Algorithm::Chain, bytes);
            assert!(refused(long, settings(4, 1)).contains("use 1 to 16777216"));
            // What is not taken is compared when members connect.
            let own = long.apply(settings(4, 1).block_bytes(1 << 30)).unwrap();
            assert_eq!(own.block_bytes, Some(1 << 30));
        }
        let racks = choice(Algorithm::RacksChain, 1);
        assert!(refused(racks, settings(4, 1)).contains("give the same racks"));
        let known = settings(4, 1).schedule(Scheduling::FastestInRacks(vec![0, 0, 1, 1]));
        assert_eq!(racks.apply(known).unwrap().schedule.racks(), [0, 0, 1, 1]);
    }

    #[test]
    fn questions_are_answered_once_the_choice_is_known() {
        let peer = SocketAddr::from(([10, 0, 0, 1], 9));
        let (parent, child) = (Decision::new(&settings(4, 0)), Decision::new(&settings(4, 2)));
        let question = child.question(0, 1_000);
        assert_eq!(parent.answer(&question, peer), None);
        let chosen = choice(Algorithm::Chain, 4096);
        parent.decide(chosen);
        parent.decide(choice(Algorithm::Sequential, 1));
        assert_eq!(parent.answer(&question, peer), Some(Ok(chosen)));
        assert_eq!(parent.problem(), None);
    }

    #[test]
    fn questions_about_another_group_are_refused_with_the_difference() {
        let peer = SocketAddr::from(([10, 0, 0, 1], 9));
        let refused = |other: GroupSettings, to| {
            let parent = Decision::new(&settings(4, 0));
            let answer = parent.answer(&Decision::new(&other).question(to, 1), peer);
            let cause = answer.unwrap().unwrap_err();
            assert_eq!(parent.problem(), Some(&(other.rank, peer, cause.clone())));
            cause
        };
        assert!(refused(settings(5, 2), 0).contains("members: 4 here, 5 there"));
        assert!(refused(settings(4, 2).root(3), 0).contains("root: 0 here, 3 there"));
        assert!(refused(settings(4, 2), 1).contains("this is member 0, not member 1"));
        let team = Decision::of_team(7, 0, &settings(4, 0).members);
        let refusal = team.answer(&Decision::new(&settings(4, 2)).question(0, 1), peer);
        assert!(refusal.unwrap().unwrap_err().contains("a team here, a group there"));
        let mut moved = settings(4, 2);
        moved.members[3].set_port(99);
        assert!(refused(moved, 0).contains("the address of member 3"));
    }

    #[test]
    fn questions_of_the_largest_groups_are_short() {
        let largest = Decision::new(&settings(u16::MAX, 0)).question(1, 1);
        assert!(largest.is_bounded());
        let parts = 1000;
        let forged = (7_u64, 0_u32, 1_u32, 0_u32, (3_u32, vec![[1_u8; 8]; parts]), 1_u64);
        let bytes = postcard::to_stdvec(&forged).unwrap();
        assert!(!postcard::from_bytes::<Question>(&bytes).unwrap().is_bounded());
    }

    proptest! {
        #[test]
        fn every_question_reaches_the_root_within_as_many_hops_as_members_have_bits(
            members in 1..=70_000_u32, root: u32, rank: u32
        ) {
            let (root, mut rank) = (root % members, rank % members);
            let mut hops = 0;
            while let Some(above) = parent(rank, root, members) {
                prop_assert!(above < members);
                (rank, hops) = (above, hops + 1);
                prop_assert!(hops <= u32::BITS - (members - 1).leading_zeros());
            }
            prop_assert_eq!(rank, root);
        }

        #[test]
        fn any_choice_is_taken_within_the_limits_or_refused(algorithm: u8, block_bytes: u64) {
            let choice = RootChoice { algorithm, block_bytes };
            if let Ok(taken) = choice.apply(settings(4, 1)) {
                let made = engine::GroupSettings::try_from(&taken);
                prop_assert!(made.is_ok_and(|made| made.block_bytes <= BLOCK_BYTES_UNASKED_MAX));
            }
        }
    }

    #[test]
    fn the_root_answers_one_member_for_each_bit_of_their_number() {
        let children = (1..1_000).filter(|&rank| parent(rank, 0, 1_000) == Some(0));
        assert_eq!(children.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!((parent(5, 5, 6), parent(6, 0, 6), parent(0, 6, 6)), (None, None, None));
    }
}
