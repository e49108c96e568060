//! Groups from end to end: real packets through switches, by any way, with faults at every link.

use mcrdma::{
    Counter,
    plan::{Device, Node, Topology},
};
use proptest::prelude::*;
use roce::rc::{Completion, Kind, RequesterConfig, Status};

use crate::world::{Faults, MTU_BYTES, NO_FAULTS, VIRTUAL_START, World};

fn config() -> RequesterConfig {
    RequesterConfig {
        mtu_bytes: MTU_BYTES,
        window_packets: 64,
        ack_packets: 8,
        timeout_ns: 500_000,
        retries: 50,
        not_ready_retries: 50,
        rate: None,
    }
}

fn nodes(topology: &Topology, names: &[&str]) -> Vec<Node> {
    names.iter().map(|name| topology.find(name).unwrap()).collect()
}

/// One group in racks: a1 sends to these.
fn racks(members: &[&str], is_v6: bool, faults: Faults, seed: u64) -> World {
    let topology = Topology::racks(4, 2, Device::Copies);
    let (sender, members) = (topology.find("a1").unwrap(), nodes(&topology, members));
    let mut world = World::new(topology, is_v6, faults, seed);
    world.group(sender, &members, config());
    world
}

fn message(bytes: usize, salt: u64) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 7) as u8 ^ salt as u8).collect()
}

#[derive(Clone, Debug)]
struct Message {
    is_write: bool,
    bytes: usize,
    immediate: Option<u32>,
}

/// Sends messages to a group and checks what every member has in the end.
fn send_all(world: &mut World, group: usize, messages: &[Message]) {
    for (index, message) in messages.iter().enumerate() {
        let address = VIRTUAL_START + write_offset(index);
        let kind = if message.is_write { Kind::Write { address, key: 7 } } else { Kind::Send };
        world.post(group, kind, self::message(message.bytes, index as u64), message.immediate);
    }
}

fn write_offset(index: usize) -> u64 {
    index as u64 * 6000
}

fn check_all(world: &mut World, group: usize, messages: &[Message]) {
    let done = |id| Completion { id, status: Status::Done };
    let all: Vec<Completion> = (0..messages.len() as u64).map(done).collect();
    assert_eq!(world.senders[group].completions, all);
    for receiver in world.receivers_of(group) {
        assert_eq!(receiver.arrivals.len(), messages.len());
        for ((index, message), arrival) in messages.iter().enumerate().zip(&receiver.arrivals) {
            assert_eq!(
                (arrival.is_write, arrival.immediate),
                (message.is_write, message.immediate)
            );
            assert_eq!(arrival.bytes as usize, message.bytes);
            let expected = self::message(message.bytes, index as u64);
            if message.is_write {
                let at = write_offset(index) as usize;
                assert_eq!(receiver.memory[at..at + message.bytes], expected);
            } else {
                assert_eq!(receiver.receives[arrival.receive.unwrap() as usize], expected);
            }
        }
    }
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let bytes = prop_oneof![0_usize..4, 200_usize..600, 0_usize..6000];
    let message = (any::<bool>(), bytes, any::<Option<u32>>());
    let message =
        message.prop_map(|(is_write, bytes, immediate)| Message { is_write, bytes, immediate });
    prop::collection::vec(message, 1..10)
}

const ALL: [&str; 7] = ["a2", "b1", "b2", "c1", "c2", "d1", "d2"];
const HOUR_NS: u64 = 3_600_000_000_000;

#[test]
fn each_link_carries_a_message_once() {
    let mut world = racks(&["d1", "a2", "d2"], false, NO_FAULTS, 1);
    let sent = [Message { is_write: false, bytes: 25_600, immediate: Some(5) }];
    send_all(&mut world, 0, &sent);
    assert!(world.run(HOUR_NS));
    check_all(&mut world, 0, &sent);
    let node = |name| world.topology.find(name).unwrap();
    for (from, to) in [("a1", "tor-a"), ("tor-a", "spine"), ("spine", "tor-d"), ("tor-d", "d2")] {
        assert_eq!(world.crossed[&(node(from), node(to))], 100, "{from} to {to}");
    }
    // One answer for each request, not one for each member.
    assert_eq!(world.crossed[&(node("tor-a"), node("a1"))], 100_u64.div_ceil(8));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

/// Under any faults of links, in the end all members have all bytes, each message once, in order.
    #[test]
    fn all_members_get_all_messages(
        members in prop::sample::subsequence(&ALL[..], 1..=7),
        is_v6: bool,
        (lost, late_ns, damaged, twice) in (0_u64..30, 0_u64..3000, 0_u64..10, 0_u64..30),
        seed: u64,
        messages in messages(),
    ) {
        let faults = Faults { lost, late_ns, damaged, twice };
        let mut world = racks(&members, is_v6, faults, seed);
        send_all(&mut world, 0, &messages);
        prop_assert!(world.run(HOUR_NS), "{} packets", world.packets);
        check_all(&mut world, 0, &messages);
    }

    /// Groups that share switches, links and hosts do not interfere.
    #[test]
    fn groups_that_share_switches_do_not_interfere(
        seed: u64,
        chosen in prop::collection::vec(
            prop::sample::subsequence((0_usize..16).collect::<Vec<_>>(), 2..6).prop_shuffle(), 2..6),
        messages in messages(),
    ) {
        let topology = Topology::fat_tree(4, 2, Device::Copies);
        let hosts: Vec<Node> = (0..16).map(|at| topology.find(&format!("h{at}")).unwrap()).collect();
        let faults = Faults { lost: 5, late_ns: 100, damaged: 0, twice: 0 };
        let mut world = World::new(topology, false, faults, seed);
        for chosen in &chosen {
            let members: Vec<Node> = chosen[1..].iter().map(|&at| hosts[at]).collect();
            let group = world.group(hosts[chosen[0]], &members, config());
            send_all(&mut world, group, &messages);
        }
        prop_assert!(world.run(HOUR_NS));
        for group in 0..chosen.len() {
            check_all(&mut world, group, &messages);
        }
    }
}

