//! Whole groups of real engines on the simulated network, in virtual time.

use std::time::Duration;

use plan::slowness::{shares, straggler};
use proptest::prelude::*;
use rdmc::{Algorithm, FailureKind, Region, SmallMessages, Waited, Window};
use transport_sim::{Jitter, LinkConfig, SimConfig};

use crate::world::{BLOCK_BYTES, BLOCK_TIME, World, contents, disturbed, schedule, time_taken};

#[test]
fn undisturbed_schedules_take_exactly_their_steps() {
    for algorithm in Algorithm::ALL {
        for members in [2, 3, 4, 5, 6, 7, 8, 11, 16, 23, 31, 32, 33] {
            for blocks in [1, 2, 3, 7, 20] {
                let schedule = schedule(algorithm, members, members / 3);
                let taken = time_taken(&schedule, blocks, SimConfig::IDEAL, |_| {});
                let steps = BLOCK_TIME * schedule.steps(blocks) as u32;
                let what = format!("{algorithm}, {members} members, {blocks} blocks");
                if schedule.size_first() {
                    // The first credits arrive with the announcement, in any order, and the root
                    // does not wait for the one that would be best to use first.
                    let late = BLOCK_TIME * members.next_power_of_two().ilog2();
                    assert!(taken <= steps + late, "{what}: {taken:?}");
                    // Racks leave steps empty, for which no member has to wait.
                    assert!(taken >= steps || algorithm.needs_racks(), "{what}: {taken:?}");
                } else if algorithm.needs_racks() {
                    // Layers that take turns leave steps empty, for which no member has to wait.
                    assert!(taken <= steps, "{what}: {taken:?} > {steps:?}");
                } else {
                    assert_eq!(taken, steps, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_thousand_members_take_exactly_their_steps() {
    let schedule = schedule(Algorithm::BinomialPipeline, 1_024, 0);
    let config = SimConfig { carry_bytes: false, ..SimConfig::IDEAL };
    assert_eq!(time_taken(&schedule, 64, config, |_| {}), BLOCK_TIME * (64 - 1 + 10));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn delays_of_every_kind_lose_nothing(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 1_u32..=24,
        root in any::<u32>(),
        sizes in prop::collection::vec(0_usize..3_000, 1..5),
        window in 1_u32..=4,
        messages_in_flight in 1_u32..=4,
        slow in any::<u32>(),
        jitter in 0.0..2.0,
        reordering_ns in 0_u64..2_000,
        latency_ns in 0_u64..500,
        seed in any::<u64>(),
    ) {
        let root = root % members;
        let config = disturbed(jitter, reordering_ns, latency_ns);
        let mut world = World::new(&schedule(algorithm, members, root), config, seed, |settings| {
            settings.window = Window { receives: window, sends: window };
            settings.messages_in_flight = messages_in_flight;
        });
        world.network.set_port_rate((slow % members) as usize, 100_000_000);
        world.deliver(root as usize, &sizes);
    }

    #[test]
    fn every_survivor_of_a_death_is_notified_which_member_died(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 2_u32..=24,
        root in any::<u32>(),
        victim in any::<u32>(),
        bytes in 0_usize..5_000,
        happenings in 0_u64..400,
        seed in any::<u64>(),
    ) {
        let (root, victim) = (root % members, (victim % members) as usize);
        let config = SimConfig {
            link: LinkConfig { latency_ns: 20, ..LinkConfig::IDEAL },
            block_jitter: Jitter::BlockTimes(0.5),
            loss_detection_ns: 300,
            ..SimConfig::IDEAL
        };
        let mut world = World::new(&schedule(algorithm, members, root), config, seed, |_| {});
        world.lose(root as usize, bytes, victim, happenings);
    }

    #[test]
    fn small_and_large_messages_keep_one_order(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 1_u32..=17,
        root in any::<u32>(),
        sizes in prop::collection::vec(prop_oneof![0_usize..=60, 0_usize..1_500], 0..40),
        (slots, bytes_max) in (1_u32..=9, 0_u32..=80),
        messages_in_flight in 1_u32..=4,
        (slow, patience) in (any::<u32>(), 0_usize..5),
        reordering_ns in 0_u64..2_000,
        latency_ns in 0_u64..500,
        happenings in 0_u64..200,
        seed in any::<u64>(),
    ) {
        let root = root % members;
        let config = disturbed(0.7, reordering_ns, latency_ns);
        let mut world = World::new(&schedule(algorithm, members, root), config, seed, |settings| {
            settings.small = Some(SmallMessages { bytes_max, slots, members_max: 16 });
            settings.messages_in_flight = messages_in_flight;
        });
        world.network.set_port_rate((slow % members) as usize, 100_000_000);
        world.members[(slow % members) as usize].patience = patience;
        for (message, &bytes) in sizes.iter().enumerate() {
            world.send(root as usize, contents(message, bytes));
            world.run(happenings % 7);
        }
        world.close();
        while let Some(rank) = world.members.iter().position(|one| !one.unanswered.is_empty()) {
            world.members[rank].answer();
            world.progress(rank);
            world.run(u64::MAX);
        }
        let expected: Vec<_> =
            sizes.iter().enumerate().map(|(message, &bytes)| contents(message, bytes)).collect();
        let small = sizes.iter().filter(|&&bytes| bytes <= bytes_max as usize).count() as u64;
        let written = (2..=16).contains(&members) && algorithm != Algorithm::InSwitch;
        let small = if written { small } else { 0 };
        for (rank, member) in world.members.iter().enumerate() {
            prop_assert!(member.closed, "member {rank} (seed {seed}): {:?}", member.failure);
            prop_assert!(member.messages == expected, "member {rank} (seed {seed})");
            let counters = member.engine.counters();
            prop_assert_eq!(counters.small_sent + counters.small_received, small);
            prop_assert!(member.copied <= small);
        }
    }

    #[test]
    fn a_death_among_small_messages_hands_everything_back(
        members in 2_u32..=16,
        root in any::<u32>(),
        victim in any::<u32>(),
        count in 1_usize..30,
        slots in 1_u32..=9,
        happenings in 0_u64..200,
        seed in any::<u64>(),
    ) {
        let (root, victim) = (root % members, (victim % members) as usize);
        let config = SimConfig {
            link: LinkConfig { latency_ns: 20, ..LinkConfig::IDEAL },
            control_jitter_ns_max: 50,
            loss_detection_ns: 300,
            ..SimConfig::IDEAL
        };
        let schedule = schedule(Algorithm::BinomialPipeline, members, root);
        let mut world = World::new(&schedule, config, seed, |settings| {
            settings.small = Some(SmallMessages { slots, ..SmallMessages::default() });
        });
        for message in 0..count {
            world.send(root as usize, contents(message, 10));
        }
        world.run(happenings);
        world.network.kill(victim);
        world.members[victim].alive = false;
        world.run(u64::MAX);
        for (rank, member) in world.members.iter().enumerate().filter(|(rank, _)| *rank != victim) {
            let failure = member.failure.as_ref();
            prop_assert!(failure.is_some(), "member {rank} does not know (seed {seed})");
            prop_assert_eq!(failure.and_then(|failure| failure.member), Some(victim as u32));
            for (message, got) in member.messages.iter().enumerate() {
                prop_assert_eq!(got, &contents(message, 10));
            }
        }
    }
}

#[test]
fn small_messages_are_copied_before_the_engine_is_called_again() {
    let schedule = schedule(Algorithm::Chain, 4, 0);
    let mut world = World::new(&schedule, SimConfig::IDEAL, 1, |settings| {
        settings.small = Some(SmallMessages { slots: 8, ..SmallMessages::default() });
    });
    let sizes: Vec<usize> = (0..30).collect();
    world.deliver(0, &sizes);
    for member in &world.members[1..] {
        assert_eq!(member.copied, 20, "all that the test does not leave to the engine");
        assert_eq!(member.engine.counters().small_received, 30);
    }
}

#[test]
fn a_full_ring_makes_the_root_wait_for_the_slowest() {
    let schedule = schedule(Algorithm::Chain, 4, 0);
    let mut world = World::new(&schedule, SimConfig::IDEAL, 1, |settings| {
        settings.small = Some(SmallMessages { slots: 8, ..SmallMessages::default() });
    });
    world.run(u64::MAX);
    world.members[2].patience = usize::MAX;
    for message in 0..100 {
        world.send(0, contents(message, 5));
    }
    world.run(u64::MAX);
    assert_eq!(world.members[0].engine.counters().small_sent, 8);
    assert_eq!(world.members[2].unanswered.len(), 8);
    world.members[2].patience = 0;
    world.members[2].answer();
    world.progress(2);
    world.close();
    for member in &world.members {
        assert!(member.closed && member.messages.len() == 100, "{:?}", member.failure);
    }
    assert_eq!(world.members[0].received, 0, "the root receives nothing");
    assert_eq!(world.members[2].received, 100);
    // One word frees a quarter of a ring; 5 more set it up, grant a first block, and close.
    let words = world.network.totals().words;
    assert!(words <= 3 * (100 / 2 + 5), "{words} words");
    assert_eq!(world.network.totals().writes, 300);
}

#[test]
fn a_relayed_message_of_one_block_needs_no_second_handshake() {
    for members in [2, 5, 8] {
        let schedule = schedule(Algorithm::BinomialPipeline, members, 0);
        let mut world = World::new(&schedule, SimConfig::IDEAL, 1, |_| {});
        world.run(u64::MAX);
        let before = world.network.totals();
        world.send(0, contents(0, 10));
        world.run(u64::MAX);
        let after = world.network.totals();
        let receivers = u64::from(members) - 1;
        assert_eq!(after.blocks - before.blocks, receivers);
        // The announcement travels with the block, whose credit was granted before; and one credit
        // for the first block of the next message.
        assert_eq!(after.words - before.words, 2 * receivers, "{members} members");
    }
}

/// Blocks of 10 ms, and a stall timeout of half a second.
fn slow_world(algorithm: Algorithm, members: u32) -> World {
    let port_rate_bytes_per_s = 10_000;
    let config = SimConfig { port_rate_bytes_per_s, ..SimConfig::IDEAL };
    World::new(&schedule(algorithm, members, 0), config, 1, |settings| {
        settings.stall_timeout = Some(Duration::from_millis(500));
    })
}

/// Runs the world for this virtual time, and lets members check their deadlines.
fn run_for(world: &mut World, time: Duration) {
    let end = world.network.now() + time;
    while world.network.now() < end {
        world.run_until(end.min(world.network.now() + Duration::from_millis(10)));
        (0..world.members.len()).for_each(|rank| world.progress(rank));
    }
}

/// The last receiver of sequential send waits for all other copies, here four seconds; so do, for a
/// while, members of the tree, which receive reports of progress over other members.
#[test]
fn waiting_for_a_busy_member_is_no_stall() {
    for algorithm in Algorithm::ALL {
        let mut world = slow_world(algorithm, 9);
        world.send(0, contents(0, 5_000));
        (0..9).for_each(|rank| world.members[rank].engine.close(1).unwrap());
        run_for(&mut world, Duration::from_secs(6));
        for (rank, member) in world.members.iter().enumerate() {
            assert!(member.closed, "{algorithm}, member {rank}: {:?}", member.failure);
        }
    }
}

/// Reports of past progress do not keep members waiting for ever.
#[test]
fn a_program_that_stops_is_noticed_in_every_schedule() {
    for algorithm in Algorithm::ALL {
        let mut world = slow_world(algorithm, 9);
        world.send(0, contents(0, 5_000));
        run_for(&mut world, Duration::from_millis(200));
        world.set_polled(0, false);
        run_for(&mut world, Duration::from_millis(1_500));
        for (rank, member) in world.members.iter().enumerate().skip(1) {
            let failure = member.failure.as_ref();
            let kind = failure.map(|failure| failure.kind);
            assert_eq!(kind, Some(FailureKind::Stalled), "{algorithm}, member {rank}");
        }
    }
}

/// Members that wait for it only through other members name it, too.
#[test]
fn a_program_that_stops_is_named_at_every_member() {
    for algorithm in Algorithm::ALL {
        for stopped in [0, 2, 5] {
            let mut world = slow_world(algorithm, 9);
            world.send(0, contents(0, 5_000));
            run_for(&mut world, Duration::from_millis(200));
            world.set_polled(stopped, false);
            run_for(&mut world, Duration::from_secs(6));
            let others = world.members.iter().enumerate().filter(|&(rank, _)| rank != stopped);
            for (rank, member) in others {
                let named = member.failure.as_ref().map(|failure| failure.member);
                assert_eq!(named, Some(Some(stopped as u32)), "{algorithm}, member {rank}");
            }
        }
    }
}

/// An application that provides no memory is named as the cause, by its own member at the latest.
#[test]
fn an_application_that_gives_no_memory_is_named_at_every_member() {
    for algorithm in Algorithm::ALL {
        let mut world = slow_world(algorithm, 9);
        world.members[6].patience = 1;
        world.send(0, contents(0, 5_000));
        (0..9).for_each(|rank| world.members[rank].engine.close(1).unwrap());
        run_for(&mut world, Duration::from_secs(6));
        for (rank, member) in world.members.iter().enumerate() {
            let named = member.failure.as_ref().map(|failure| failure.member);
            assert_eq!(named, Some(Some(6)), "{algorithm}, member {rank}");
        }
    }
}

/// Returns the member that delays the others most half way through a message, and by how much,
/// where one port has a fraction of the rate of all others, 1 byte per ns.
fn worst_of(algorithm: Algorithm, members: u32, slow: Option<(u32, u64)>) -> (u32, f64) {
    let schedule = schedule(algorithm, members, 0);
    let config = SimConfig { block_jitter: Jitter::BlockTimes(0.2), ..SimConfig::IDEAL };
    let mut world = World::new(&schedule, config, 7, |settings| {
        settings.window = Window { receives: 8, sends: 8 };
    });
    if let Some((slow, rate)) = slow {
        world.network.set_port_rate(slow as usize, rate);
    }
    world.send(0, contents(0, 200 * BLOCK_BYTES as usize));
    world.progress(0);
    let rate = slow.map_or(1_000_000_000, |(_, rate)| rate);
    world.run_until(BLOCK_TIME * (100 * 1_000_000_000 / rate) as u32);
    let engines = world.members.iter_mut().map(|member| member.engine.waited());
    let waited: Vec<Vec<Waited>> =
        engines.map(|mut groups| groups.pop().map_or(Vec::new(), |(_, waited)| waited)).collect();
    straggler(&shares(&waited), &waited, &|_| 0).unwrap()
}

#[test]
fn a_slow_member_is_identified_by_the_waits_of_others() {
    for algorithm in [Algorithm::Chain, Algorithm::BinomialPipeline, Algorithm::Circulant] {
        for members in [3, 4, 5, 7, 8, 13, 16] {
            for slow in 1..members {
                let (found, share) = worst_of(algorithm, members, Some((slow, 50_000_000)));
                let what = format!("{algorithm}, {members} members, {slow} is slow");
                assert!(found == slow && share > 0.3, "{what}: {found}, {share}");
            }
        }
        // A chain without slow members is limited by its first link.
        if algorithm != Algorithm::Chain {
            let (found, share) = worst_of(algorithm, 16, None);
            assert!(share < 0.15, "{algorithm}: {found}, {share}");
        }
    }
}

/// Member 0, the root, or a receiver has its message in a file, which shrinks, to any length,
/// before the first block passes through it.
#[test]
fn a_file_that_shrinks_is_an_error_that_names_the_member() {
    const BYTES: u64 = 20 * BLOCK_BYTES;
    let lengths = [0, 1, BLOCK_BYTES, BYTES / 2, BYTES - 1, BYTES];
    for (culprit, left) in (0..4).flat_map(|culprit| lengths.map(|left| (culprit, left))) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES).unwrap();
        let region = Region::from_file_writable(&file, BYTES).unwrap();
        let schedule = schedule(Algorithm::BinomialPipeline, 4, 0);
        let mut world = World::new(&schedule, SimConfig::IDEAL, 1, |_| {});
        world.members[culprit].patience = usize::MAX;
        file.set_len(left).unwrap();
        let source = if culprit == 0 { region.clone() } else { Region::zeroed(BYTES as usize) };
        world.members[0].engine.send(1, source).unwrap();
        world.progress(0);
        world.run(u64::MAX);
        if culprit != 0 {
            world.members[culprit].engine.accept(1, 0, region).unwrap();
            world.progress(culprit);
            world.run(u64::MAX);
        }
        for (rank, member) in world.members.iter().enumerate() {
            let who = member.failure.as_ref().map(|failure| (failure.member, failure.kind));
            let expected = (left < BYTES).then_some((Some(culprit as u32), FailureKind::Memory));
            assert_eq!(who, expected, "member {rank}, {left} bytes left at {culprit}");
        }
    }
}
