//! Mismatched calls are detected, and the error names the operation and the member.

use collective::{
    Call, Difference, Fault, Header, Kind, Member, Op, Reduction, Ring, Settings, Thresholds, Type,
    WaySelection,
};
use proptest::prelude::*;

use crate::world::World;

fn settings(members: u32, long_bytes: u64) -> Settings {
    let slot_bytes = Settings::SLOT_BYTES_MIN + 16;
    let thresholds = Thresholds { degree: 3, exchange_bytes: 40, long_bytes, block_bytes: 20 };
    Settings {
        members,
        rank: 0,
        slots: 4,
        slot_bytes,
        ways: WaySelection::ByThresholds(thresholds),
    }
}

/// Runs five broadcasts, of which member `other` calls the third differently. Returns who has found out what, from writes or
/// else by comparing calls. Messages of `long_bytes` and more are long.
fn found(members: u32, other: u32, different: Call, long_bytes: u64, seed: u64) -> (u32, Fault) {
    let calls = [Call::new(Kind::Broadcast, 0, 32); 5];
    let mut world = World::new(&settings(members, long_bytes), seed);
    let outcome = world.run(
        &calls,
        2,
        |rank, index, call| {
            if (rank, index) == (other, 2) { different } else { call }
        },
    );
    match outcome {
        Err(found) => found,
        Ok(_) => world.compare_calls().expect_err("the mismatch was not detected"),
    }
}

proptest! {
    #[test]
    fn are_found_and_named(members in 2_u32..12, other: u32, seed: u64, which in 0_usize..8, long in 0_usize..3) {
        let other = other % members;
        let different = [
            Call::new(Kind::AllReduce, 0, 32),
            Call::new(Kind::Broadcast, 1, 32),
            Call::new(Kind::Broadcast, 0, 48),
            Call::new(Kind::Barrier, 0, 0),
            Call::new(Kind::Scatter, 0, 32),
            Call::new(Kind::Gather, 1, 32),
            Call::folding(Kind::ReduceScatter, 0, 32, &Reduction::new(Type::U32, Op::Sum).unwrap()),
            Call::folding(Kind::Broadcast, 0, 32, &Reduction::new(Type::U32, Op::Sum).unwrap()),
        ][which];
        let (finder, fault) = found(members, other, different, [u64::MAX, 1, 40][long], seed);
        match fault {
            Fault::Disagreement { operation: 2, member, ours, theirs, difference } => {
                prop_assert!(finder == other || member == other, "{} found {}", finder, member);
                prop_assert_eq!(ours.difference(&theirs), Some(difference));
            }
            Fault::Skipped { operation: 2, member, .. } => {
                prop_assert!(finder == other || member == other, "{} found {}", finder, member);
            }
            fault => prop_assert!(false, "{}", fault),
        }
    }
}

/// Each of two members calls a broadcast with the other as root, so that neither writes.
#[test]
fn two_members_that_both_wait_are_found_by_comparing() {
    let calls = [Call::new(Kind::Broadcast, 0, 32)];
    let mut world = World::new(&settings(2, u64::MAX), 1);
    let outcome = world.run(&calls, 1, |rank, _, call| Call { root: 1 - rank, ..call });
    assert_eq!(outcome, Ok(false));
    assert_eq!(world.awaited(), [Some((0, vec![1])), Some((0, vec![0]))]);
    let (_, fault) = world.compare_calls().unwrap_err();
    assert!(matches!(&fault, Fault::Disagreement { difference: Difference::Root, .. }), "{fault}");
}

#[test]
fn members_that_leave_after_other_numbers_of_calls_are_named() {
    // The root waits for nobody: each operation is over when it is called.
    let call = Call::new(Kind::Broadcast, 0, 0);
    let member = |calls: u64| {
        let mut member = Member::new(settings(2, u64::MAX));
        assert!((0..calls).all(|_| member.start(call).is_ok()));
        member
    };
    let left = |theirs, ours| Err(Fault::Left { member: 1, theirs, ours });
    assert_eq!(member(2).left(1, 1), left(1, 2));
    let mut behind = member(1);
    assert_eq!(behind.left(1, 2), Ok(()), "it may call another");
    assert_eq!(behind.start(call), Ok(1));
    assert_eq!(behind.leave(), Ok(()));
    let mut ahead = member(1);
    assert_eq!(ahead.left(1, 1), Ok(()));
    assert_eq!(ahead.start(call).map(drop), left(1, 2));
    let mut leaves = member(1);
    assert_eq!(leaves.leave(), Ok(()));
    assert_eq!(leaves.left(1, 2), left(2, 1));
    assert_eq!(leaves.left(1, 1), Ok(()));
}

