//! Which way an operation goes, and what the ways cost that the paper does not have.

use collective::{
    Call, Choice, Chunks, Function, HEADER_BYTES, Halving, Kind, Op, Partners, Reduction,
    RingRounds, Settings, Thresholds, Type, Way, WaySelection,
    model::{
        Bounds, Team, WriteCosts, broadcast_us, chain_allreduce_us, circulant_us, direct_us,
        exchange_us, halving_allgather_us, halving_allreduce_us, halving_reduce_scatter_us,
        line_reduce_us, ring_allgather_us, ring_allreduce_us, ring_reduce_scatter_us, scatter_us,
    },
};
use proptest::prelude::*;

const PAPER: &WriteCosts = &WriteCosts::PAPER;
const KIB: u64 = 1 << 10;

fn settings(members: u32, ways: WaySelection) -> Settings {
    let slot_bytes = 32 * KIB as u32 + HEADER_BYTES as u32;
    Settings { members, rank: 0, slots: 16, slot_bytes, ways }
}

fn call(kind: Kind, bytes: u64) -> Call {
    let sum = Reduction::new(Type::U8, Op::Sum).unwrap();
    Call::of(kind, 0, bytes, kind.folds().then_some(&sum))
}

fn way(kind: Kind, members: u32, bytes: u64) -> String {
    let settings = settings(members, WaySelection::ByThresholds(Thresholds::default()));
    settings.choice(&call(kind, bytes)).way.to_string()
}

fn team(members: u32, costs: &WriteCosts) -> Team<'_> {
    Team { members, slot_room_bytes: 32 * KIB as u32, costs }
}

fn time(way: Way, kind: Kind, members: u32, bytes: u64) -> Bounds {
    let length = if way.is_long() { 128 } else { 32 } * KIB;
    let call = call(kind, bytes);
    team(members, PAPER).bounds(&call, Choice::in_blocks(way, length, &call))
}

fn exchange(members: u32) -> Partners {
    Partners::new(members, true)
}

fn is_near(bounds: Bounds, best_us: f64, worst_us: f64) -> bool {
    (bounds.best_us - best_us).abs() < 1e-6 && (bounds.worst_us - worst_us).abs() < 1e-6
}

/// Both sides of each threshold.
#[test]
fn ways_by_length_and_members() {
    for (members, bytes, expected) in [
        (1, 1 << 30, "trees of degree 3"),
        (2, 0, "exchange"),
        (2, 128 * KIB - 1, "exchange"),
        (2, 128 * KIB, "ring"),
        (3, 0, "exchange"),
        (3, 16 * KIB, "exchange"),
        (3, 16 * KIB + 1, "trees of degree 3"),
        (3, 128 * KIB, "ring"),
        (64, 16 * KIB, "exchange"),
        (64, 16 * KIB + 1, "trees of degree 3"),
        // Each member folds 4 KiB at least.
        (64, 256 * KIB - 1, "halving"),
        (64, 256 * KIB, "ring"),
        (64, 1 << 30, "ring"),
    ] {
        assert_eq!(way(Kind::AllReduce, members, bytes), expected, "{members} {bytes}");
    }
    for (members, bytes, expected) in [
        (1, 1 << 30, "trees"),
        (2, 128 * KIB - 1, "trees"),
        (2, 128 * KIB, "circulant"),
        (64, 0, "trees"),
        (64, 1 << 30, "circulant"),
    ] {
        assert_eq!(way(Kind::Broadcast, members, bytes), expected, "{members} {bytes}");
    }
    assert_eq!(way(Kind::Reduce, 4, 4), "trees of degree 3");
    assert_eq!(way(Kind::Reduce, 4, 128 * KIB), "ring");
    assert_eq!(way(Kind::AllGather, 4, 32 * KIB), "ring");
    assert_eq!(way(Kind::Barrier, 8, 0), "exchange");
    assert_eq!(way(Kind::Barrier, 9, 0), "exchange");
    assert_eq!(way(Kind::AllGather, 64, 2 * KIB), "halving");
    assert_eq!(way(Kind::AllGather, 64, 4 * KIB), "ring");
    assert_eq!(way(Kind::ReduceScatter, 64, 256), "exchange");
    assert_eq!(way(Kind::ReduceScatter, 64, 257), "trees of degree 3");
    assert_eq!(way(Kind::ReduceScatter, 64, 2 * KIB), "halving");
    assert_eq!(way(Kind::ReduceScatter, 64, 4 * KIB), "ring");
    for kind in [Kind::Scatter, Kind::Gather] {
        assert_eq!(way(kind, 32, 4 * KIB - 1), "trees");
        assert_eq!(way(kind, 32, 4 * KIB), "direct");
        assert_eq!(way(kind, 33, 4 * KIB), "circulant");
    }
    let keep_left = Function::new("left", 1, |_, _| ()).unwrap();
    for kind in [Kind::AllReduce, Kind::Reduce, Kind::ReduceScatter] {
        let call = Call::of(kind, 0, 128 * KIB, Some(&keep_left.clone().into()));
        let ways = WaySelection::ByThresholds(Thresholds::default());
        assert_eq!(settings(4, ways).choice(&call).way, Way::Chain);
    }
}

