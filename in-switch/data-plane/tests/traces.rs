//! Traces of one group, by the program in the kernel and by the pure logic. Needs root, and a build with clang.

use aya::maps::{HashMap, Map, MapData};
use data_plane::{DataPlane, KernelPlane};
use mcrdma::{Counter, GroupKey, TRACE_KEPT_MAX, Traced};
use roce::{Aeth, NakCode, Opcode, Reth, Serial, Syndrome};

use crate::kernel_switch::{
    PORTS, SENDER_QPN, Twins, address, answer, directory, frame, group, key, request, skipped,
};

/// The group's first packet.
const FIRST: u32 = 0xff_fff0;

fn trace(twins: &mut Twins, key: GroupKey, is_on: bool) {
    twins.kernel.as_mut().unwrap().trace(key, SENDER_QPN, is_on).unwrap();
    assert!(twins.pure.tables.trace(key, is_on));
}

/// What was traced: by both the same, with times.
fn take(twins: &mut Twins, key: GroupKey) -> Option<Traced> {
    let found = twins.kernel.as_mut().unwrap().take_traced(key).unwrap();
    assert_eq!(found, twins.pure.tables.take_traced(key));
    found
}

/// A message of four packets from this one on, of which member 4 loses the second. Returns how many packets come.
fn lossy_message(twins: &mut Twins, is_v6: bool, first: u32) -> usize {
    let send = |opcode, psn| frame(&request(is_v6, opcode, first + psn, None), &[7; 64]);
    for (psn, opcode) in [
        (0, Opcode::SendFirst),
        (1, Opcode::SendMiddle),
        (2, Opcode::SendMiddle),
        (3, Opcode::SendLast),
    ] {
        twins.compare(0, &send(opcode, psn));
    }
    let mut answers = 0;
    let mut answered = |twins: &mut Twins, member: u8, psn, syndrome| {
        let aeth = Aeth { syndrome, msn: Serial::new(1) };
        let sent = frame(&answer(is_v6, member, first + psn, Some(aeth)), &[]);
        twins.compare(usize::from(member) - 1, &sent);
        answers += 1;
    };
    answered(twins, 4, 1, Syndrome::Nak(NakCode::Sequence));
    for member in [2, 3, 5] {
        answered(twins, member, 3, Syndrome::Ack(31));
    }
    for (psn, opcode) in [(1, Opcode::SendMiddle), (2, Opcode::SendMiddle), (3, Opcode::SendLast)] {
        twins.compare(0, &send(opcode, psn));
    }
    answered(twins, 4, 3, Syndrome::Ack(31));
    7 + answers
}

#[test]
fn a_trace_has_each_packet_of_the_group_in_order_with_what_was_decided() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("traced");
    for is_v6 in [false, true] {
        let (replication, merging) = group(&twins.ports, is_v6);
        let (key, other) = (key(is_v6), GroupKey { id: 7, ..key(is_v6) });
        twins.insert(key, replication.clone(), Some(merging));
        twins.insert(other, replication.clone(), None);
        lossy_message(&mut twins, is_v6, FIRST);
        assert_eq!(take(&mut twins, key), None, "it is off");
        trace(&mut twins, key, true);
        assert_eq!(take(&mut twins, key), Some(Traced::default()), "of before there is nothing");
        // A group that is not traced, and answers of others.
        let mut headers = request(is_v6, Opcode::SendOnly, 9, None);
        headers.bth.target_qpn = other.id;
        twins.compare(0, &frame(&headers, b"x"));

        let second = FIRST + 4;
        let count = lossy_message(&mut twins, is_v6, second);
        let Traced { packets, lost } = take(&mut twins, key).unwrap();
        assert_eq!((packets.len(), lost), (count, 0));
        let requests: Vec<_> = packets.iter().filter(|packet| packet.answer.is_none()).collect();
        let copied: Vec<_> = twins.ports[1..].iter().map(|&port| (port, true)).collect();
        assert!(requests.iter().all(|packet| packet.decision == Counter::Copy));
        assert!(requests.iter().all(|packet| packet.copies == copied));
        assert!(requests.iter().all(|packet| packet.port == twins.ports[0]));
        let numbers: Vec<u32> = requests.iter().map(|p| p.psn.get() - second).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 1, 2, 3]);
        assert_eq!(requests[3].operation(), "SEND last");
        let answers: Vec<_> = packets
            .iter()
            .filter_map(|packet| Some((packet.answer?.0, packet.operation(), packet.decision)))
            .collect();
        use Counter::{AckForwarded, AnswerSuppressed, NakForwarded};
        let expected = [
            (4, "NAK (sequence error)", NakForwarded),
            (2, "ACK", AnswerSuppressed),
            (3, "ACK", AnswerSuppressed),
            (5, "ACK", AckForwarded),
            (4, "ACK", AckForwarded),
        ];
        let of = |(member, operation, decision)| (address(is_v6, member), operation, decision);
        assert_eq!(answers, expected.map(of));

        // Each of the other decisions; branches change meanwhile.
        let mut now = replication;
        now.branches.rotate_left(1);
        twins.kernel.as_mut().unwrap().replace(key, &now).unwrap();
        assert!(twins.pure.tables.replace(key, now).unwrap());
        let reth = Some(Reth { address: 0x7000, key: 1, bytes: 64 });
        let unknown = frame(&request(is_v6, Opcode::WriteOnly, FIRST, reth), &[1; 64]);
        let mut damaged = unknown.clone();
        *damaged.last_mut().unwrap() ^= 1;
        let read = frame(&request(is_v6, Opcode::ReadRequest, FIRST, None), &[0; 16]);
        let mut last_hop = request(is_v6, Opcode::SendOnly, FIRST, None);
        last_hop.ip.hop_limit = 1;
        let sent = frame(&request(is_v6, Opcode::SendOnly, FIRST, None), b"x");
        let cnp = |host| frame(&answer(is_v6, host, FIRST, None), &[]);
        let reserved = Aeth { syndrome: Syndrome::Reserved(0x45), msn: Serial::new(0) };
        let reserved = frame(&answer(is_v6, 2, FIRST, Some(reserved)), &[]);
        for (port, frame, decision) in [
            (0, unknown, Counter::RegionUnknown),
            (0, damaged, Counter::IcrcError),
            (0, read, Counter::RequestRefused),
            (0, frame(&last_hop, b"x"), Counter::RequestExpired),
            (1, sent.clone(), Counter::RequestMisplaced),
            (1, cnp(2), Counter::CnpForwarded),
            (2, cnp(3), Counter::CnpSuppressed),
            (4, cnp(2), Counter::AnswerDropped),
            (1, reserved, Counter::AnswerDropped),
            (1, cnp(99), Counter::AnswerForeign),
            (0, sent, Counter::Copy),
        ] {
            twins.compare(port, &frame);
            let packets = take(&mut twins, key).unwrap().packets;
            let [packet] = &packets[..] else { panic!("{decision:?} {packets:?}") };
            assert_eq!((packet.port, packet.decision), (twins.ports[port], decision));
        }

        trace(&mut twins, key, false);
        lossy_message(&mut twins, is_v6, second + 4);
        assert_eq!(take(&mut twins, key), None);
        trace(&mut twins, key, true);
        assert_eq!(take(&mut twins, key), Some(Traced::default()), "of between there is nothing");
        trace(&mut twins, key, false);
    }
    twins.compare_counters();
}

