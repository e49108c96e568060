//! Operations of all kinds, in any order of events: results, order of folds, and slots that are used again.

use collective::{Call, Kind, Settings};
use proptest::prelude::*;

use crate::world::{Dice, ELEMENT_BYTES, World, maps, sums};

const KINDS: [Kind; 5] =
    [Kind::Barrier, Kind::Broadcast, Kind::Reduce, Kind::AllReduce, Kind::AllGather];

fn settings(members: u32, slots: u32, degree: u32) -> Settings {
    let slot_bytes = Settings::SLOT_BYTES_MIN + 21;
    Settings {
        members,
        rank: 0,
        slots,
        slot_bytes,
        degrees: vec![(u64::MAX, degree)],
        exchange_bytes: 0,
        long_bytes: u64::MAX,
        block_bytes: 1,
    }
}

/// Elements are longer than the least room of a slot allows to be cut anywhere.
fn new_call(kind: Kind, root: u32, bytes: u64) -> Call {
    match kind {
        Kind::Reduce | Kind::AllReduce => Call::folding(kind, root, bytes, &maps()),
        _ => Call::new(kind, root, bytes),
    }
}

/// The same call with a function that commutes, where something is folded.
fn commuting(call: Call) -> Call {
    match call.folding {
        Some(_) => Call::folding(call.kind, call.root, call.bytes, &sums()),
        None => call,
    }
}

/// Messages from 32 bytes on are long, in blocks of at most two elements.
fn with_long(settings: Settings) -> Settings {
    Settings { long_bytes: 32, block_bytes: 40, ..settings }
}

fn any_call(dice: &mut Dice, members: u32) -> Call {
    let kind = KINDS[dice.below(KINDS.len())];
    let has_root = matches!(kind, Kind::Broadcast | Kind::Reduce);
    let root = if has_root { dice.below(members as usize) as u32 } else { 0 };
    let elements = if kind == Kind::Barrier { 0 } else { [0, 1, 2, 3, 9, 40][dice.below(6)] };
    let call = new_call(kind, root, (elements * ELEMENT_BYTES) as u64);
    if dice.below(2) == 0 { commuting(call) } else { call }
}

fn run(settings: &Settings, calls: &[Call], ahead: usize, seed: u64) {
    let mut world = World::new(settings, seed);
    match world.run(calls, ahead, |_, _, call| call) {
        Ok(true) => {
            assert_eq!(world.completed, calls.len() as u64 * u64::from(settings.members));
        }
        Ok(false) => panic!("{settings:?}, seed {seed}: all wait: {:?}", world.awaited()),
        Err((rank, fault)) => panic!("{settings:?}, seed {seed}: at member {rank}: {fault}"),
    }
}

#[test]
fn every_number_of_members_degree_and_root() {
    for members in 1..=64 {
        let degrees = [1, 2, 3, 7, 15, members - 1]
            .into_iter()
            .filter(|&it| (1..members.max(2)).contains(&it));
        for degree in degrees {
            let roots = (0..members).step_by(1 + members as usize / 16);
            let with_root = roots.flat_map(|root| {
                [Kind::Broadcast, Kind::Reduce].map(|kind| new_call(kind, root, 80))
            });
            let without = [Kind::AllReduce, Kind::AllGather, Kind::Barrier]
                .map(|kind| new_call(kind, 0, if kind == Kind::Barrier { 0 } else { 80 }));
            let calls: Vec<Call> = with_root.chain(without).collect();
            run(&settings(members, 4, degree), &calls, 2, u64::from(members * 100 + degree));
        }
    }
}

#[test]
fn exchanges_with_every_power_of_two() {
    for members in [2, 4, 8, 16, 32, 64] {
        let lengths = [0, 16, 48, 160];
        let folded = lengths.map(|bytes| new_call(Kind::AllReduce, 0, bytes));
        let calls: Vec<Call> = folded
            .into_iter()
            .flat_map(|call| [call, commuting(call), new_call(Kind::Barrier, 0, 0)])
            .collect();
        let settings = Settings { exchange_bytes: 48, ..settings(members, 2, 3) };
        run(&settings, &calls, 3, u64::from(members));
    }
}

#[test]
fn long_operations_with_every_number_of_members_and_root() {
    for members in (2..=24).chain([31, 32, 33, 47, 64]) {
        let roots = (0..members).step_by(1 + members as usize / 8);
        let with_root = roots
            .flat_map(|root| [Kind::Broadcast, Kind::Reduce].map(|kind| new_call(kind, root, 320)));
        // Chunks of a ring are of different lengths, and some of no bytes.
        let without = [
            new_call(Kind::AllReduce, 0, 320),
            new_call(Kind::AllReduce, 0, u64::from(members) * 80 + 48),
            new_call(Kind::AllGather, 0, 320),
        ];
        let calls: Vec<Call> =
            with_root.chain(without).flat_map(|call| [call, commuting(call)]).collect();
        let settings = Settings { long_bytes: 1, ..with_long(settings(members, 4, 1)) };
        assert!(calls.iter().all(|call| settings.is_long(call)), "{members}");
        run(&settings, &calls, 3, u64::from(members));
    }
}

/// Every counter of slots wraps many times, and members run ahead of others.
#[test]
fn seventy_thousand_operations_of_mixed_kinds() {
    let mut dice = Dice(70);
    let calls: Vec<Call> = (0..70_000).map(|_| any_call(&mut dice, 5)).collect();
    let settings = with_long(settings(5, 3, 3));
    let long = calls.iter().filter(|call| settings.is_long(call)).count();
    assert!((10_000..60_000).contains(&long), "{long} long operations");
    run(&settings, &calls, 6, 7);
}

proptest! {
    #[test]
    fn any_operations_in_any_order(
        members in 1_u32..20,
        slots in 1_u32..6,
        degree in 1_u32..8,
        ahead in 1_usize..12,
        seed: u64,
    ) {
        let mut dice = Dice(seed);
        let calls: Vec<Call> = (0..30).map(|_| any_call(&mut dice, members)).collect();
        let exchange_bytes = seed / 2 % 3 * 48;
        let settings = Settings { exchange_bytes, ..settings(members, slots, degree) };
        run(&if seed % 2 == 0 { settings } else { with_long(settings) }, &calls, ahead, seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// More members than are linked pairwise.
    #[test]
    fn large_teams(members in 33_u32..100, degree in 1_u32..4, seed: u64) {
        let mut dice = Dice(seed);
        let calls: Vec<Call> = (0..4).map(|_| any_call(&mut dice, members)).collect();
        let settings = settings(members, 2, degree);
        run(&if seed % 2 == 0 { settings } else { with_long(settings) }, &calls, 3, seed);
    }
}
