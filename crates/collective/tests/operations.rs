//! Operations of all kinds, in any order of events: results, order of folds, and slots that are used again.

use collective::{
    ALL_PAIRS_MAX, Call, Kind, Settings, Thresholds, Way, WaySelection, model::WriteCosts,
};
use proptest::prelude::*;

use crate::world::{Dice, ELEMENT_BYTES, World, blends, maps, sums};

const KINDS: [Kind; 8] = [
    Kind::Barrier,
    Kind::Broadcast,
    Kind::Reduce,
    Kind::AllReduce,
    Kind::AllGather,
    Kind::ReduceScatter,
    Kind::Scatter,
    Kind::Gather,
];

const ROOTED: [Kind; 4] = [Kind::Broadcast, Kind::Reduce, Kind::Scatter, Kind::Gather];

fn settings(members: u32, slots: u32, degree: u32) -> Settings {
    let slot_bytes = Settings::SLOT_BYTES_MIN + 21;
    let thresholds = Thresholds { degree, exchange_bytes: 0, long_bytes: u64::MAX, block_bytes: 1 };
    Settings { members, rank: 0, slots, slot_bytes, ways: WaySelection::ByThresholds(thresholds) }
}

/// The same with other lengths.
fn with(settings: Settings, change: impl FnOnce(&mut Thresholds)) -> Settings {
    let WaySelection::ByThresholds(mut thresholds) = settings.ways else {
        unreachable!("set above")
    };
    change(&mut thresholds);
    Settings { ways: WaySelection::ByThresholds(thresholds), ..settings }
}

/// Elements are longer than the least room of a slot allows to be cut anywhere.
fn new_call(kind: Kind, root: u32, bytes: u64) -> Call {
    match kind {
        _ if kind.folds() => Call::folding(kind, root, bytes, &maps()),
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
    with(settings, |it| (it.long_bytes, it.block_bytes) = (32, 40))
}

fn any_call(dice: &mut Dice, members: u32) -> Call {
    let kind = KINDS[dice.below(KINDS.len())];
    let root = if ROOTED.contains(&kind) { dice.below(members as usize) as u32 } else { 0 };
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
            let with_root = roots.flat_map(|root| ROOTED.map(|kind| new_call(kind, root, 80)));
            let without = [Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter, Kind::Barrier]
                .map(|kind| new_call(kind, 0, if kind == Kind::Barrier { 0 } else { 80 }));
            let calls: Vec<Call> = with_root.chain(without).collect();
            run(&settings(members, 4, degree), &calls, 2, u64::from(members * 100 + degree));
        }
    }
}

#[test]
fn exchanges_with_every_number_of_members() {
    for members in (2..=33).chain([47, 63, 64, 65, 100]) {
        let lengths = [0, 16, 48, 160];
        let folded = [Kind::AllReduce, Kind::ReduceScatter]
            .into_iter()
            .flat_map(|kind| lengths.map(|bytes| new_call(kind, 0, bytes)));
        let calls: Vec<Call> = folded
            .flat_map(|call| [call, commuting(call), new_call(Kind::Barrier, 0, 0)])
            .collect();
        let settings = with(settings(members, 2, 3), |it| it.exchange_bytes = 48);
        run(&settings, &calls, 3, u64::from(members));
    }
}

#[test]
fn long_operations_with_every_number_of_members_and_root() {
    for members in (2..=24).chain([31, 32, 33, 47, 64]) {
        let roots = (0..members).step_by(1 + members as usize / 8);
        let with_root = roots.flat_map(|root| ROOTED.map(|kind| new_call(kind, root, 320)));
        // Chunks of a ring are of different lengths, and some of no bytes.
        let without = [
            new_call(Kind::AllReduce, 0, 320),
            new_call(Kind::AllReduce, 0, u64::from(members) * 80 + 48),
            new_call(Kind::AllGather, 0, 320),
            new_call(Kind::ReduceScatter, 0, 320),
        ];
        let calls: Vec<Call> =
            with_root.chain(without).flat_map(|call| [call, commuting(call)]).collect();
        let settings = with(with_long(settings(members, 4, 1)), |it| it.long_bytes = 1);
        assert!(calls.iter().all(|call| settings.choice(call).way.is_long()), "{members}");
        run(&settings, &calls, 3, u64::from(members));
    }
}

