//! Operations of all kinds, in any order of events: results, order of folds, and slots that are used again.

use collective::{Call, Kind, Settings};
use proptest::prelude::*;

use crate::world::{Dice, ELEMENT_BYTES, World, maps};

const KINDS: [Kind; 5] =
    [Kind::Barrier, Kind::Broadcast, Kind::Reduce, Kind::AllReduce, Kind::AllGather];

fn settings(members: u32, slots: u32, degree: u32) -> Settings {
    let slot_bytes = Settings::SLOT_BYTES_MIN + 21;
    Settings { members, rank: 0, slots, slot_bytes, degrees: vec![(u64::MAX, degree)] }
}

/// Elements are longer than the least room of a slot allows to be cut anywhere.
fn new_call(kind: Kind, root: u32, bytes: u64) -> Call {
    match kind {
        Kind::Reduce | Kind::AllReduce => Call::folding(kind, root, bytes, &maps()),
        _ => Call::new(kind, root, bytes),
    }
}

fn any_call(dice: &mut Dice, members: u32) -> Call {
    let kind = KINDS[dice.below(KINDS.len())];
    let has_root = matches!(kind, Kind::Broadcast | Kind::Reduce);
    let root = if has_root { dice.below(members as usize) as u32 } else { 0 };
    let elements = if kind == Kind::Barrier { 0 } else { [0, 1, 2, 3, 9][dice.below(5)] };
    new_call(kind, root, (elements * ELEMENT_BYTES) as u64)
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

/// Every counter of slots wraps many times, and members run ahead of others.
#[test]
fn seventy_thousand_operations_of_mixed_kinds() {
    let mut dice = Dice(70);
    let calls: Vec<Call> = (0..70_000).map(|_| any_call(&mut dice, 5)).collect();
    run(&settings(5, 3, 3), &calls, 6, 7);
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
        run(&settings(members, slots, degree), &calls, ahead, seed);
    }

    /// More members than are linked pairwise.
    #[test]
    fn large_teams(members in 33_u32..150, degree in 1_u32..4, seed: u64) {
        let mut dice = Dice(seed);
        let calls: Vec<Call> = (0..4).map(|_| any_call(&mut dice, members)).collect();
        run(&settings(members, 2, degree), &calls, 3, seed);
    }
}
