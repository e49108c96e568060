//! What is counted of one group, by the program in the kernel and by the pure logic. Needs root, and a build with clang.

use data_plane::{DataPlane, KernelPlane};
use mcrdma::{AnswerCounters, Counter, Counters, GroupKey, Source};
use roce::{Aeth, Headers, NakCode, Opcode, Reth, Serial, Syndrome};

use crate::kernel_switch::{
    PORTS, SENDER_QPN, Twins, VIRTUAL, address, answer, directory, frame, group, key, request,
    skipped,
};

/// The group's first packet.
const FIRST: u32 = 0xff_fff0;

const fn aeth(syndrome: Syndrome) -> Option<Aeth> {
    Some(Aeth { syndrome, msn: Serial::new(1) })
}

/// An answer at the member's own port.
fn at_member(twins: &mut Twins, is_v6: bool, member: u8, psn: u32, of: Option<Aeth>) {
    let sent = frame(&answer(is_v6, member, psn, of), &[]);
    twins.compare(usize::from(member) - 1, &sent);
}

/// A request at the sender's port. Returns its bytes from the IP header on.
fn from_sender(twins: &mut Twins, headers: &Headers, payload: &[u8]) -> u64 {
    twins.compare(0, &frame(headers, payload));
    headers.packet_bytes(payload.len()) as u64
}

fn counts(counts: &[(Counter, u64)]) -> Counters {
    let mut all = Counters::default();
    counts.iter().for_each(|&(counter, number)| all.count_many(counter, number));
    all
}

/// Packets of each kind, of which each is counted once, where it belongs.
#[test]
fn each_packet_of_a_group_is_counted_with_what_became_of_it() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("counted");
    for is_v6 in [false, true] {
        let (replication, merging) = group(&twins.ports, is_v6);
        twins.insert(key(is_v6), replication.clone(), Some(merging));
        // Another group of the same queue pair, which is only copied: nothing of the first is counted for it.
        let other = GroupKey { id: 7, ..key(is_v6) };
        twins.insert(other, replication, None);
        let send = |psn| request(is_v6, Opcode::SendMiddle, psn, None);
        let mut bytes = 0;
        for psn in 0..3 {
            bytes += from_sender(&mut twins, &send(FIRST + psn), &[9; 101]);
        }
        let reth = Some(Reth { address: 0x7000, key: 1, bytes: 64 });
        let unknown = request(is_v6, Opcode::WriteOnly, FIRST + 3, reth);
        bytes += from_sender(&mut twins, &unknown, &[1; 64]);
        let mut damaged = frame(&unknown, &[1; 64]);
        *damaged.last_mut().unwrap() ^= 1;
        twins.compare(0, &damaged);
        bytes += unknown.packet_bytes(64) as u64;
        let read = request(is_v6, Opcode::ReadRequest, FIRST + 3, None);
        bytes += from_sender(&mut twins, &read, &[0; 16]);
        let mut last_hop = send(FIRST);
        last_hop.ip.hop_limit = 1;
        from_sender(&mut twins, &last_hop, b"x");
        twins.compare(1, &frame(&send(FIRST), b"x"));

        let ack = |number: u8| aeth(Syndrome::Ack(number));
        for member in 2..6 {
            at_member(&mut twins, is_v6, member, FIRST, ack(31));
        }
        at_member(&mut twins, is_v6, 4, FIRST + 1, aeth(Syndrome::Nak(NakCode::Sequence)));
        at_member(&mut twins, is_v6, 5, FIRST + 1, aeth(Syndrome::Nak(NakCode::Sequence)));
        at_member(&mut twins, is_v6, 5, FIRST + 1, aeth(Syndrome::ReceiverNotReady(9)));
        at_member(&mut twins, is_v6, 4, FIRST + 1, aeth(Syndrome::ReceiverNotReady(9)));
        at_member(&mut twins, is_v6, 3, FIRST, None);
        at_member(&mut twins, is_v6, 2, FIRST, None);
        at_member(&mut twins, is_v6, 3, FIRST, None);
        // At another's port, with a reserved syndrome, and damaged.
        twins.compare(4, &frame(&answer(is_v6, 2, FIRST, ack(1)), &[]));
        at_member(&mut twins, is_v6, 2, FIRST, aeth(Syndrome::Reserved(0x45)));
        let mut damaged = frame(&answer(is_v6, 2, FIRST, ack(1)), &[]);
        *damaged.last_mut().unwrap() ^= 1;
        twins.compare(1, &damaged);
        // No members'.
        for host in [VIRTUAL, 99] {
            twins.compare(1, &frame(&answer(is_v6, host, FIRST, ack(1)), &[]));
        }

        let found = twins.group_counters(key(is_v6));
        let expected = counts(&[
            (Counter::Request, 6),
            (Counter::Copy, 3 * (PORTS as u64 - 1)),
            (Counter::RequestMisplaced, 1),
            (Counter::RequestExpired, 1),
            (Counter::RegionUnknown, 2),
            (Counter::RequestRefused, 1),
            (Counter::IcrcError, 1),
            (Counter::AnswerForeign, 1),
            (Counter::AnswerDropped, 1),
        ]);
        let others = found.packets.iter().zip(Counter::ALL);
        let others = others.filter(|(_, (counter, _))| !Counter::OF_GROUPS.contains(counter));
        assert!(others.into_iter().all(|((_, count), _)| count == 0), "{found:?}");
        assert_eq!(found.packets, expected);
        assert_eq!(found.request_bytes, bytes);
        let none = AnswerCounters::default();
        let members = [
            AnswerCounters { suppressed: [1, 0, 0, 1], dropped: 2, icrc_errors: 1, ..none },
            AnswerCounters { forwarded: [0, 0, 0, 2], suppressed: [1, 0, 0, 0], ..none },
            AnswerCounters { forwarded: [0, 1, 0, 0], suppressed: [1, 0, 1, 0], ..none },
            AnswerCounters { forwarded: [1, 0, 1, 0], suppressed: [0, 1, 0, 0], ..none },
        ];
        let members = (2..).map(|member| address(is_v6, member)).zip(members);
        assert_eq!(found.members, members.collect::<Vec<_>>());
        assert_eq!(twins.group_counters(other).packets, Counters::default());
    }
    twins.compare_counters();
}