/// Chunks of any lengths, also of none, in blocks of one element and of several.
#[test]
fn halving_with_every_number_of_members() {
    for members in (2..=24).chain([31, 32, 33, 47, 64]) {
        let calls: Vec<Call> = [1, 2, 5, 20, 3 * u64::from(members) + 1]
            .into_iter()
            .flat_map(|elements| {
                let bytes = elements * ELEMENT_BYTES as u64;
                let gathered = new_call(Kind::AllGather, 0, bytes.div_ceil(members.into()));
                let part = elements.div_ceil(members.into()) * ELEMENT_BYTES as u64;
                [(Kind::AllReduce, bytes), (Kind::ReduceScatter, part)]
                    .map(|(kind, bytes)| commuting(new_call(kind, 0, bytes)))
                    .into_iter()
                    .chain([gathered])
            })
            .collect();
        for (call, block_bytes) in calls.iter().flat_map(|call| [(call, 1), (call, 50)]) {
            let settings = with(settings(members, 2, 3), |it| {
                (it.long_bytes, it.block_bytes) = (call.all_bytes(members), block_bytes);
            });
            assert_eq!(settings.choice(call).way, Way::Halving);
            run(&settings, &[*call; 3], 2, u64::from(members));
        }
    }
}

/// Parts along the tree of a scatter, in blocks that hold several parts, or less than one.
#[test]
fn parts_in_blocks_with_every_number_of_members_and_root() {
    for members in (2..=24).chain([31, 32, 33, 47, 64]) {
        let roots = (0..members).step_by(1 + members as usize / 8);
        let calls: Vec<Call> = roots
            .flat_map(|root| [Kind::Scatter, Kind::Gather].map(|kind| new_call(kind, root, 24)))
            .collect();
        for (block_bytes, way) in [(10, Way::Direct), (10, Way::Circulant), (70, Way::Circulant)] {
            let settings = with(settings(members, 2, 3), |it| {
                it.long_bytes = if way == Way::Direct { 24 } else { 25 };
                it.block_bytes = block_bytes;
            });
            let is_linked = members <= ALL_PAIRS_MAX || way != Way::Direct;
            assert!(!is_linked || calls.iter().all(|call| settings.choice(call).way == way));
            run(&settings, &calls, 3, u64::from(members));
        }
    }
}

/// A function that commutes and is not associative, as sums of floating-point numbers: whatever comes first.
#[test]
fn results_are_the_same_at_all_members_and_in_all_runs() {
    for members in [2, 3, 5, 8, 13] {
        let by_costs = |text: &str| WaySelection::ByCosts(text.parse::<WriteCosts>().unwrap());
        let thresholds =
            Thresholds { degree: 3, exchange_bytes: 0, long_bytes: u64::MAX, block_bytes: 32 };
        for ways in [
            WaySelection::ByThresholds(thresholds),
            WaySelection::ByThresholds(Thresholds { exchange_bytes: 1 << 20, ..thresholds }),
            WaySelection::ByThresholds(Thresholds { long_bytes: 1, ..thresholds }),
            WaySelection::ByThresholds(Thresholds { long_bytes: 900, ..thresholds }),
            by_costs("Tt=0.01"),
            by_costs("Tt=1"),
        ] {
            let settings = Settings { ways, ..settings(members, 3, 3) };
            let call = Call::folding(Kind::AllReduce, 0, 60 * ELEMENT_BYTES as u64, &blends());
            let results = |seed| {
                let mut world = World::new(&settings, seed);
                assert_eq!(world.run(&[call; 3], 2, |_, _, call| call), Ok(true));
                world.results
            };
            let first = results(1);
            for operation in 0..3 {
                let of = |rank| &first[&(operation, rank)];
                assert!((0..members).all(|rank| of(rank) == of(0)), "{ways}");
            }
            assert!((2..6).all(|seed| results(seed) == first), "{ways}, {members} members");
        }
    }
}

/// Every counter of slots wraps many times, and members run ahead of others.
#[test]
fn seventy_thousand_operations_of_mixed_kinds() {
    let mut dice = Dice(70);
    let calls: Vec<Call> = (0..70_000).map(|_| any_call(&mut dice, 5)).collect();
    let settings = with_long(settings(5, 3, 3));
    let long = calls.iter().filter(|call| settings.choice(call).way.is_long()).count();
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
        let settings = with(settings(members, slots, degree), |it| it.exchange_bytes = exchange_bytes);
        run(&if seed % 2 == 0 { settings } else { with_long(settings) }, &calls, ahead, seed);
    }

    /// Whatever is the fastest where a byte costs so much.
    #[test]
    fn any_costs(members in 1_u32..20, byte in 0.0..20.0_f64, fold in 0.0..2.0_f64, seed: u64) {
        let mut dice = Dice(seed);
        let calls: Vec<Call> = (0..20).map(|_| any_call(&mut dice, members)).collect();
        let costs = WriteCosts {
            transmit_us_per_byte: byte,
            fold_us_per_byte: fold,
            work_us: 1.0,
            members_per_core: (seed % 4) as f64,
            ..WriteCosts::PAPER
        };
        run(&Settings { ways: WaySelection::ByCosts(costs), ..settings(members, 3, 3) }, &calls, 4, seed);
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
