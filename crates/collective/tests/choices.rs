//! Which way is taken: the fastest by the model, whatever the network costs.

use collective::{
    Call, Choice, HEADER_BYTES, Kind, Op, Reduction, Settings, Type, Way, WaySelection,
    model::{Team, WriteCosts},
};
use proptest::prelude::*;

const ROOM: u32 = 32 << 10;

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

fn call(kind: Kind, bytes: u64, commutes: bool) -> Call {
    let element = Reduction::new(Type::F32, Op::Sum).unwrap();
    let mut call = match kind {
        _ if kind.folds() => Call::folding(kind, 0, bytes / 4 * 4, &element),
        Kind::Barrier => Call::new(kind, 0, 0),
        _ => Call::new(kind, 0, bytes),
    };
    if let Some(folding) = &mut call.folding {
        folding.is_commutative = commutes;
    }
    call
}

/// From a thousandth of the paper's costs to ten times as much.
fn any_costs() -> impl Strategy<Value = WriteCosts> {
    let us = |from: f64, to: f64| (from.ln()..to.ln()).prop_map(f64::exp);
    let whole = (us(0.01, 20.0), us(0.01, 20.0), us(0.01, 10.0), us(0.01, 10.0), us(0.01, 20.0));
    let per_byte = (us(1e-5, 0.1), us(1e-6, 0.01), us(1e-6, 0.01));
    (whole, per_byte, 0.0..16.0_f64).prop_map(|(us, per_byte, members_per_core)| WriteCosts {
        transmit_us_per_byte: per_byte.0,
        copy_us_per_byte: per_byte.1,
        fold_us_per_byte: per_byte.2,
        dma_start_us: us.0,
        adapter_us: us.1,
        post_us: us.2,
        library_us: us.3,
        work_us: us.4,
        members_per_core,
        ..WriteCosts::PAPER
    })
}

/// Every way, with every degree that a team is linked for, and blocks of all lengths, 10 % apart.
fn all(team: &Team<'_>, call: &Call) -> Vec<Choice> {
    let mut all = team.possible(call);
    let mut long: Vec<Way> = all.iter().map(|it| it.way).filter(|way| way.is_long()).collect();
    long.dedup();
    for way in long {
        let mut length = 1024.0;
        while length <= f64::from(4 << 20) {
            all.push(Choice::in_blocks(way, length as u64, call));
            length *= 1.1;
        }
    }
    all
}

fn taken(members: u32, call: &Call, costs: &WriteCosts) -> Choice {
    let slot_bytes = ROOM + HEADER_BYTES as u32;
    let ways = WaySelection::ByCosts(*costs);
    Settings { members, rank: members / 2, slots: 16, slot_bytes, ways }.choice(call)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_taken_is_nearly_the_fastest(
        members in prop_oneof![2_u32..=64, 2_u32..=1_024],
        bits in 2_u32..=24,
        more in 0.0..1.0_f64,
        kind in 0..KINDS.len(),
        commutes: bool,
        costs in any_costs(),
    ) {
        let bytes = ((1_u64 << bits) as f64 * (1.0 + more)) as u64;
        let call = call(KINDS[kind], bytes.min(16 << 20), commutes);
        let team = Team { members, slot_room_bytes: ROOM, costs: &costs };
        let choice = taken(members, &call, &costs);
        let taken_us = team.time_us(&call, choice);
        for other in all(&team, &call) {
            let us = team.time_us(&call, other);
            prop_assert!(taken_us <= 1.15 * us, "{call:?}: {choice:?} {taken_us}, {other:?} {us}");
        }
    }

    /// Each member computes it for itself, from costs that were transmitted.
    #[test]
    fn all_members_choose_alike(
        members in 2_u32..=1_024,
        bytes in 4..16_u64 << 20,
        kind in 0..KINDS.len(),
        costs in any_costs(),
    ) {
        let call = call(KINDS[kind], bytes, true);
        prop_assert_eq!(costs.to_string().parse(), Ok(costs));
        // As rank 0 takes them, too.
        let costs = WriteCosts::of_values(costs.values()).unwrap();
        let values = costs.values().map(f32::to_le_bytes).map(f32::from_le_bytes);
        let other = WriteCosts::of_values(values);
        prop_assert_eq!(other, Some(costs));
        let rank = members - 1;
        let slot_bytes = ROOM + HEADER_BYTES as u32;
        let ways = WaySelection::ByCosts(other.unwrap());
        let there = Settings { members, rank, slots: 16, slot_bytes, ways }.choice(&call);
        prop_assert_eq!(taken(members, &call, &costs), there);
    }
}