#[test]
fn members_that_grant_what_they_cannot_are_named() {
    let call = Call::new(Kind::Broadcast, 0, 64);
    let other = Call::new(Kind::Broadcast, 0, 65);
    // Has two blocks granted, for an operation that it has not called.
    let member = || {
        let mut member = Member::new(settings(2, 1));
        member.granted(1, 0, call, 2).unwrap();
        member
    };
    let mut called = member();
    called.start(call).unwrap();
    let is_named =
        |outcome: Result<(), Fault>| matches!(outcome, Err(Fault::Protocol { member: 1 | 7, .. }));
    assert!(is_named(member().granted(1, 0, call, 1)), "fewer than before");
    assert!(is_named(member().granted(7, 0, call, 3)), "no such member");
    assert!(is_named(called.granted(1, 0, call, 1)), "fewer than before");
    assert!(is_named(called.granted(1, 0, call, 5)), "the operation has four blocks");
    assert_eq!(called.granted(1, 0, call, 4), Ok(()));
    assert!(is_named(member().granted(1, 0, other, 3)), "another call than before");
    let mut ahead = member();
    ahead.granted(1, 1, other, 3).unwrap();
    assert!(is_named(ahead.granted(1, 0, call, 4)), "not in order");
    let mut without_end = member();
    let refused = (1..10_000).find(|&operation| {
        let outcome = without_end.granted(1, operation, call, 3);
        outcome.is_err_and(|fault| is_named(Err(fault)))
    });
    assert!(refused.is_some(), "what it remembers has no bound");
    let mut late = member();
    late.granted(1, 1, other, 3).unwrap();
    late.start(call).unwrap();
    let fault = late.start(call).unwrap_err();
    let Fault::Disagreement { operation: 1, member: 1, difference, .. } = fault else {
        panic!("{fault}")
    };
    assert_eq!(difference, Difference::Bytes);
}

/// What members never write.
#[test]
fn lying_members_are_named() {
    let call = Call::new(Kind::Broadcast, 0, 64);
    let member = || {
        let mut member = Member::new(Settings { rank: 1, ..settings(4, u64::MAX) });
        member.start(call).unwrap();
        member
    };
    let header = Header { operation: 0, call, offset: 0, bytes: 32, flag: 1 };
    assert_eq!(member().written(0, Ring::Down, 0, header), Ok(()));
    let lies = [
        (0, Ring::Down, 1, header),
        (0, Ring::Down, 0, Header { offset: 32, ..header }),
        (0, Ring::Down, 0, Header { bytes: 31, ..header }),
        (0, Ring::Up, 0, header),
        (2, Ring::Down, 0, header),
        (9, Ring::Down, 0, header),
        (1, Ring::Down, 0, header),
    ];
    for (from, ring, slot, header) in lies {
        let fault = member().written(from, ring, slot, header).unwrap_err();
        assert!(matches!(fault, Fault::Protocol { member, .. } if member == from), "{fault}");
    }
    let fault = member().freed(2, Ring::Down, 1).unwrap_err();
    assert!(matches!(fault, Fault::Protocol { member: 2, .. }), "{fault}");
    let mut member = member();
    for slot in 0..4 {
        // Of operations that this member has not called.
        let ahead = Header { operation: 7, ..header };
        assert_eq!(member.written(2, Ring::Up, slot, ahead), Ok(()));
    }
    let fault = member.written(2, Ring::Up, 0, header).unwrap_err();
    assert!(matches!(fault, Fault::Protocol { member: 2, .. }), "more than the ring has: {fault}");
}