#[test]
fn a_slow_reader_is_told_how_many_packets_are_missing() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("slow");
    let (replication, merging) = group(&twins.ports, false);
    twins.insert(key(false), replication, Some(merging));
    trace(&mut twins, key(false), true);
    // More than the kernel's buffer and the agent's hold: each takes at least 88 bytes of 1 MiB.
    let sent = frame(&answer(false, 2, FIRST, None), &[]);
    // Many at a time: on emulated processors each wait for a frame takes some timer ticks.
    let (many, burst) = (13_000, 50);
    for _ in 0..many / burst {
        twins.compare_often(1, &sent, burst as usize);
    }
    let kernel = twins.kernel.as_mut().unwrap();
    for found in
        [kernel.take_traced(key(false)).unwrap(), twins.pure.tables.take_traced(key(false))]
    {
        let Traced { packets, lost } = found.unwrap();
        assert_eq!(packets.len(), TRACE_KEPT_MAX);
        assert_eq!(packets.len() as u64 + lost, many);
    }
    // It goes on, and the number stays.
    twins.compare(1, &sent);
    let Traced { packets, lost } = take(&mut twins, key(false)).unwrap();
    assert_eq!((packets.len(), lost), (1, many - TRACE_KEPT_MAX as u64));
}

/// Flags of the group's entry, and of its sender's.
fn flags(name: &str) -> [u32; 2] {
    fn values<const BYTES: usize>(name: &str, map: &str, at: usize) -> u32 {
        let directory = directory(name);
        let pinned = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        let is_it = |path: &std::path::PathBuf| {
            path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{map}-"))
        };
        let map = MapData::from_pin(pinned.into_iter().find(is_it).unwrap()).unwrap();
        let map: HashMap<_, [u8; 20], [u8; BYTES]> = Map::HashMap(map).try_into().unwrap();
        let (_, value) = map.iter().next().unwrap().unwrap();
        u32::from_ne_bytes(value[at..at + 4].try_into().unwrap())
    }
    [values::<2648>(name, "groups", 16), values::<48>(name, "senders", 40)]
}

#[test]
fn the_end_of_a_trace_and_of_its_agent_stop_the_program_from_noting_packets() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("ended");
    let (replication, merging) = group(&twins.ports, false);
    twins.insert(key(false), replication.clone(), Some(merging.clone()));
    assert_eq!(flags("ended"), [0, 0]);
    trace(&mut twins, key(false), true);
    assert_eq!(flags("ended"), [1, 1]);
    trace(&mut twins, key(false), false);
    assert_eq!(flags("ended"), [0, 0]);
    trace(&mut twins, key(false), true);
    twins.kernel = None;
    assert_eq!(flags("ended"), [1, 1], "it had no time to end it");
    let mut kernel = KernelPlane::open_with_test_clock(&directory("ended")).unwrap();
    assert_eq!(flags("ended"), [0, 0]);
    (0..PORTS).for_each(|port| kernel.attach(&format!("s{port}")).unwrap());
    assert_eq!(kernel.take_traced(key(false)).unwrap(), None);
    // A group that is removed takes its trace with it.
    kernel.trace(key(false), SENDER_QPN, true).unwrap();
    kernel.remove(key(false), &replication, Some(&merging)).unwrap();
    assert_eq!(kernel.take_traced(key(false)).unwrap(), None);
    kernel.insert(key(false), &replication, Some(&merging)).unwrap();
    assert_eq!(flags("ended"), [0, 0]);
    twins.kernel = Some(kernel);
}