/// Between hosts with a core for each member, and with several members for each.
#[test]
fn ways_follow_costs() {
    let way = |costs: &str, kind, members, bytes| {
        taken(members, &call(kind, bytes, true), &costs.parse().unwrap()).way.to_string()
    };
    assert_eq!(way("Tt=0.01", Kind::AllReduce, 16, 4), "exchange");
    assert_eq!(way("Tt=0.01", Kind::AllReduce, 16, 64 << 10), "halving");
    assert_eq!(way("Tt=0.01", Kind::AllReduce, 1_000, 20_000), "halving");
    assert_eq!(way("Tt=0.01", Kind::Broadcast, 16, 4), "trees");
    assert_eq!(way("Tt=0.01", Kind::Broadcast, 16, 1 << 20), "circulant");
    assert_eq!(way("Tt=0.01", Kind::Barrier, 9, 0), "exchange");
    assert_eq!(way("Tt=0.01", Kind::ReduceScatter, 16, 4), "exchange");
    assert_eq!(way("Tt=0.01", Kind::ReduceScatter, 16, 4 << 10), "halving");
    assert_eq!(way("Tt=0.01", Kind::Scatter, 16, 4), "trees");
    assert_eq!(way("Tt=0.01", Kind::Gather, 100, 64 << 10), "circulant");
    assert_eq!(way("Tt=0.01,Tw=10,Mc=8", Kind::Gather, 16, 1 << 20), "direct");
    // Trees have half as many writes, or fewer.
    assert_eq!(way("Tt=0.01,Tw=10,Mc=8", Kind::AllReduce, 16, 4), "trees of degree 3");
}

#[test]
fn ways_as_text() {
    for text in [
        "Tt=0.01,Tc=0.0027,Ts=2,Tn=1.52,Td=0.6,Tm=1.3,Ta=0,To=0,Tw=3,Mc=0.5",
        "degree=7,exchange=0,long=65536,block=4096",
    ] {
        assert_eq!(text.parse::<WaySelection>().unwrap().to_string(), text);
    }
    assert_eq!(
        "block=9".parse::<WaySelection>().unwrap().to_string(),
        "degree=3,exchange=16384,long=131072,block=9"
    );
    for (text, error) in [
        ("block=0", "block is \"0\"; use 1 to 1073741824"),
        ("degree=70000", "degree is \"70000\"; use 1 to 65536"),
        ("long=-1", "long is \"-1\"; use a number of bytes"),
        (
            "long=1,Tt=1",
            "\"Tt=1\" is none of degree, exchange, long and block with a number; use for example degree=3,exchange=0",
        ),
        ("Mc=-1", "\"-1\" is not a time for Mc; use microseconds, such as 0.01"),
    ] {
        assert_eq!(text.parse::<WaySelection>().unwrap_err().to_string(), error);
    }
}

#[test]
fn values_of_others_are_checked() {
    let values = WriteCosts::PAPER.values();
    for (index, value) in [(0, f32::NAN), (3, -0.0), (9, f32::INFINITY), (5, -1.0)] {
        let mut values = values;
        values[index] = value;
        assert_eq!(WriteCosts::of_values(values), None);
    }
}
