//! Valid and invalid arguments.

use schedule::{Algorithm, MAX_MEMBERS, Schedule, ScheduleError, lower_bound_steps};

#[test]
fn both_sides_of_each_limit() {
    let new = |members, root| Schedule::new(Algorithm::Chain, members, root).map(|_| ());
    assert_eq!(new(1, 0), Ok(()));
    assert_eq!(new(MAX_MEMBERS, MAX_MEMBERS - 1), Ok(()));
    assert_eq!(new(0, 0), Err(ScheduleError::Members { members: 0 }));
    assert_eq!(new(MAX_MEMBERS + 1, 0), Err(ScheduleError::Members { members: 1_048_577 }));
    assert_eq!(new(3, 3), Err(ScheduleError::Root { root: 3, members: 3 }));
}

#[test]
fn both_sides_of_each_limit_with_racks() {
    for algorithm in Algorithm::ALL {
        let new = |racks: &[u32], root| Schedule::with_racks(algorithm, racks, root).map(|_| ());
        assert_eq!(new(&[9], 0), Ok(()));
        assert_eq!(new(&[], 0), Err(ScheduleError::Members { members: 0 }));
        assert_eq!(new(&[1, 2], 2), Err(ScheduleError::Root { root: 2, members: 2 }));
    }
}

#[test]
fn rack_algorithms_ask_for_racks() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.needs_racks()) {
        let error = Schedule::new(algorithm, 8, 0).unwrap_err();
        assert_eq!(error, ScheduleError::RacksNeeded { algorithm });
        assert!(error.to_string().contains("give the racks"), "{error}");
    }
}

#[test]
fn racks_are_numbered_from_the_roots() {
    for algorithm in Algorithm::ALL {
        let plan = Schedule::with_racks(algorithm, &[7, 3, 7, 9, 3], 3).unwrap();
        let racks = [0, 1, 2, 3, 4].map(|rank| plan.rack(rank));
        let expected = [1, 2, 1, 0, 2].map(|rack| algorithm.needs_racks().then_some(rack));
        assert_eq!((racks, plan.rack(5)), (expected, None), "{algorithm}");
    }
}

#[test]
fn the_lower_bound_at_its_edges() {
    assert_eq!(lower_bound_steps(0, 5), 0);
    assert_eq!(lower_bound_steps(1, 5), 0);
    assert_eq!(lower_bound_steps(5, 0), 0);
    assert_eq!(lower_bound_steps(2, 1), 1);
    assert_eq!(lower_bound_steps(MAX_MEMBERS, u32::MAX), (1 << 32) - 2 + 20);
    assert_eq!(lower_bound_steps(u32::MAX, 1), 32);
}

/// The longest possible schedule does not overflow: 2^32-1 blocks one after another to each of
/// 2^20-1 members.
#[test]
fn the_longest_schedule_has_the_right_number_of_steps() {
    let plan = Schedule::new(Algorithm::Sequential, MAX_MEMBERS, 0).unwrap();
    let steps = u64::from(u32::MAX) * u64::from(MAX_MEMBERS - 1);
    assert_eq!(plan.steps(u32::MAX), steps);
    let last = plan.send_at(0, steps - 1, u32::MAX).unwrap();
    assert_eq!((last.target, last.block), (MAX_MEMBERS - 1, u32::MAX - 1));
    assert_eq!(plan.send_at(0, steps, u32::MAX), None);
}