#[test]
fn counters_survive_what_a_group_survives_and_go_with_it() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("kept");
    let (mut replication, merging) = group(&twins.ports, false);
    twins.insert(key(false), replication.clone(), Some(merging.clone()));
    let sent = frame(&request(false, Opcode::SendOnly, FIRST, None), b"x");
    let pass = |twins: &mut Twins| {
        twins.compare(0, &sent);
        at_member(twins, false, 2, FIRST, aeth(Syndrome::Ack(1)));
    };
    pass(&mut twins);
    replication.branches.rotate_left(1);
    twins.kernel.as_mut().unwrap().replace(key(false), &replication).unwrap();
    assert!(twins.pure.tables.replace(key(false), replication.clone()).unwrap());
    pass(&mut twins);
    let mut moved: Vec<Source> = merging.members.clone();
    moved[0].ports.push(twins.ports[0]);
    twins.kernel.as_mut().unwrap().relocate(key(false), SENDER_QPN, &moved).unwrap();
    assert!(twins.pure.tables.relocate(key(false), &moved).unwrap());
    pass(&mut twins);
    // What a removed member has sent stays known, and what it still sends is counted as dropped.
    twins.remove_member(key(false), SENDER_QPN, address(false, 2));
    pass(&mut twins);
    twins.kernel = None;
    twins.compare(0, &sent);
    let mut kernel = KernelPlane::open_with_test_clock(&directory("kept")).unwrap();
    (0..PORTS).for_each(|port| kernel.attach(&format!("s{port}")).unwrap());
    twins.kernel = Some(kernel);
    pass(&mut twins);
    let found = twins.group_counters(key(false));
    assert_eq!(found.packets.counted(Counter::Request), 6, "{found:?}");
    let (member, answers) = found.members[0];
    assert_eq!((member, answers.dropped), (address(false, 2), 2), "{found:?}");
    assert_eq!(answers.forwarded[0] + answers.suppressed[0], 3, "{found:?}");

    let kernel = twins.kernel.as_mut().unwrap();
    kernel.remove(key(false), &replication, Some(&merging)).unwrap();
    assert!(kernel.group_counters(key(false), SENDER_QPN, None).is_err(), "it is gone");
    assert!(twins.pure.tables.remove(key(false)));
    twins.insert(key(false), replication, Some(merging));
    let found = twins.group_counters(key(false));
    assert_eq!((found.packets, found.request_bytes), (Counters::default(), 0));
    assert!(found.members.iter().all(|(_, answers)| *answers == AnswerCounters::default()));
}
