//! The properties at sampled ranks and steps, for groups of up to 2^20 members and messages of up to 2^32-1 blocks.

use super::{cases, oracle};
use proptest::prelude::*;
use schedule::{Algorithm, MAX_MEMBERS, Schedule, Transfer};

/// Small, medium and large numbers, and numbers near powers of two.
fn spread(max: u32) -> impl Strategy<Value = u32> {
    let near_power = (0..=max.ilog2(), -1..=1_i64)
        .prop_map(move |(bits, off)| ((1_i64 << bits) + off).clamp(1, i64::from(max)) as u32);
    let any_size = (0..=max.ilog2(), any::<u32>())
        .prop_map(move |(bits, noise)| ((1 << bits) | (noise & ((1 << bits) - 1))).min(max));
    prop_oneof![1 => near_power, 2 => any_size, 1 => max - max / 16..=max]
}

/// The algorithms that need racks, or do not.
fn with_racks(needed: bool) -> Vec<Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| algorithm.needs_racks() == needed).collect()
}

/// A schedule without racks.
fn flat() -> impl Strategy<Value = Schedule> {
    let algorithm = prop::sample::select(with_racks(false));
    (algorithm, spread(MAX_MEMBERS), any::<prop::sample::Index>()).prop_map(
        |(algorithm, members, root)| {
            Schedule::new(algorithm, members, root.index(members as usize) as u32).unwrap()
        },
    )
}

/// A schedule with a few thousand members in racks of random sizes, in random order.
fn racked() -> impl Strategy<Value = Schedule> {
    let algorithm = prop::sample::select(with_racks(true));
    let racks = (1_u32..200).prop_flat_map(|racks| prop::collection::vec(0..racks, 1..3000));
    (algorithm, racks, any::<prop::sample::Index>()).prop_map(|(algorithm, racks, root)| {
        cases::build(algorithm, &racks, root.index(racks.len()) as u32)
    })
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    prop_oneof![3 => flat(), 1 => racked()]
}

/// A step of a message: near the start, near the end, or anywhere.
fn steps_of(plan: &Schedule, blocks: u32, seed: u64) -> Vec<u64> {
    let end = plan.steps(blocks);
    if end == 0 {
        return vec![];
    }
    let near = seed % 100;
    vec![near.min(end - 1), end - 1 - near.min(end - 1), seed % end]
}

/// Both ends agree about a transfer, its source has the block, and the step is the one that `received_at` gives.
fn check_transfer(plan: &Schedule, transfer: Transfer, blocks: u32) {
    let Transfer { step, source, target, block } = transfer;
    let case = || format!("{transfer:?}: {}", oracle::case(plan, blocks));
    assert!(source < plan.members() && target < plan.members() && block < blocks, "{}", case());
    assert!(source != target && target != plan.root(), "{}", case());
    assert_eq!(plan.send_at(source, step, blocks), Some(transfer), "{}", case());
    assert_eq!(plan.receive_at(target, step, blocks), Some(transfer), "{}", case());
    // There is one step per block, so no member receives a block twice.
    assert_eq!(plan.received_at(target, block, blocks), Some(step), "{}", case());
    if source != plan.root() {
        check_holding(plan, source, block, blocks, step);
    }
}

/// `rank` receives `block` before `step`.
fn check_holding(plan: &Schedule, rank: u32, block: u32, blocks: u32, step: u64) {
    let at = plan.received_at(rank, block, blocks).expect("every member receives each block");
    assert!(at < step, "rank {rank}, block {block} at {at}: {}", oracle::case(plan, blocks));
    let receipt = plan.receive_at(rank, at, blocks);
    assert_eq!(receipt.map(|receipt| receipt.block), Some(block), "{}", oracle::case(plan, blocks));
}

