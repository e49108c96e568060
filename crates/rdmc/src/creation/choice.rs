//! What the root of a group has chosen, and how the other members learn it.
//!
//! A member that leaves its algorithm or its block size open asks its parent in a binomial tree of the ranks, counted
//! from the root: a member answers at most `ceil(log2 n)` others, and the answer takes as many hops at most. A parent that asks
//! itself answers once it knows. The tree's edges are links of the binomial pipeline if the number of members is
//! a power of two. What members believe by mistake differs in the terms of their links, which are compared.

use schedule::Algorithm;
use serde::{Deserialize, Serialize};

use super::terms::Addresses;
use crate::{GroupSettings, group_settings::BLOCK_BYTES_UNASKED_MAX};

/// What the root has chosen, as members tell each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RootChoice {
    /// [`Algorithm::code`].
    algorithm: u8,
    block_bytes: u64,
}

impl RootChoice {
    /// Returns this choice.
    pub fn new(algorithm: Algorithm, block_bytes: u64) -> Self {
        Self { algorithm: algorithm.code(), block_bytes }
    }

    pub(crate) fn of(settings: &engine::GroupSettings) -> Self {
        Self::new(settings.schedule.algorithm(), settings.block_bytes)
    }

    /// Returns a member's settings with what they leave open as the root has chosen it.
    ///
    /// Errors: why this member does not take the choice, with the remedy.
    pub(crate) fn apply(self, settings: GroupSettings) -> Result<GroupSettings, String> {
        let Some(algorithm) = Algorithm::from_code(self.algorithm) else {
            return Err(format!(
                "the root has chosen algorithm number {}, which is not known here; use the same version of \
                 rdmc at all members",
                self.algorithm
            ));
        };
        let takes_algorithm = settings.schedule.algorithm().is_none();
        if takes_algorithm && algorithm.needs_racks() && settings.schedule.racks().is_empty() {
            return Err(format!(
                "the root has chosen {algorithm}; give the same racks at all members"
            ));
        }
        if settings.block_bytes.is_none()
            && !(1..=BLOCK_BYTES_UNASKED_MAX).contains(&self.block_bytes)
        {
            return Err(format!(
                "the root has chosen blocks of {} bytes; without block_bytes at this member, use 1 to \
                 {BLOCK_BYTES_UNASKED_MAX}",
                self.block_bytes
            ));
        }
        Ok(settings.with_choice(algorithm, self.block_bytes))
    }
}

/// Asks a member what the root of a group has chosen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    pub(crate) group: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) root: u32,
    pub(crate) addresses: Addresses,
    /// How long the member that asks waits.
    pub(crate) timeout_ms: u64,
}

/// Returns whom a member asks; `None` for the root and for ranks that are not in the group.
pub fn parent(rank: u32, root: u32, members: u32) -> Option<u32> {
    if rank >= members || root >= members {
        return None;
    }
    let (rank, root, members) = (u64::from(rank), u64::from(root), u64::from(members));
    let from_root = (rank + members - root) % members;
    // Its lowest bit that is 1 is cleared.
    let above = from_root & from_root.checked_sub(1)?;
    Some(((above + root) % members) as u32)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::Scheduling;

    fn settings(members: u16, rank: u32) -> GroupSettings {
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        GroupSettings::new(7, (0..members).map(address).collect(), rank)
    }

    #[test]
    fn members_take_the_roots_choice_for_what_they_leave_open() {
        let chosen = RootChoice::new(Algorithm::Chain, 4096);
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
            let long = RootChoice::new(Algorithm::Chain, bytes);
            assert!(refused(long, settings(4, 1)).contains("use 1 to 16777216"));
            // What is not taken is compared when members connect.
            let own = long.apply(settings(4, 1).block_bytes(1 << 30)).unwrap();
            assert_eq!(own.block_bytes, Some(1 << 30));
        }
        let racks = RootChoice::new(Algorithm::RacksChain, 1);
        assert!(refused(racks, settings(4, 1)).contains("give the same racks"));
        let known = settings(4, 1).schedule(Scheduling::AutoInRacks(vec![0, 0, 1, 1]));
        assert_eq!(racks.apply(known).unwrap().schedule.racks(), [0, 0, 1, 1]);
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
