//! Exact times of the port model, and reproducibility by the seed.

use std::time::Duration;

use transport::{Completion, OneSidedWrites, PeerMemory, Region, Token, Transport};
use transport_sim::{Jitter, LinkConfig, Placement, SimConfig};

use crate::common::World;

#[test]
fn senders_to_one_receiver_take_turns() {
    let mut world = World::new(SimConfig::IDEAL, 0, 5);
    (1..5).for_each(|from| world.block(from, 0, from as u64));
    world.run();
    assert_eq!(world.arrivals(0), [(1_000, 1), (2_000, 2), (3_000, 3), (4_000, 4)]);
    assert_eq!(world.net.member_totals(0).receive_busy_ns, 4_000);
    assert_eq!(world.net.totals().blocks, 4);
}

#[test]
fn a_sender_serves_its_targets_in_turn() {
    let mut world = World::new(SimConfig::IDEAL, 0, 4);
    [2, 1, 3].iter().for_each(|&to| world.block(0, to, to as u64));
    world.run();
    let order = [2, 1, 3].map(|to| world.arrivals(to)[0]);
    assert_eq!(order, [(1_000, 2), (2_000, 1), (3_000, 3)]);
}

#[test]
fn both_directions_and_other_pairs_do_not_interfere() {
    let mut world = World::new(SimConfig::IDEAL, 0, 4);
    for (from, to) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
        world.block(from, to, 7);
    }
    world.run();
    (0..4).for_each(|member| assert_eq!(world.arrivals(member), [(1_000, 7)]));
}

#[test]
fn the_lowest_rate_counts_and_latency_comes_on_top() {
    let config = SimConfig { block_overhead_ns: 3, ..SimConfig::IDEAL };
    let slow = LinkConfig { rate_bytes_per_s: 250_000_000, latency_ns: 70 };
    let mut world =
        World::with_links(
            config,
            0,
            3,
            |_, right| {
                if right == 2 { slow } else { LinkConfig::IDEAL }
            },
        );
    world.block(0, 1, 1);
    world.block(0, 2, 2);
    world.run();
    // The send is done when the block has left; it arrives a latency later.
    assert_eq!(world.arrivals(1), [(1_003, 1)]);
    assert_eq!(world.arrivals(2), [(1_003 + 4_003 + 70, 2)]);
    let sent = world.seen.iter().filter(|(_, _, seen)| matches!(seen, Completion::Sent { .. }));
    assert_eq!(sent.map(|(at_ns, ..)| *at_ns).collect::<Vec<_>>(), [1_003, 5_006]);
    world.net.set_port_rate(1, 100_000_000);
    world.block(0, 1, 3);
    world.run();
    assert_eq!(world.arrivals(1)[1], (5_076 + 10_003, 3));
}

#[test]
fn words_take_a_latency_and_no_port() {
    let mut config = SimConfig::IDEAL;
    config.link.latency_ns = 10;
    let mut world = World::new(config, 0, 2);
    world.block(0, 1, 1);
    world.write(0, 1, b"word");
    world.run();
    let word = world.seen.iter().find(|(_, _, seen)| matches!(seen, Completion::Control { .. }));
    assert_eq!(word.unwrap().0, 10);
    assert_eq!(world.arrivals(1), [(1_010, 1)]);
}

/// The receive that was posted first is filled first, although its send was posted last.
#[test]
fn a_target_prefers_its_oldest_receive() {
    let mut world = World::new(SimConfig::IDEAL, 0, 3);
    world.receive(0, 1, 1);
    world.receive(0, 2, 2);
    world.send(2, 0, 2);
    world.send(1, 0, 1);
    world.run();
    assert_eq!(world.arrivals(0), [(1_000, 1), (2_000, 2)]);
}

/// Member 0 is busy with 1, so its block for 1 waits; the one for 2 does not wait behind it.
#[test]
fn a_busy_target_causes_no_head_of_line_blocking() {
    let mut world = World::new(SimConfig::IDEAL, 0, 4);
    world.block(3, 1, 1);
    world.block(0, 1, 2);
    world.block(0, 2, 3);
    world.run();
    assert_eq!(world.arrivals(1), [(1_000, 1), (2_000, 2)]);
    assert_eq!(world.arrivals(2), [(1_000, 3)]);
}

/// Members 1 and 2 send to 3 and 4, and preferences form a circle.
#[test]
fn circular_preferences_are_resolved() {
    let mut world = World::new(SimConfig::IDEAL, 0, 5);
    // 3 prefers 2; 4 prefers 1.
    for (to, from) in [(3, 2), (4, 1), (3, 1), (4, 2)] {
        world.receive(to, from, from as u64);
    }
    // 1 prefers 3; 2 prefers 4.
    for (from, to) in [(1, 3), (2, 4), (1, 4), (2, 3)] {
        world.send(from, to, from as u64);
    }
    world.run();
    assert_eq!(world.arrivals(3), [(1_000, 1), (2_000, 2)]);
    assert_eq!(world.arrivals(4), [(1_000, 2), (2_000, 1)]);
}