/// Ranks of different kinds: around the root, first, last, and others.
fn ranks_of(plan: &Schedule, seed: u64) -> Vec<u32> {
    let n = u64::from(plan.members());
    let root = u64::from(plan.root());
    [0, n - 1, root, root + 1, root + n - 1, seed, seed >> 20, seed >> 40]
        .map(|rank| (rank % n) as u32)
        .to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_ends_agree_and_the_source_holds_the_block(
        plan in any_schedule(), blocks in spread(u32::MAX), seed: u64
    ) {
        for step in steps_of(&plan, blocks, seed) {
            for rank in ranks_of(&plan, seed) {
                for transfer in [
                    plan.send_at(rank, step, blocks),
                    plan.receive_at(rank, step, blocks),
                    plan.next_send(rank, step, blocks),
                    plan.next_receive(rank, step, blocks),
                ].into_iter().flatten() {
                    check_transfer(&plan, transfer, blocks);
                    prop_assert!(transfer.step >= step);
                    if transfer.source == rank {
                        prop_assert!(plan.neighbours(rank).any(|other| other == transfer.target));
                    }
                }
            }
        }
    }

    #[test]
    fn every_block_reaches_every_rank(plan in any_schedule(), blocks in spread(u32::MAX), seed: u64) {
        let sampled = [0, 1, blocks - 1, blocks / 2, (seed % u64::from(blocks)) as u32];
        for rank in ranks_of(&plan, seed).into_iter().filter(|&rank| rank != plan.root()) {
            for block in sampled.into_iter().filter(|&block| block < blocks) {
                let end = plan.steps(blocks);
                check_holding(&plan, rank, block, blocks, end);
            }
        }
    }

    #[test]
    fn next_jumps_to_the_nearest(plan in any_schedule(), blocks in spread(u32::MAX), seed: u64) {
        for step in steps_of(&plan, blocks, seed) {
            for rank in ranks_of(&plan, seed) {
                let send = plan.next_send(rank, step, blocks);
                let receive = plan.next_receive(rank, step, blocks);
                let end = plan.steps(blocks);
                let before = |next: Option<Transfer>| next.map_or(end, |next| next.step);
                for earlier in (step..before(send)).take(100) {
                    prop_assert_eq!(plan.send_at(rank, earlier, blocks), None);
                }
                for earlier in (step..before(receive)).take(100) {
                    prop_assert_eq!(plan.receive_at(rank, earlier, blocks), None);
                }
            }
        }
    }

    #[test]
    fn the_first_source_does_not_depend_on_the_length(
        plan in any_schedule(), blocks in spread(u32::MAX), seed: u64
    ) {
        for rank in ranks_of(&plan, seed) {
            let first = plan.next_receive(rank, 0, blocks).map(|first| first.source);
            if !plan.size_first() {
                prop_assert_eq!(first, plan.first_source(rank));
                prop_assert_eq!(first, plan.announcer(rank));
            }
            prop_assert_eq!(first.is_none(), rank == plan.root() || plan.members() == 1);
        }
    }

    #[test]
    fn following_announcers_reaches_the_root(plan in any_schedule(), seed: u64) {
        for rank in ranks_of(&plan, seed) {
            let mut at = rank;
            let mut hops = 0;
            while let Some(parent) = plan.announcer(at) {
                if hops < 100 {
                    prop_assert!(plan.neighbours(at).any(|other| other == parent));
                }
                at = parent;
                hops += 1;
                prop_assert!(hops < plan.members());
            }
            prop_assert_eq!(at, plan.root());
        }
    }

    #[test]
    fn neighbours_are_distinct_and_mutual(plan in any_schedule(), seed: u64) {
        for rank in ranks_of(&plan, seed) {
            let is_star = matches!(plan.algorithm(), Algorithm::Sequential | Algorithm::InSwitch);
            if is_star && rank == plan.root() {
                continue; // its neighbours are all members
            }
            let neighbours: Vec<u32> = plan.neighbours(rank).collect();
            let distinct: std::collections::HashSet<u32> = neighbours.iter().copied().collect();
            prop_assert_eq!(distinct.len(), neighbours.len());
            for other in neighbours {
                prop_assert!(other != rank && plan.neighbours(other).any(|back| back == rank));
            }
        }
    }

    #[test]
    fn nothing_is_out_of_range(plan in any_schedule(), rank: u32, step: u64, block: u32, blocks: u32) {
        let _ = plan.steps(blocks);
        let outside = rank >= plan.members();
        for answer in [
            plan.send_at(rank, step, blocks),
            plan.receive_at(rank, step, blocks),
            plan.next_send(rank, step, blocks),
            plan.next_receive(rank, step, blocks),
        ] {
            prop_assert!(answer.is_none() || !outside && answer.is_some_and(|it| it.step < plan.steps(blocks)));
        }
        prop_assert!(plan.received_at(rank, block, blocks).is_none() || !outside && block < blocks);
        prop_assert!(plan.slack(rank, step, blocks) != Some(0));
        prop_assert!(!outside || plan.announcer(rank).is_none() && plan.first_source(rank).is_none());
        prop_assert!(!outside || plan.neighbours(rank).next().is_none());
    }
}

/// Short messages to large groups, whole.
#[test]
fn large_groups_get_short_messages() {
    for (members, blocks) in [(1000, 1), (1023, 2), (1025, 5), (3001, 3), (65_537, 1), (100_003, 2)]
    {
        for algorithm in
            [Algorithm::BinomialTree, Algorithm::BinomialPipeline, Algorithm::Circulant]
        {
            let plan = Schedule::new(algorithm, members, members / 7).unwrap();
            let transfers = oracle::transfers(&plan, blocks);
            oracle::deliver(&plan, blocks, &transfers);
            oracle::steps(&plan, blocks, &transfers);
            oracle::first_sources(&plan, blocks, &transfers);
        }
    }
}