/// The ranks whose contributions a member has, in the order in which they are folded.
fn exchanged(partners: &Partners, members: u32) -> Vec<Vec<u32>> {
    let mut has: Vec<Vec<u32>> = (0..members).map(|rank| vec![rank]).collect();
    for step in 0..partners.steps() {
        let before = has.clone();
        for rank in 0..members {
            let meeting = partners.at(rank, step);
            if let Some(to) = meeting.to {
                assert_eq!(partners.at(to, step).from, Some(rank));
            }
            let Some(from) = meeting.from else { continue };
            assert_eq!(partners.at(from, step).to, Some(rank));
            let (theirs, ours) = (before[from as usize].clone(), &mut has[rank as usize]);
            let own = std::mem::take(ours);
            *ours = match meeting.folds {
                false => theirs,
                true if from < rank => [theirs, own].concat(),
                true => [own, theirs].concat(),
            };
        }
    }
    has
}

#[test]
fn exchanges_fold_all_contributions_in_order_at_all_members() {
    assert_eq!(
        [1, 2, 3, 4, 7, 8, 9].map(|members| exchange(members).steps()),
        [0, 1, 3, 2, 4, 3, 5]
    );
    for members in (1..=70).chain([127, 128, 129, 1000]) {
        let all: Vec<u32> = (0..members).collect();
        let partners = exchange(members);
        assert!(exchanged(&partners, members).iter().all(|has| *has == all), "{members}");
        let writes =
            (0..partners.steps()).flat_map(|step| (0..members).map(move |rank| (rank, step)));
        let writes = writes.filter(|&(rank, step)| partners.at(rank, step).to.is_some()).count();
        assert_eq!(partners.writes(), writes as u64);
    }
}

#[test]
fn barriers_know_of_all_members() {
    for members in (1..=70).chain([127, 128, 129, 1000]) {
        let partners = Partners::new(members, false);
        assert_eq!(partners.steps(), members.next_power_of_two().ilog2());
        assert_eq!(partners.writes(), u64::from(members * partners.steps()));
        for mut has in exchanged(&partners, members) {
            has.sort_unstable();
            has.dedup();
            assert_eq!(has.len() as u32, members);
        }
    }
}

#[test]
fn halving_folds_each_chunk_once_at_each_member() {
    assert_eq!(Halving::new(1).rounds(), 0);
    for members in (2_u32..=40).chain([63, 64]) {
        let halving = Halving::new(members);
        assert_eq!(halving.rounds(), 2 * members.next_power_of_two().ilog2());
        let ranks = |chunks: Chunks| {
            (0..chunks.count).map(move |index| ((chunks.first + index) % members) as usize)
        };
        // By member and chunk: bits of the contributions that are folded there.
        let mut has: Vec<Vec<u64>> =
            (0..members).map(|rank| vec![1 << rank; members as usize]).collect();
        let mut sent = vec![0; members as usize];
        for round in 0..halving.rounds() {
            let before = has.clone();
            for rank in 0..members {
                let from = halving.from(rank, round);
                assert_eq!(halving.to(from, round), rank);
                assert_eq!(halving.sent(from, round), halving.received(rank, round));
                sent[rank as usize] += halving.sent(rank, round).count;
                for chunk in ranks(halving.received(rank, round)) {
                    let theirs = before[from as usize][chunk];
                    let ours = &mut has[rank as usize][chunk];
                    assert!(!halving.folds(round) || *ours & theirs == 0, "folded twice");
                    *ours = if halving.folds(round) { *ours | theirs } else { theirs };
                }
            }
        }
        let all = u64::MAX >> (64 - members);
        assert!(has.iter().flatten().all(|&folded| folded == all), "{members} members");
        assert!(sent.iter().all(|&chunks| chunks == 2 * (members - 1)), "{members} members");
    }
}

