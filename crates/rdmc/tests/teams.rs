//! Teams of contexts in this process: operations from threads, what is refused, and the end.

use std::{
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use rdmc::{
    Error, FailureKind, Function, GroupSettings, Op, Progress, Region, Team, TeamFailure,
    TeamSettings, Type,
};

use crate::common::{PATIENCE, World, ends};

const SHORT: Duration = Duration::from_millis(300);

/// Creates a team of all contexts, and runs this at each member, on a thread of its own.
fn at_all<R: Send>(
    world: &World,
    change: impl Fn(u32, TeamSettings) -> TeamSettings + Sync,
    act: impl Fn(Team) -> R + Sync,
) -> Vec<R> {
    let (change, act) = (&change, &act);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(&world.contexts)
            .map(|(rank, context)| {
                let settings = TeamSettings::new(7, world.addresses.clone(), rank).ends(ends());
                let settings = change(rank, settings);
                scope.spawn(move || act(context.create_team(settings).unwrap()))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// What every member does in the tests of operations.
pub fn operations(team: &Team) {
    let (rank, members) = (team.rank(), team.members());
    let own = f64::from(rank);
    let sum_of_ranks = f64::from(members * (members - 1) / 2);
    for root in 0..members {
        let mut values = [f64::NAN, own];
        if rank == root {
            values[0] = 0.5;
        }
        team.broadcast(root, &mut values, PATIENCE).unwrap();
        assert_eq!(values, [0.5, f64::from(root)]);
    }
    // Longer than all slots of a ring.
    let mut long: Vec<f64> = (0..20_000).map(|at| own + f64::from(at)).collect();
    team.all_reduce(&mut long, Op::Sum, PATIENCE).unwrap();
    let expected = |at: u32| sum_of_ranks + f64::from(members) * f64::from(at);
    assert!((0..).zip(&long).all(|(at, value)| *value == expected(at)));
    let mut least = [rank as i16 - 3];
    team.reduce(members - 1, &mut least, Op::Min, PATIENCE).unwrap();
    assert_eq!(least[0], if rank == members - 1 { -3 } else { rank as i16 - 3 });
    let mut all = vec![0_u32; members as usize * 2];
    all[rank as usize * 2..][..2].copy_from_slice(&[rank, 100 + rank]);
    team.all_gather(&mut all, PATIENCE).unwrap();
    assert_eq!(all, (0..members).flat_map(|rank| [rank, 100 + rank]).collect::<Vec<_>>());
    parts(team, 3);
    // From memory to memory.
    parts(team, 40_000);
    team.barrier(PATIENCE).unwrap();
    team.broadcast(0, &mut [0_u8; 0], PATIENCE).unwrap();
}

/// Reduce-scatter, scatter and gather of this many values for each member.
fn parts(team: &Team, length: usize) {
    let (rank, members) = (team.rank() as usize, team.members());
    let whole: Vec<u32> = (0..(members as usize * length) as u32).collect();
    let own = rank * length..(rank + 1) * length;
    let mut values: Vec<u32> = whole.iter().map(|value| value + rank as u32).collect();
    team.reduce_scatter(&mut values, Op::Sum, PATIENCE).unwrap();
    let ranks = members * (members - 1) / 2;
    let expected = whole[own.clone()].iter().map(|value| value * members + ranks);
    assert!(values[own.clone()].iter().copied().eq(expected));
    for root in 0..members {
        let is_root = root == team.rank();
        let mut values = if is_root { whole.clone() } else { vec![0; length] };
        team.scatter(root, &mut values, PATIENCE).unwrap();
        assert_eq!(values, if is_root { &whole[..] } else { &whole[own.clone()] });
        if is_root {
            values.fill(0);
            values[own.clone()].copy_from_slice(&whole[own.clone()]);
        }
        team.gather(root, &mut values, PATIENCE).unwrap();
        assert_eq!(values, if is_root { &whole[..] } else { &whole[own.clone()] });
    }
}

/// Calls are made under a lock, which an abort must not wait for.
#[test]
fn an_abort_ends_a_call_that_waits_on_another_thread() {
    for bytes in [8, 1 << 20] {
        let world = World::start(2);
        let act = |team: Team| {
            if team.rank() == 1 {
                // Takes no part, and learns of the end; another operation might be noticed before that.
                let deadline = Instant::now() + PATIENCE;
                while team.failure().is_none() && Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(5));
                }
                return team.close(PATIENCE).unwrap_err();
            }
            thread::scope(|scope| {
                let reduce = || team.all_reduce(&mut vec![0_u8; bytes], Op::Max, PATIENCE);
                let call = scope.spawn(reduce);
                // Until the call has begun, most likely; the outcome is the same if it has not.
                thread::sleep(SHORT);
                team.abort("no time left");
                call.join().unwrap().unwrap_err()
            })
        };
        for failure in at_all(&world, |_, settings| settings, act) {
            let Error::TeamFailed(failure) = failure else { panic!("{failure}") };
            assert_eq!((failure.kind, failure.member), (FailureKind::Application, Some(0)));
            assert!(failure.detail.contains("no time left"), "{failure}");
        }
        world.close();
    }
}

#[test]
fn the_application_may_abort_while_a_call_asks_it() {
    let world = World::start(2);
    let act = |team: Team| {
        if team.rank() == 0 {
            let abort = team.abort_handle();
            team.stop_if(move || {
                abort("no time left");
                false
            });
        } else {
            // Member 0 waits for this one, until it is asked.
            while team.failure().is_none() {
                thread::yield_now();
            }
        }
        failure(team.barrier(PATIENCE))
    };
    for failure in at_all(&world, |_, settings| settings, act) {
        assert_eq!((failure.kind, failure.member), (FailureKind::Application, Some(0)));
        assert!(failure.detail.contains("no time left"), "{failure}");
    }
    world.close();
}

#[test]
fn members_of_which_one_calls_a_barrier_and_one_closes_are_named() {
    let world = World::start(2);
    let act = |team: Team| {
        if team.rank() == 0 {
            return failure(team.barrier(PATIENCE));
        }
        failure(team.close(PATIENCE))
    };
    for failure in at_all(&world, |_, settings| settings, act) {
        let said = &failure.detail;
        assert!(
            said.contains("close, not barrier") || said.contains("barrier, not close"),
            "{failure}"
        );
    }
    world.close();
}

#[test]
fn what_a_member_has_done_is_counted() {
    let world = World::start(2);
    // Short, and long enough for blocks.
    for bytes in [1000, 3 << 20] {
        let act = |team: Team| {
            team.broadcast(0, &mut vec![1_u8; bytes], PATIENCE).unwrap();
            team.barrier(PATIENCE).unwrap();
            let counted = team.counters();
            let rank = u64::from(team.rank());
            team.close(PATIENCE).unwrap();
            (rank, counted)
        };
        for (rank, counted) in at_all(&world, |_, settings| settings, act) {
            let bytes = bytes as u64;
            assert_eq!(counted.operations, 2);
            assert_eq!(counted.bytes_sent, bytes * (1 - rank), "{bytes} at {rank}");
            assert_eq!(counted.bytes_received, bytes * rank, "{bytes} at {rank}");
        }
    }
    world.close();
}

#[test]
fn operations_of_all_kinds_and_types() {
    for members in [1, 2, 5] {
        let world = World::start(members);
        at_all(
            &world,
            |_, settings| settings,
            |team| {
                operations(&team);
                team.close(PATIENCE).unwrap();
            },
        );
        world.close();
    }
}

#[test]
fn members_without_a_thread_drive_the_network_in_their_calls() {
    let world = World::start_with(3, |settings| settings.progress = Progress::Caller);
    at_all(
        &world,
        |_, settings| settings,
        |team| {
            operations(&team);
            team.close(PATIENCE).unwrap();
        },
    );
    world.close();
}

#[test]
fn teams_are_split_by_color_and_ordered_by_key() {
    let world = World::start(5);
    let contexts = &world.contexts;
    at_all(
        &world,
        |_, settings| settings,
        |team| {
            let (rank, context) = (team.rank(), &contexts[team.rank() as usize]);
            // Ranks 4, 2, 0 and 3, 1, in this order.
            let split = |color, key| context.split_team(&team, color, key, PATIENCE).unwrap();
            let part = split(Some(rank % 2), -i64::from(rank)).unwrap();
            assert_eq!(
                (part.members(), part.rank()),
                if rank % 2 == 0 { (3, 2 - rank / 2) } else { (2, 1 - rank / 2) }
            );
            operations(&part);
            let mut sum = [rank];
            part.all_reduce(&mut sum, Op::Sum, PATIENCE).unwrap();
            assert_eq!(sum, [if rank % 2 == 0 { 6 } else { 4 }]);
            // Ranks where keys are equal, and no team of its own for one of them. A part can be split again.
            let most = split((rank != 3).then_some(7), 0);
            assert_eq!(most.is_none(), rank == 3);
            let alone = context.split_team(&part, Some(part.rank()), 0, PATIENCE).unwrap().unwrap();
            assert_eq!((alone.members(), alone.rank()), (1, 0));
            if let Some(most) = most {
                assert_eq!((most.members(), most.rank()), (4, rank.min(3)));
                operations(&most);
                most.close(PATIENCE).unwrap();
            }
            alone.close(PATIENCE).unwrap();
            part.close(PATIENCE).unwrap();
            operations(&team);
            team.close(PATIENCE).unwrap();
        },
    );
    world.close();
}

/// The composition of affine maps does not commute.
#[test]
fn functions_of_the_users_are_folded_in_the_order_of_ranks() {
    let world = World::start(4);
    let compose = |left: &mut [u8], right: &[u8]| {
        for (left, right) in left.chunks_exact_mut(2).zip(right.chunks_exact(2)) {
            let (a, b) = (left[0], left[1]);
            left[0] = right[0].wrapping_mul(a);
            left[1] = right[0].wrapping_mul(b).wrapping_add(right[1]);
        }
    };
    let maps: Vec<[u8; 2]> = (0..4).map(|rank| [2 * rank + 3, rank + 1]).collect();
    let mut expected = maps[0];
    maps[1..].iter().for_each(|map| compose(&mut expected, map));
    let results = at_all(
        &world,
        |_, settings| settings.ways("degree=2,exchange=0".parse().unwrap()),
        |team| {
            let function = Function::new("compose maps", 2, compose).unwrap();
            let mut all = maps[team.rank() as usize];
            team.all_reduce_by(&mut all, &function, PATIENCE).unwrap();
            let mut at_root = maps[team.rank() as usize];
            team.reduce_by(2, &mut at_root, &function, PATIENCE).unwrap();
            let expected = if team.rank() == 2 { all } else { maps[team.rank() as usize] };
            assert_eq!(at_root, expected);
            team.close(PATIENCE).unwrap();
            all
        },
    );
    assert_eq!(results, [expected; 4]);
    world.close();
}

#[test]
fn started_operations_are_under_way_at_the_same_time() {
    for progress in [Progress::Thread, Progress::Caller] {
        let world = World::start_with(3, |settings| settings.progress = progress);
        at_all(
            &world,
            |_, settings| settings,
            |team| {
                let own = u64::from(team.rank());
                let started: Vec<_> = (0..50)
                    .map(|number| team.start_all_reduce(&[own + number, number], Op::Sum).unwrap())
                    .collect();
                team.barrier(PATIENCE).unwrap();
                for (number, pending) in (0..50).rev().zip(started.into_iter().rev()) {
                    let mut values = [0_u64; 2];
                    pending.wait(&mut values, PATIENCE).unwrap();
                    assert_eq!(values, [3 + 3 * number, 3 * number]);
                }
                let pending = team.start_all_reduce(&[1_i8], Op::Max).unwrap();
                while !pending.is_complete().unwrap() {
                    thread::yield_now();
                }
                team.close(PATIENCE).unwrap();
            },
        );
        world.close();
    }
}

fn failure<T: Debug>(outcome: Result<T, Error>) -> TeamFailure {
    match outcome {
        Err(Error::TeamFailed(failure)) => failure,
        other => panic!("{other:?} instead of a failed team"),
    }
}

#[test]
fn members_that_call_different_things_are_named() {
    let world = World::start(3);
    let failures = at_all(
        &world,
        |_, settings| settings,
        |team| {
            // The first that is through knows that all have created the team; the others may hear of the difference before.
            let _ = team.barrier(PATIENCE);
            let outcome = match team.rank() {
                2 => team.all_reduce(&mut [1_f32, 2.0], Op::Sum, PATIENCE),
                _ => team.all_reduce(&mut [1_f32], Op::Sum, PATIENCE),
            };
            let first = failure(outcome);
            assert_eq!(failure(team.barrier(PATIENCE)), first, "the first cause counts");
            first
        },
    );
    for failure in &failures {
        assert!(failure.member == Some(2) || failure.reporter == 2, "{failure}");
        assert_eq!(failure.kind, FailureKind::Application);
    }
    let complete = failures.iter().find(|failure| failure.detail.contains("all_reduce of"));
    assert!(
        complete.is_some_and(|it| it.detail.contains("8 bytes") || it.detail.contains("not 8")),
        "{failures:?}"
    );
    world.close();
}

#[test]
fn a_member_that_does_not_call_is_named_by_the_timeout() {
    let world = World::start(3);
    let others_have_failed = Barrier::new(3);
    let failures = at_all(
        &world,
        |_, settings| settings,
        |team| {
            team.barrier(PATIENCE).unwrap();
            // Member 0 waits for member 1 itself, and member 2 for member 0.
            let timeout = if team.rank() == 0 { SHORT } else { PATIENCE };
            let first =
                (team.rank() != 1).then(|| failure(team.all_reduce(&mut [1_u8], Op::Sum, timeout)));
            others_have_failed.wait();
            // Member 1 may not have read yet why the team has failed: it calls the same as the others, and waits for that.
            let later = failure(team.all_reduce(&mut [1_u8], Op::Sum, PATIENCE));
            assert!(first.is_none_or(|first| first == later), "the first cause counts");
            later
        },
    );
    for failure in failures {
        assert_eq!((failure.kind, failure.member), (FailureKind::Stalled, Some(1)), "{failure}");
    }
    world.close();
}

#[test]
fn a_member_that_drops_its_team_is_named() {
    let world = World::start(3);
    let failures = at_all(
        &world,
        |_, settings| settings,
        |team| {
            // When the root has all contributions, all have created the team: otherwise that fails where the failure is known first.
            let reduced = team.reduce(0, &mut [1_u8], Op::Sum, PATIENCE);
            if team.rank() == 0 {
                reduced.unwrap();
                drop(team);
                return None;
            }
            Some(failure(team.barrier(PATIENCE)))
        },
    );
    for failure in failures.into_iter().flatten() {
        assert_eq!((failure.team, failure.member), (7, Some(0)), "{failure}");
        assert!(failure.to_string().contains("it dropped the team"), "{failure}");
    }
    world.close();
}

#[test]
fn a_failure_is_known_without_a_call() {
    let world = World::start(2);
    at_all(
        &world,
        |_, settings| settings,
        |team| {
            if team.rank() == 0 {
                return;
            }
            let deadline = Instant::now() + PATIENCE;
            let failure = loop {
                assert!(Instant::now() < deadline, "it does not know");
                match team.failure() {
                    Some(failure) => break failure,
                    None => thread::sleep(Duration::from_millis(5)),
                }
            };
            assert_eq!((failure.team, failure.member), (7, Some(0)), "{failure}");
        },
    );
    world.close();
}

#[test]
fn invalid_calls_are_refused_and_change_nothing() {
    let world = World::start(1);
    at_all(
        &world,
        |_, settings| settings,
        |team| {
            let refused = |outcome: Result<(), Error>, part: &str| {
                let error = outcome.unwrap_err();
                assert!(matches!(error, Error::TeamCall(_)), "{error:?}");
                assert!(error.to_string().contains(part), "{error}");
            };
            refused(team.broadcast(1, &mut [0_u8], PATIENCE), "root is 1; use 0 to 0");
            refused(team.scatter(1, &mut [0_u8], PATIENCE), "root is 1; use 0 to 0");
            refused(team.all_reduce(&mut [0_f32], Op::Bxor, PATIENCE), "bxor does not work on f32");
            let function = Function::new("three", 3, |_, _| {}).unwrap();
            refused(
                team.all_reduce_by(&mut [0; 4], &function, PATIENCE),
                "whole number of elements of 3",
            );
            team.barrier(PATIENCE).unwrap();
            team.close(PATIENCE).unwrap();
        },
    );
    let context = &world.contexts[0];
    let settings = || TeamSettings::new(7, world.addresses.clone(), 0);
    let refused = |settings: TeamSettings, part: &str| {
        let error = context.create_team(settings).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(settings().slots(0), "slots is 0; use 1 to");
    refused(settings().slot_bytes(9), "slot_bytes is 9; use 64 to");
    refused(TeamSettings::new(7, Vec::new(), 0), "members is 0; use 1 to");
    refused(TeamSettings::new(7, world.addresses.clone(), 1), "rank is 1; use 0 to 0");
    world.close();
}

#[test]
fn a_team_has_a_limit_of_its_own_for_joining() {
    let world = World::start_with(2, |settings| settings.connect_timeout = Duration::MAX);
    let settings = TeamSettings::new(3, world.addresses.clone(), 0);
    let team = world.contexts[0].create_team(settings.connect_timeout(Duration::from_millis(200)));
    let error = team.map(drop).unwrap_err().to_string();
    assert!(error.contains(&world.addresses[1].to_string()), "{error}");
    world.close();
}

#[test]
fn members_with_different_settings_do_not_become_a_team() {
    let world = World::start_with(2, |settings| settings.connect_timeout = Duration::from_secs(5));
    let errors: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(&world.contexts)
            .map(|(rank, context)| {
                let settings = TeamSettings::new(3, world.addresses.clone(), rank);
                let slots = if rank == 0 { 16 } else { 8 };
                scope.spawn(move || {
                    context.create_team(settings.slots(slots)).unwrap_err().to_string()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(errors.iter().all(|error| error.contains("slots: 16 here, 8 there")), "{errors:?}");
    // One member creates a group of that number.
    let errors: Vec<String> = thread::scope(|scope| {
        let (team, group) = (
            TeamSettings::new(4, world.addresses.clone(), 0),
            GroupSettings::new(4, world.addresses.clone(), 1),
        );
        let team = scope.spawn(|| world.contexts[0].create_team(team).unwrap_err().to_string());
        let group = scope.spawn(|| world.contexts[1].create_group(group).unwrap_err().to_string());
        vec![team.join().unwrap(), group.join().unwrap()]
    });
    let both = errors.iter().all(|error| error.contains("it is a team here, a group there"));
    assert!(both, "{errors:?}");
    world.close();
}

#[test]
fn a_prepared_operation_is_repeated() {
    // Through slots, and long.
    for elements in [3, 50_000] {
        let world = World::start(3);
        at_all(
            &world,
            |_, settings| settings,
            |team| {
                let region = Region::zeroed(elements * 4);
                let odd = Region::zeroed(6);
                let refused = team.prepare_all_reduce(odd, Type::F32, Op::Sum).unwrap_err();
                assert!(
                    refused.to_string().contains("6 bytes are not a whole number"),
                    "{refused}"
                );
                let by = (Type::I32, Op::Sum);
                let mut prepared = team.prepare_all_reduce(region.clone(), by.0, by.1).unwrap();
                for round in 0..10_i32 {
                    let own = round + team.rank() as i32;
                    let mut lease = region.write(0..region.len()).unwrap();
                    lease.chunks_exact_mut(4).for_each(|it| it.copy_from_slice(&own.to_ne_bytes()));
                    drop(lease);
                    assert!(prepared.is_complete().unwrap(), "it was not started");
                    prepared.start().unwrap();
                    assert!(matches!(prepared.start(), Err(Error::TeamCall(_))));
                    prepared.wait(PATIENCE).unwrap();
                    let sum = (3 * round + 3).to_ne_bytes();
                    let lease = region.read(0..region.len()).unwrap();
                    assert!(lease.chunks_exact(4).all(|it| it == sum), "round {round}");
                }
                team.close(PATIENCE).unwrap();
                let late = prepared.start().unwrap_err();
                assert!(matches!(late, Error::TeamClosed(7)), "{late}");
            },
        );
        world.close();
    }
}

/// The memory is the caller's again, whatever others do meanwhile.
#[test]
fn a_long_operation_that_times_out_ends() {
    let world = World::start(3);
    let meeting = Barrier::new(3);
    let outcomes = at_all(
        &world,
        |_, settings| settings,
        |team| {
            let mut values = vec![1.0_f32; 300_000];
            let outcomes = (team.rank() < 2).then(|| {
                // So long that they have told each other whom they wait for, on a slow machine too.
                let outcome = team.all_reduce(&mut values, Op::Sum, 10 * SHORT);
                values.fill(2.0);
                (outcome, team.barrier(PATIENCE))
            });
            meeting.wait();
            outcomes
        },
    );
    for (outcome, later) in outcomes.into_iter().flatten() {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::TeamFailed(_) | Error::Timeout { .. }), "{error}");
        let failure = failure(later);
        assert_eq!((failure.member, failure.kind), (Some(2), FailureKind::Stalled));
    }
    world.close();
}

/// Otherwise the wait for the memory would have no end where the settings give it none.
#[test]
fn a_long_operation_ends_whatever_the_drain_timeout_is() {
    let year = Duration::from_secs(365 * 24 * 3600);
    let world = World::start_with(2, |settings| {
        settings.progress = Progress::Caller;
        settings.tcp = settings.tcp.clone().drain_timeout(year).silence_timeout(year);
    });
    let meeting = Barrier::new(2);
    let outcomes = at_all(
        &world,
        |_, settings| settings,
        |team| {
            let mut values = vec![1.0_f32; 300_000];
            // The other member neither calls it nor drives its links.
            let outcome = (team.rank() == 0).then(|| team.all_reduce(&mut values, Op::Sum, SHORT));
            meeting.wait();
            outcome
        },
    );
    let error = outcomes.into_iter().flatten().next().unwrap().unwrap_err();
    assert!(matches!(error, Error::TeamFailed(_) | Error::Timeout { .. }), "{error}");
    world.close();
}

#[test]
fn a_function_that_panics_in_a_long_operation_reaches_the_caller() {
    let world = World::start(2);
    let panics = Function::new("panics", 4, |_, _| panic!("a function that panics")).unwrap();
    let outcomes = at_all(
        &world,
        |_, settings| settings,
        |team| {
            let mut values = vec![0; 400_000];
            let called = AssertUnwindSafe(|| team.all_reduce_by(&mut values, &panics, PATIENCE));
            match catch_unwind(called) {
                Ok(outcome) => failure(outcome).member.is_some(),
                Err(_) => true,
            }
        },
    );
    assert_eq!(outcomes, [true, true]);
    world.close();
}
