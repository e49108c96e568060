//! What members report after deaths, resets and stalls, and when.

use std::time::Duration;

use transport::{Cause, Completion, Transport};
use transport_sim::{Fault, SimConfig};

use crate::common::World;

fn cause(world: &World, member: usize, peer: usize) -> (u64, &Cause) {
    match world.end(member, peer) {
        Some((at_ns, Completion::Broken { cause, .. })) => (at_ns, cause),
        end => panic!("{end:?}\n{}", world.net.trace()),
    }
}

/// When words arrived, and their first byte.
fn words(world: &World) -> Vec<(u64, u8)> {
    let word = |(at_ns, _, seen): &(u64, _, Completion)| match seen {
        Completion::Control { word, .. } => Some((*at_ns, word[0])),
        _ => None,
    };
    world.seen.iter().filter_map(word).collect()
}

fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

#[test]
fn a_death_is_noticed_after_the_time_that_it_takes() {
    let mut world = World::new(SimConfig { loss_detection_ns: 50, ..SimConfig::IDEAL }, 0, 3);
    world.block(0, 1, 1);
    world.block(2, 1, 2);
    world.block(2, 0, 3);
    world.net.inject_at(ns(500), Fault::Kill(1));
    world.run();
    for peer in [0, 2] {
        let (at_ns, cause) = cause(&world, peer, 1);
        assert_eq!(at_ns, 550);
        assert!(matches!(cause, Cause::Lost(_)));
    }
    // The port of member 0 was not the dead one's, and that of member 2 was free all the time.
    assert_eq!(world.arrivals(0), [(1_000, 3)]);
    assert!(world.arrivals(1).is_empty());
    let gone = world.endpoint(1, 0);
    assert!(world.members[1].write_control(gone, b"x").is_err());
    world.net.kill(1);
    world.run();
}

/// The aborted block frees its source's port for the next one at once.
#[test]
fn a_reset_ends_one_connection_at_both_ends() {
    let mut world = World::new(SimConfig::IDEAL, 0, 3);
    world.block(0, 1, 1);
    world.block(0, 2, 2);
    world.net.inject_at(ns(300), Fault::Reset(1, 0));
    world.run();
    for (member, peer) in [(0, 1), (1, 0)] {
        let (at_ns, cause) = cause(&world, member, peer);
        assert_eq!((at_ns, cause), (300, &Cause::Lost("connection reset".into())));
    }
    assert_eq!(world.arrivals(2), [(1_300, 2)]);
    assert!(world.end(0, 2).is_none() && world.end(2, 0).is_none());
}

#[test]
fn a_stalled_member_resumes_where_it_was() {
    let mut config = SimConfig { silence_timeout_ms: Some(1), ..SimConfig::IDEAL };
    config.link.latency_ns = 10;
    let mut world = World::new(config, 0, 3);
    world.block(0, 1, 1);
    world.block(0, 1, 2);
    world.block(2, 0, 3);
    (0..5).for_each(|number| world.write(0, 1, &[number]));
    // Stalls that start within the first block, and end long after it; then a longer one that
    // overlaps.
    world.net.inject_at(ns(5), Fault::Stall { member: 1, lasting: ns(4_995) });
    world.net.inject_at(ns(4_000), Fault::Stall { member: 1, lasting: ns(2_000) });
    world.run();
    assert_eq!(world.arrivals(1), [(6_010, 1), (7_010, 2)]);
    assert_eq!(world.arrivals(0), [(1_010, 3)]);
    assert_eq!(words(&world), [(6_000, 0), (6_000, 1), (6_000, 2), (6_000, 3), (6_000, 4)]);
    assert!(world.end(0, 1).is_none());
}

#[test]
fn a_long_stall_ends_at_the_silence_timeout() {
    let config = SimConfig { silence_timeout_ms: Some(2), ..SimConfig::IDEAL };
    let mut world = World::new(config, 0, 3);
    world.receive(0, 1, 1);
    world.net.inject(Fault::Stall { member: 1, lasting: Duration::from_millis(9) });
    world.run();
    for peer in [0, 2] {
        assert_eq!(cause(&world, peer, 1), (2_000_000, &Cause::Silent(2)));
        // After the stall, the member reports that its peers have broken the connection.
        let (at_ns, cause) = cause(&world, 1, peer);
        assert_eq!(at_ns, 9_000_000);
        assert!(matches!(cause, Cause::Lost(_)));
    }
    assert!(world.end(0, 2).is_none());
}