#[test]
fn rounds_of_a_ring_fold_each_chunk_once_at_each_member() {
    assert_eq!(RingRounds::new(1).rounds(), 0);
    for members in [2_u32, 3, 8, 64] {
        let rounds = RingRounds::new(members);
        // By member and chunk: bits of the contributions that are folded there.
        let mut has: Vec<Vec<u64>> =
            (0..members).map(|rank| vec![1 << rank; members as usize]).collect();
        for round in 0..rounds.rounds() {
            let before = has.clone();
            for rank in 0..members {
                let from = (rank + members - 1) % members;
                let chunk = rounds.received(rank, round) as usize;
                assert_eq!(rounds.sent(from, round) as usize, chunk);
                let (theirs, ours) = (before[from as usize][chunk], &mut has[rank as usize][chunk]);
                assert!(!rounds.folds(round) || *ours & theirs == 0, "folded twice");
                *ours = if rounds.folds(round) { *ours | theirs } else { theirs };
            }
        }
        let all = u64::MAX >> (64 - members);
        assert!(has.iter().flatten().all(|&folded| folded == all), "{members} members");
    }
}

/// With the paper's costs a word takes 8.94 us, and 1,000 B 10 us on the wire.
#[test]
fn times_by_hand() {
    let two_steps_us = 2.0 * (8.94 + 10.0 + 2.0 * 2.7);
    assert!((exchange_us(exchange(4), 1000, 3072, PAPER) - two_steps_us).abs() < 1e-6);
    // Three blocks, the last of 500 B, over one hop; three hops.
    let last_us = 8.94 + 5.0;
    assert!(is_near(
        circulant_us(2, 2500, 1000, PAPER),
        8.94 + 2.0 * 10.0 + last_us,
        8.94 + 2.0 * 18.94 + last_us
    ));
    assert!(is_near(
        circulant_us(5, 2500, 1000, PAPER),
        8.94 + 3.0 * 18.94 + 2.0 * 10.0,
        8.94 + 5.0 * 18.94
    ));
    // Six rounds of a block: each waits for the one before.
    let us = 8.94 + 6.0 * 18.94;
    assert!(is_near(ring_allreduce_us(4, 4000, 1000, PAPER), us, us));
    // Ten blocks in each round, 2 us apart for the DMA start; a word and 1 us for each alone.
    assert!(is_near(
        ring_allreduce_us(4, 4000, 100, PAPER),
        8.94 + 5.0 * 20.0 + 9.0 * 2.0 + 9.94,
        8.94 + 60.0 * 9.94
    ));
    let folding = &WriteCosts { fold_us_per_byte: 0.02, ..*PAPER };
    assert!(is_near(
        line_reduce_us(3, 2000, 1000, folding),
        8.94 + 2.0 * 38.94 + 20.0,
        8.94 + 3.0 * 38.94
    ));
    // Three parts of a block each, from the root or in two rounds of two and one.
    assert!(is_near(direct_us(4, 1000, 1000, PAPER), 8.94 + 20.0 + 18.94, 8.94 + 3.0 * 18.94));
    let rounds_us = 2.0 * 8.94 + 30.0 + 2.0 * 2.0 * 2.7 + 1.9;
    assert!((scatter_us(4, 1000, 1000, PAPER) - rounds_us).abs() < 1e-6);
    let us = 8.94 + 3.0 * 38.94;
    assert!(is_near(ring_reduce_scatter_us(4, 1000, 1000, folding), us, us));
    // Four hops, two of which fold; the member between sends each block twice.
    assert!(is_near(
        chain_allreduce_us(3, 2000, 1000, folding),
        8.94 + 4.0 * 18.94 + 2.0 * 10.0 + 2.0 * 20.0,
        8.94 + 6.0 * 18.94 + 2.0 * 20.0
    ));
}