fn unruly_run(seed: u64) -> (u64, String, Duration) {
    let config = SimConfig {
        block_jitter: Jitter::BlockTimes(0.5),
        delivery_jitter_ns_max: 300,
        control_jitter_ns_max: 300,
        ..SimConfig::default()
    };
    let mut world = World::new(config, seed, 5);
    for round in 0..8 {
        for (from, to) in [(0, 1), (1, 2), (2, 0), (3, 0), (4, 3), (0, 4)] {
            world.block(from, to, round);
            world.write(to, from, &[round as u8]);
        }
    }
    world.run();
    (world.net.digest(), world.net.trace(), world.net.now())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(unruly_run(1), unruly_run(1));
    let (one, other) = (unruly_run(1), unruly_run(2));
    assert_ne!(one.0, other.0);
    assert!(one.1.contains("seed 1,") && other.1.contains("seed 2,"));
}

#[test]
fn words_keep_their_order_under_jitter() {
    let mut world =
        World::new(SimConfig { control_jitter_ns_max: 9_999, ..SimConfig::IDEAL }, 3, 2);
    (0..100).for_each(|number| world.write(0, 1, &[number]));
    world.run();
    let numbers: Vec<u8> = world
        .seen
        .iter()
        .filter_map(|(_, _, seen)| match seen {
            Completion::Control { word, .. } => Some(word[0]),
            _ => None,
        })
        .collect();
    assert_eq!(numbers, (0..100).collect::<Vec<u8>>());
}

#[test]
fn time_advances_exactly_as_far_as_requested() {
    let mut world = World::new(SimConfig::IDEAL, 0, 2);
    world.block(0, 1, 1);
    assert_eq!(world.net.run_until(Duration::from_nanos(400)), None);
    assert_eq!(world.net.now(), Duration::from_nanos(400));
    assert_eq!(world.net.next_event_time(), Some(Duration::from_nanos(1_000)));
    let mut completions = Vec::new();
    world.members[1].poll(&mut completions, Duration::from_nanos(500));
    assert!(completions.is_empty());
    assert_eq!(world.members[1].now(), Duration::from_nanos(900));
    world.members[1].poll(&mut completions, Duration::from_secs(1));
    assert_eq!((completions.len(), world.net.now()), (1, Duration::from_nanos(1_000)));
}

/// What is visible of a write of 64 bytes, one per byte, at each of its changes.
fn appearances(in_order: bool, whole_words: bool, seed: u64) -> Vec<Vec<bool>> {
    let placement = Placement { in_order, whole_words, lasting_ns: 1_000 };
    let config = SimConfig { write_placement: Some(placement), ..SimConfig::IDEAL };
    let mut world = World::new(config, seed, 2);
    let (near, far) = (world.endpoint(0, 1), world.endpoint(1, 0));
    let memory = PeerMemory::zeroed(100);
    world.members[1].expose(far, 0, memory.clone()).unwrap();
    let source = Region::from_vec(vec![1; 64]);
    let lease = source.read(0..64).unwrap();
    world.members[0].post_write(near, lease, 0, 16, Some(7), Token(0)).unwrap();
    let mut seen: Vec<Vec<bool>> = Vec::new();
    let mut completions = Vec::new();
    while completions.is_empty() {
        world.members[1].poll(&mut completions, Duration::from_nanos(1));
        let now: Vec<bool> = (16..80).map(|at| memory.load_byte(at) == Ok(1)).collect();
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    assert_eq!(completions, [Completion::Written { endpoint: far, immediate: 7 }]);
    // It has left after 64 ns, and is reported when the last part may have come.
    assert_eq!(world.net.now(), Duration::from_nanos(1_064));
    seen
}

#[test]
fn bytes_of_a_write_become_visible_as_they_are_to() {
    for (in_order, whole_words) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut disordered, mut torn) = (0, 0);
        for seed in 0..10 {
            let seen = appearances(in_order, whole_words, seed);
            assert_eq!(seen, appearances(in_order, whole_words, seed), "the same seed");
            assert!(seen.len() > 3, "at several times: {}", seen.len());
            assert!(seen.last().unwrap().iter().all(|&is_visible| is_visible));
            disordered += seen.iter().filter(|now| !now.is_sorted_by(|a, b| a >= b)).count();
            let is_torn =
                |now: &&Vec<bool>| now.chunks(8).any(|word| word.iter().any(|&it| it != word[0]));
            torn += seen.iter().filter(is_torn).count();
        }
        assert_eq!((disordered > 0, torn > 0), (!in_order, !whole_words));
    }
}

/// When the last of a write of 64 bytes to each of two members is there.
fn last_write_ns(write_overhead_ns: Option<u64>) -> u64 {
    let mut world = World::new(SimConfig { write_overhead_ns, ..SimConfig::IDEAL }, 0, 3);
    let source = Region::from_vec(vec![1; 64]);
    for to in [1, 2] {
        let (near, far) = (world.endpoint(0, to), world.endpoint(to, 0));
        world.members[to].expose(far, 0, PeerMemory::zeroed(64)).unwrap();
        let lease = source.read(0..64).unwrap();
        world.members[0].post_write(near, lease, 0, 0, Some(7), Token(0)).unwrap();
    }
    world.run();
    let is_write = |seen: &Completion| matches!(seen, Completion::Written { .. });
    let arrivals = world.seen.iter().filter(|(_, _, seen)| is_write(seen));
    arrivals.map(|(at_ns, ..)| *at_ns).max().unwrap()
}

#[test]
fn writes_to_several_members_leave_at_once_or_one_after_another() {
    assert_eq!(last_write_ns(None), 64);
    assert_eq!(last_write_ns(Some(10)), 2 * 74);
}