/// The block in transfer starts again; other members use the ports meanwhile.
#[test]
fn messages_held_by_a_cut_arrive_when_it_heals() {
    let config = SimConfig { silence_timeout_ms: Some(1), ..SimConfig::IDEAL };
    let mut world = World::new(config, 0, 3);
    world.block(0, 1, 1);
    world.block(0, 1, 2);
    world.block(0, 2, 3);
    world.net.inject_at(ns(500), Fault::Cut { one: 1, other: 0, lasting: ns(4_500) });
    world.net.inject_at(ns(4_000), Fault::Cut { one: 0, other: 1, lasting: ns(2_000) });
    world.run();
    assert_eq!(world.arrivals(2), [(1_500, 3)]);
    assert_eq!(world.arrivals(1), [(7_000, 1), (8_000, 2)]);
    assert!(world.end(0, 1).is_none());
}

/// A word that was delivered to a stalled member does not wait for a later cut.
#[test]
fn words_stay_in_order_where_a_cut_begins_during_a_stall() {
    let mut config = SimConfig { silence_timeout_ms: Some(1), ..SimConfig::IDEAL };
    config.link.latency_ns = 10;
    let mut world = World::new(config, 0, 2);
    world.net.inject(Fault::Stall { member: 1, lasting: ns(3_000) });
    world.write(0, 1, &[0]);
    world.net.run_until(ns(1_000));
    world.net.inject(Fault::Cut { one: 0, other: 1, lasting: ns(5_000) });
    world.write(0, 1, &[1]);
    world.run();
    assert_eq!(words(&world), [(3_000, 0), (6_000, 1)]);
}

#[test]
fn a_long_cut_ends_at_the_silence_timeout_at_both_ends() {
    let mut config = SimConfig { silence_timeout_ms: Some(2), ..SimConfig::IDEAL };
    config.link.latency_ns = 10;
    let mut world = World::new(config, 0, 3);
    world.block(0, 1, 1);
    world.block(0, 2, 2);
    world.write(0, 1, b"late");
    world.net.inject(Fault::Cut { one: 0, other: 1, lasting: Duration::from_millis(9) });
    world.run();
    for (member, peer) in [(0, 1), (1, 0)] {
        assert_eq!(cause(&world, member, peer), (2_000_000, &Cause::Silent(2)));
    }
    assert!(world.arrivals(1).is_empty());
    assert_eq!(world.arrivals(2), [(1_010, 2)]);
    assert!(world.seen.iter().all(|(.., seen)| !matches!(seen, Completion::Control { .. })));
}

#[test]
fn a_stall_of_unlimited_duration_never_ends() {
    let mut world = World::new(SimConfig::IDEAL, 0, 2);
    world.block(0, 1, 1);
    world.net.inject(Fault::Stall { member: 1, lasting: Duration::MAX });
    world.run();
    assert!(world.seen.is_empty());
    assert!(world.net.now() < Duration::from_secs(1), "{:?}", world.net.now());
}

/// If a link is opened late, no earlier event is lost, including the end.
#[test]
fn events_before_a_link_is_opened_are_reported_when_it_is_opened() {
    let net = transport_sim::SimNet::new(SimConfig::IDEAL, 0);
    let (mut one, mut other) = (net.member(), net.member());
    let (near, far) = net.connect(0, 1);
    let endpoint = one.open(near).unwrap();
    one.write_control(endpoint, b"early").unwrap();
    one.close(endpoint);
    while net.step().is_some() {}
    let endpoint = other.open(far).unwrap();
    let mut completions = Vec::new();
    other.poll(&mut completions, Duration::ZERO);
    assert_eq!(
        completions,
        [
            Completion::Control { endpoint, word: b"early".into() },
            Completion::Broken { endpoint, cause: Cause::ClosedByPeer },
        ]
    );
    let (near, _far) = net.connect(0, 1);
    assert!(other.open(near).is_err(), "the link is another member's");
}