/// Where one way becomes better than another, in the paper's network.
#[test]
fn crossovers() {
    for members in [2, 4, 16, 64] {
        // Half the hops of a reduction of degree 1 and a broadcast; fewer than of any degree with more than two members.
        for bytes in [0, 4, KIB, 16 * KIB] {
            let exchanged = time(Way::Exchange, Kind::AllReduce, members, bytes);
            for degree in [1, 3, 7, 15] {
                let trees = Way::Trees { degree: Some(degree) };
                let by_trees = time(trees, Kind::AllReduce, members, bytes);
                assert!(exchanged.worst_us < by_trees.best_us, "{members} {degree} {bytes}");
            }
        }
    }
    // A ring has 30 rounds and two messages on each wire, an exchange 4 rounds and four messages, which are copied.
    let ring_gains = |bytes| {
        let exchanged = time(Way::Exchange, Kind::AllReduce, 16, bytes);
        time(Way::Ring, Kind::AllReduce, 16, bytes).worst_us < exchanged.best_us
    };
    assert!(!ring_gains(5 * KIB) && ring_gains(6 * KIB));
    // Blocks are not copied, and wait for a grant: 8.94 us, or what 414 B cost to be copied at four hops.
    let blocks_gain = |bytes| {
        let trees = broadcast_us(16, bytes, 32 * KIB, PAPER);
        time(Way::Circulant, Kind::Broadcast, 16, bytes).best_us < trees
    };
    assert!(!blocks_gain(413) && blocks_gain(414));
    // A chain has more hops, and sends each block twice.
    for members in [2, 3, 64] {
        let [ring, chain] =
            [Way::Ring, Way::Chain].map(|way| time(way, Kind::AllReduce, members, 1 << 20));
        assert!(ring.best_us < chain.best_us, "{members}");
    }
}

#[test]
fn one_member_has_nothing_to_wait_for() {
    for kind in [
        Kind::Broadcast,
        Kind::Reduce,
        Kind::AllReduce,
        Kind::AllGather,
        Kind::Barrier,
        Kind::ReduceScatter,
        Kind::Scatter,
    ] {
        let bytes = if kind == Kind::Barrier { 0 } else { 1 << 20 };
        let call = call(kind, bytes);
        for choice in team(1, PAPER).possible(&call) {
            let us = team(1, PAPER).bounds(&call, choice);
            let copies_us = if choice.way == Way::Exchange { 0.0 } else { us.worst_us };
            assert!(us.worst_us <= copies_us && !choice.way.is_long(), "{kind} {choice:?}: {us:?}");
        }
    }
    let barrier = time(Way::Exchange, Kind::Barrier, 4, 0);
    assert!(is_near(barrier, 2.0 * 8.94, 2.0 * 8.94));
    assert!(is_near(time(Way::Exchange, Kind::Barrier, 5, 0), 3.0 * 8.94, 3.0 * 8.94));
}

/// 1 GiB: what members send alone counts.
#[test]
fn long_messages_take_the_time_of_their_bytes() {
    let wire_us = PAPER.transmit_us_per_byte * (1_u64 << 30) as f64;
    for (members, ring) in [(2, 1.0), (64, 2.0 * 63.0 / 64.0)] {
        for (way, kind, factor) in [
            (Way::Circulant, Kind::Broadcast, 1.0),
            (Way::Ring, Kind::Reduce, 1.0),
            (Way::Ring, Kind::AllReduce, ring),
            (Way::Ring, Kind::ReduceScatter, f64::from(members - 1)),
            (Way::Halving, Kind::ReduceScatter, f64::from(members - 1)),
            (Way::Direct, Kind::Scatter, f64::from(members - 1)),
            (Way::Circulant, Kind::Gather, f64::from(members - 1)),
        ] {
            let Bounds { best_us, worst_us } = time(way, kind, members, 1 << 30);
            let least_us = factor * wire_us;
            assert!(least_us <= best_us && worst_us < 1.03 * least_us, "{kind} {members}");
        }
    }
}

proptest! {
    #[test]
    fn any_length(
        members in 1_u32..=64,
        bytes in 0..1_u64 << 24,
        block in 1..1_u64 << 20,
        fold in 0.0..0.1_f64,
    ) {
        let costs = &WriteCosts { fold_us_per_byte: fold, ..*PAPER };
        let ways = [
            circulant_us,
            ring_allreduce_us,
            line_reduce_us,
            chain_allreduce_us,
            halving_allreduce_us,
            halving_allgather_us,
            ring_allgather_us,
            halving_reduce_scatter_us,
            ring_reduce_scatter_us,
            direct_us,
        ];
        for (index, way) in ways.into_iter().enumerate() {
            let (now, longer) = (way(members, bytes, block, costs), way(members, bytes + 1, block, costs));
            let rounding = 1.0 + 1e-12;
            prop_assert!(now.best_us <= now.worst_us * rounding, "{index}: {now:?}");
            prop_assert!(now.best_us <= longer.best_us * rounding, "{index}: {now:?} {longer:?}");
            prop_assert!(now.worst_us <= longer.worst_us * rounding, "{index}: {now:?} {longer:?}");
            let more_members = way(members + 1, bytes, block, costs);
            let is_divided = [1, 4].contains(&index);
            // With more members chunks may fit into fewer blocks.
            prop_assert!(is_divided || now.best_us <= more_members.best_us * rounding, "{index}");
        }
    }
}