#[test]
fn a_member_that_is_not_ready_is_waited_for() {
    let mut world = racks(&["b1", "a2"], false, NO_FAULTS, 3);
    let sent = vec![Message { is_write: false, bytes: 1000, immediate: None }; 3];
    send_all(&mut world, 0, &sent);
    // One member has posted no receive yet.
    let late = &mut world.receivers[0];
    let peer = late.responder.clone();
    late.responder = roce::rc::Responder::new(MTU_BYTES, first_of(&peer), 1);
    assert!(!world.run(30_000));
    for (id, receive) in world.receivers[0].receives.clone().iter().enumerate() {
        world.receivers[0].responder.post_receive(id as u64, receive.len() as u32);
    }
    assert!(world.run(HOUR_NS));
    check_all(&mut world, 0, &sent);
    let (switch, _) = world.first_switch(0);
    assert!(world.switches[&switch].tables.counters.counted(Counter::RnrNakForwarded) > 0);
}

fn first_of(responder: &roce::rc::Responder) -> roce::Serial {
    responder.expected()
}

#[test]
fn a_group_continues_without_a_dead_member_that_was_removed() {
    let mut world = racks(&["b1", "a2", "d1"], false, NO_FAULTS, 4);
    world.receivers[1].is_dead = true;
    let sent = vec![Message { is_write: true, bytes: 3000, immediate: None }; 2];
    send_all(&mut world, 0, &sent);
    assert!(!world.run(1_200_000), "nobody answers for the dead");
    let (switch, key) = world.first_switch(0);
    let dead = world.address(world.topology.find("a2").unwrap());
    let tables = &mut world.switches.get_mut(&switch).unwrap().tables;
    assert!(tables.remove_member(key, dead) && !tables.remove_member(key, dead));
    assert!(world.run(HOUR_NS));
    world.receivers.remove(1);
    check_all(&mut world, 0, &sent);
}

#[test]
fn a_group_with_a_dead_member_ends_with_an_error() {
    let mut world = racks(&["b1", "a2"], false, NO_FAULTS, 4);
    world.receivers[1].is_dead = true;
    send_all(&mut world, 0, &vec![Message { is_write: false, bytes: 300, immediate: None }; 2]);
    assert!(world.run(HOUR_NS));
    let ended: Vec<Status> = world.senders[0].completions.iter().map(|c| c.status).collect();
    assert_eq!(ended, [Status::NoAnswer, Status::Flushed]);
}

#[test]
fn writes_to_unknown_memory_fail_as_with_one_peer() {
    // Rewritten behind the sender's first switch, and by it.
    for members in [&["b1", "d1"][..], &["a2"]] {
        let mut world = racks(members, true, NO_FAULTS, 5);
        let address = VIRTUAL_START + (1 << 16) - 10;
        world.post(0, Kind::Write { address, key: 7 }, vec![1; 11], None);
        world.post(0, Kind::Send, vec![1], None);
        assert!(world.run(HOUR_NS));
        let ended: Vec<Status> = world.senders[0].completions.iter().map(|c| c.status).collect();
        assert_eq!(ended, [Status::Refused(roce::NakCode::RemoteAccess), Status::Flushed]);
        let unknown =
            world.switches.values().map(|s| s.tables.counters.counted(Counter::RegionUnknown));
        assert!(unknown.sum::<u64>() > 0);
        assert!(world.receivers.iter().all(|receiver| receiver.memory.iter().all(|&b| b == 0)));
    }
}

#[test]
fn sequence_numbers_wrap_within_long_messages() {
    let mut world = racks(&["b1", "a2", "d1"], false, Faults { lost: 3, ..NO_FAULTS }, 6);
    // The groups of this world begin up to 256 packets before the wrap.
    let sent = [Message { is_write: false, bytes: 256 * 1000, immediate: None }];
    send_all(&mut world, 0, &sent);
    assert!(world.run(HOUR_NS));
    check_all(&mut world, 0, &sent);
}
