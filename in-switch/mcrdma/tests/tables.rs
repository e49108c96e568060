//! What tables accept and refuse, and frames of no group.

use std::net::IpAddr;

use mcrdma::{
    Branch, Counter, GROUPS_MAX, GroupKey, MEMBERS_MAX, Merging, PLACES_MAX, REGIONS_MAX,
    REGIONS_TOTAL_MAX, Refused, Region, Replication, Rewriting, Source, Switch, Verdict,
};
use proptest::prelude::*;
use roce::{
    Aeth, Bth, Headers, IpHeader, Mac, Opcode, Packet, Reth, Serial, Syndrome, internet_checksum,
};

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

const fn key(id: u32) -> GroupKey {
    GroupKey { sender: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), id }
}

fn branch(host: u8, regions: &[(u64, u64)]) -> Branch {
    let region =
        |&(start, bytes): &(u64, u64)| Region { start, bytes, member_start: 0, member_key: 1 };
    let regions = regions.iter().map(region).collect();
    Branch {
        port: u32::from(host),
        mac: Mac([2, 0, 0, 0, 0, host]),
        target: address(host),
        rewriting: Some(Rewriting { qpn: 20, psn_offset: 0, regions }),
    }
}

fn replication(hosts: impl IntoIterator<Item = u8>) -> Replication {
    Replication {
        sender_qpn: 17,
        inputs: Vec::new(),
        branches: hosts.into_iter().map(|host| branch(host, &[])).collect(),
    }
}

fn merging(hosts: &[u8]) -> Merging {
    let source = |&host: &u8| Source { address: address(host), psn_offset: 0, ports: Vec::new() };
    Merging {
        psn_first: Serial::new(0),
        virtual_address: address(250),
        virtual_mac: Some(Mac([2, 0, 0, 0, 9, 9])),
        members: hosts.iter().map(source).collect(),
        all_notifications: false,
    }
}

#[test]
fn invalid_groups_are_refused_with_the_limit() {
    let mut tables = Switch::new().tables;
    let mut refused =
        |id, replication, merging| tables.insert(key(id), replication, merging).unwrap_err();
    assert_eq!(refused(9, replication([]), None), Refused::Members { key: key(9), count: 0 });
    let many = refused(9, replication(2..2 + MEMBERS_MAX as u8 + 1), None);
    assert_eq!(
        many.to_string(),
        "group 10.0.0.1/0x9: 65 members; a group has 1 to 64 at one switch"
    );
    assert_eq!(
        refused(1 << 24, replication([2]), None),
        Refused::QueuePairNumber { key: key(1 << 24), number: 1 << 24 }
    );
    let twice = Refused::SameAddress { key: key(9), address: address(3) };
    assert_eq!(refused(9, replication([3, 4]), Some(merging(&[3, 4, 3]))), twice);
    let v6 = Merging { virtual_address: "fd00::1".parse().unwrap(), ..merging(&[3]) };
    let family = Refused::Families { key: key(9), address: v6.virtual_address };
    assert_eq!(refused(9, replication([3]), Some(v6)), family);
    for regions in [&[(10, 10), (0, 11)][..], &[(5, 0)], &[(u64::MAX, 2)]] {
        let branches = vec![branch(3, regions)];
        let overlapping =
            refused(9, Replication { sender_qpn: 17, inputs: vec![], branches }, None);
        assert!(matches!(overlapping, Refused::Overlapping { .. }), "{overlapping}");
    }
    let regions: Vec<(u64, u64)> = (0..=REGIONS_MAX as u64).map(|at| (at * 10, 10)).collect();
    let branches = vec![branch(3, &regions)];
    let count = REGIONS_MAX + 1;
    let regions = Refused::Regions { key: key(9), member: address(3), count };
    assert_eq!(refused(9, Replication { sender_qpn: 17, inputs: vec![], branches }, None), regions);
    assert_eq!(
        regions.to_string(),
        "group 10.0.0.1/0x9: 1025 memory regions of 10.0.0.3; at most 1024: register fewer and larger ones"
    );
    assert_eq!(tables.groups().count(), 0);
}

#[test]
fn identifiers_and_queue_pairs_are_unique_and_reusable() {
    let mut tables = Switch::new().tables;
    let mut merged = |id| tables.insert(key(id), replication([2, 3]), Some(merging(&[2, 3])));
    merged(9).unwrap();
    assert_eq!(merged(9), Err(Refused::Duplicate { key: key(9) }));
    let taken = Refused::QueuePairTaken { key: key(10), sender: address(1), qpn: 17 };
    assert_eq!(merged(10), Err(taken));
    assert!(tables.mac(address(250)).is_some() && tables.merger(key(9)).is_some());
    assert!(tables.remove(key(9)) && !tables.remove(key(9)));
    assert_eq!((tables.mac(address(250)), tables.groups().count()), (None, 0));
    tables.insert(key(10), replication([2]), Some(merging(&[2]))).unwrap();
    assert_eq!(tables.replace(key(10), replication([3, 4])), Ok(true));
    assert_eq!(tables.replace(key(11), replication([3])), Ok(false));
    assert!(tables.replace(key(10), replication([])).is_err());
    assert_eq!(tables.groups().next().unwrap().1.branches.len(), 2);
}

#[test]
fn a_full_table_refuses_the_next_group_until_one_is_removed() {
    let mut tables = Switch::new().tables;
    for id in 0..GROUPS_MAX as u32 {
        tables.insert(key(0x10_0000 + id), replication([2]), None).unwrap();
    }
    let full = tables.insert(key(9), replication([2]), None);
    assert_eq!(full, Err(Refused::TableFull { key: key(9) }));
    assert!(tables.remove(key(0x10_0000)));
    tables.insert(key(9), replication([2]), None).unwrap();
    assert_eq!(tables.groups().count(), GROUPS_MAX);
}

#[test]
fn copies_of_all_groups_are_counted_and_refused_with_the_number() {
    let mut tables = Switch::new().tables;
    let hosts = || 2..2 + MEMBERS_MAX as u8;
    let groups = (PLACES_MAX / MEMBERS_MAX) as u32;
    for id in 1..groups {
        tables.insert(key(0x10_0000 + id), replication(hosts()), None).unwrap();
    }
    tables.insert(key(8), replication([2]), None).unwrap();
    let full = tables.insert(key(9), replication(hosts()), None).unwrap_err();
    let free = MEMBERS_MAX - 1;
    assert_eq!(
        full,
        Refused::CapacityExceeded {
            key: key(9),
            what: "copies",
            count: MEMBERS_MAX,
            free,
            most: PLACES_MAX
        }
    );
    assert_eq!(
        full.to_string(),
        "group 10.0.0.1/0x9: 64 copies, and this switch has capacity for 63 more; at most 262144 for \
         all its groups together: remove groups that are no longer used"
    );
    tables.insert(key(9), replication(hosts().skip(1)), None).unwrap();
    assert!(tables.replace(key(9), replication(hosts())).is_err());
    assert_eq!(tables.replace(key(9), replication([2, 3])), Ok(true));
    assert_eq!(tables.replace(key(8), replication(hosts().skip(2))), Ok(true));
    assert!(tables.remove(key(8)));
    tables.insert(key(8), replication(hosts().skip(2)), None).unwrap();
}

/// As many regions as a member and a switch may have, in any order; one more is refused.
#[test]
fn regions_are_found_up_to_the_limits() {
    let mut tables = Switch::new().tables;
    let regions: Vec<(u64, u64)> = (1..=REGIONS_MAX as u64).rev().map(|at| (at * 16, 10)).collect();
    let full = || {
        let branches = (2..2 + MEMBERS_MAX as u8).map(|host| branch(host, &regions)).collect();
        Replication { sender_qpn: 17, inputs: vec![], branches }
    };
    let per_group = MEMBERS_MAX * REGIONS_MAX;
    for number in 0..REGIONS_TOTAL_MAX / per_group {
        tables.insert(key(0x10_0000 + number as u32), full(), None).unwrap();
    }
    let one = || Replication { branches: vec![branch(2, &[(5, 5)])], ..full() };
    let refused = tables.insert(key(9), one(), None).unwrap_err();
    let (what, most) = ("memory regions", REGIONS_TOTAL_MAX);
    assert_eq!(refused, Refused::CapacityExceeded { key: key(9), what, count: 1, free: 0, most });
    assert!(tables.replace(key(0x10_0000), full()).unwrap());
    assert!(tables.replace(key(0x10_0000), one()).unwrap());
    tables
        .insert(key(9), Replication { branches: vec![branch(3, &regions)], ..full() }, None)
        .unwrap();
    assert!(tables.remove(key(9)) && tables.replace(key(0x10_0000), full()).unwrap());
    let found = &tables.replication(key(0x10_0000)).unwrap().branches[7];
    for place in 0..16 * (REGIONS_MAX as u64 + 2) {
        for bytes in [1, 5] {
            let mut headers = request(1, 9);
            headers.bth.opcode = Opcode::WriteOnly;
            headers.reth = Some(Reth { address: place, key: 0, bytes });
            let is_known = regions.iter().any(|&(start, length)| {
                start <= place && place + u64::from(bytes) <= start + length
            });
            assert_eq!(found.patch(&headers).is_some(), is_known, "{bytes} bytes at {place}");
        }
    }
}

fn frame(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14 + headers.packet_bytes(payload.len())];
    frame[12] = 8;
    headers.write(payload, &mut frame[14..]).unwrap();
    frame
}

fn switch() -> Switch {
    let mut switch = Switch::new();
    switch.tables.insert(key(9), replication([2, 3]), Some(merging(&[2, 3]))).unwrap();
    switch
}

fn request(source: u8, qpn: u32) -> Headers {
    let ip = IpHeader::new(address(source), address(250)).unwrap();
    Headers::new(ip, Bth::new(Opcode::SendOnly, qpn, Serial::new(0)))
}

/// The verdict on a frame, and the number of its copies.
fn handle(switch: &mut Switch, frame: &mut Vec<u8>) -> (Verdict, usize) {
    handle_at(switch, 1, frame)
}

fn handle_at(switch: &mut Switch, port: u32, frame: &mut Vec<u8>) -> (Verdict, usize) {
    let mut copies = 0;
    let verdict = switch.handle(0, port, frame, |_, _| {
        copies += 1;
        true
    });
    (verdict, copies)
}

#[test]
fn packets_of_no_group_pass_unchanged() {
    let mut switch = switch();
    let mut fragment = frame(&request(1, 9), b"x");
    fragment[20] = 0x20;
    let cut = frame(&request(1, 9), b"four")[..60].to_vec();
    let mut tagged = frame(&request(1, 9), b"x");
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    // A service tag, and two tags.
    let mut stacked = frame(&request(1, 9), b"x");
    stacked[12..14].copy_from_slice(&[0x88, 0xa8]);
    let mut twice = frame(&request(1, 9), b"x");
    twice.splice(12..12, [0x81, 0, 0, 5, 0x81, 0, 0, 6]);
    // READs to others, and a READ's response.
    let read = |source, qpn, opcode: u8| {
        let mut read = frame(&request(source, qpn), b"as long as a RETH");
        read[14 + 28] = opcode;
        read
    };
    let others = [
        (frame(&request(1, 8), b"x"), Counter::Foreign),
        (frame(&request(4, 9), b"x"), Counter::Foreign),
        (tagged, Counter::Foreign),
        (fragment, Counter::Fragment),
        (cut, Counter::Malformed),
        (stacked, Counter::TagUnsupported),
        (twice, Counter::TagUnsupported),
        (read(1, 8, 0x0c), Counter::Foreign),
        (read(4, 9, 0x0c), Counter::Foreign),
        (read(1, 9, 0x0d), Counter::Foreign),
        (vec![1; 9], Counter::Malformed),
    ];
    for (mut frame, counter) in others {
        let (before, counted) = (frame.clone(), switch.tables.counters.counted(counter));
        assert_eq!(handle(&mut switch, &mut frame), (Verdict::Pass, 0));
        assert_eq!(frame, before);
        assert_eq!(switch.tables.counters.counted(counter), counted + 1, "{counter:?}");
    }
    assert_eq!(handle(&mut switch, &mut frame(&request(1, 9), b"x")), (Verdict::Drop, 2));
}

/// At once, with the packet number that the group expects: nothing before it is acknowledged by that.
#[test]
fn requests_that_only_one_receiver_can_carry_out_are_refused() {
    for (number, opcode) in (1..).zip(Opcode::ALL.into_iter().filter(|opcode| opcode.is_unicast()))
    {
        let mut switch = switch();
        let mut asked = request(1, 9);
        (asked.bth.opcode, asked.bth.psn) = (opcode, Serial::new(number));
        let mut own = frame(&asked, &[0; 28]);
        let sent = own.clone();
        assert_eq!(handle(&mut switch, &mut own), (Verdict::Reflect, 0), "{opcode:?}");
        let nak = Packet::parse(&own[14..]).unwrap();
        assert!(nak.is_intact());
        let headers = nak.headers;
        assert_eq!((headers.ip.source, headers.ip.target), (address(250), address(1)));
        assert_eq!((headers.bth.target_qpn, headers.bth.psn), (17, Serial::new(0)));
        let syndrome = Syndrome::Nak(roce::NakCode::InvalidRequest);
        assert_eq!(headers.aeth, Some(Aeth { syndrome, msn: Serial::new(0) }));
        let mut damaged = sent;
        damaged[14 + 45] ^= 1;
        assert_eq!(handle(&mut switch, &mut damaged), (Verdict::Drop, 0));
        let counted = |counter| switch.tables.counters.counted(counter);
        assert_eq!((counted(Counter::RequestRefused), counted(Counter::IcrcError)), (2, 1));
        assert_eq!((counted(Counter::NakForwarded), counted(Counter::Malformed)), (1, 0));
    }
}

#[test]
fn a_vlan_tag_is_kept_on_copies_answers_and_refusals() {
    let mut switch = switch();
    let tag = [0x81, 0, 0x60, 5];
    let tagged = |headers: &Headers, payload: &[u8]| {
        let mut frame = frame(headers, payload);
        frame.splice(12..12, tag);
        frame
    };
    let mut own = tagged(&request(1, 9), b"x");
    let mut copies = 0;
    let verdict = switch.handle(0, 1, &mut own, |port, copy| {
        let copy = copy.concat();
        assert_eq!(copy[12..16], tag);
        let packet = Packet::parse(&copy[18..]).unwrap();
        assert!(packet.is_intact());
        assert_eq!(packet.headers.ip.target, address(port as u8));
        copies += 1;
        true
    });
    assert_eq!((verdict, copies), (Verdict::Drop, 2));
    assert_eq!(handle(&mut switch, &mut tagged(&answer(3, 5), b"")), (Verdict::Drop, 0));
    let mut merged = tagged(&answer(2, 5), b"");
    assert_eq!(handle(&mut switch, &mut merged), (Verdict::Pass, 0));
    let mut read = request(1, 9);
    read.bth.opcode = Opcode::ReadRequest;
    let mut refused = tagged(&read, &[0; 16]);
    assert_eq!(handle(&mut switch, &mut refused), (Verdict::Reflect, 0));
    for frame in [merged, refused] {
        assert_eq!(frame[12..16], tag);
        let packet = Packet::parse(&frame[18..]).unwrap();
        assert!(packet.is_intact());
        assert_eq!(packet.headers.ip.source, address(250));
    }
}

/// Of a host to the queue pair of the group's sender.
fn answer(source: u8, psn: u32) -> Headers {
    let ip = IpHeader::new(address(source), address(1)).unwrap();
    let mut headers = Headers::new(ip, Bth::new(Opcode::Acknowledge, 17, Serial::new(psn)));
    headers.aeth = Some(Aeth { syndrome: Syndrome::Ack(31), msn: Serial::new(1) });
    headers
}

/// Another connection may reuse the number of a queue pair whose group is still there.
#[test]
fn answers_of_non_members_pass_unchanged() {
    let mut switch = switch();
    for psn in [0, 5, 0xff_0000] {
        let mut own = frame(&answer(4, psn), b"");
        // Its ICRC is checked by its receiver.
        own[14 + 20 + 8 + 9] ^= (psn & 1) as u8;
        let before = own.clone();
        assert_eq!(handle(&mut switch, &mut own), (Verdict::Pass, 0));
        assert_eq!(own, before);
    }
    let mut notification = answer(4, 0);
    (notification.bth.opcode, notification.aeth) = (Opcode::Cnp, None);
    let mut notification = frame(&notification, b"");
    assert_eq!(handle(&mut switch, &mut notification), (Verdict::Pass, 0));
    assert_eq!(switch.tables.counters.counted(Counter::AnswerForeign), 4);
}

/// Forwarded, it would count as an answer of all members.
#[test]
fn answers_of_removed_members_or_with_the_virtual_address_are_dropped() {
    let mut switch = switch();
    assert!(switch.tables.remove_member(key(9), address(2)));
    for source in [2, 250] {
        assert_eq!(handle(&mut switch, &mut frame(&answer(source, 5), b"")), (Verdict::Drop, 0));
    }
    assert_eq!(switch.tables.counters.counted(Counter::AnswerDropped), 2);
    assert_eq!(handle(&mut switch, &mut frame(&answer(3, 5), b"")), (Verdict::Pass, 0));
    assert_eq!(switch.tables.counters.counted(Counter::AckForwarded), 1);
}

#[test]
fn the_removal_of_the_member_that_was_waited_for_is_told_to_the_sender() {
    let mut switch = switch();
    let mut sent = frame(&answer(3, 7), b"");
    sent[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(handle_at(&mut switch, 4, &mut sent.clone()), (Verdict::Drop, 0));
    let (was_member, told) = switch.remove_member(key(9), address(2));
    let (port, mut own) = told.expect("the group has advanced");
    assert_eq!((was_member, port), (true, 4));
    assert_eq!(own, sent, "the other's answer once more");
    assert_eq!(handle_at(&mut switch, port, &mut own), (Verdict::Pass, 0));
    let packet = Packet::parse(&own[14..]).unwrap();
    assert!(packet.is_intact());
    assert_eq!((packet.headers.ip.source, packet.headers.bth.psn), (address(250), Serial::new(7)));
    assert_eq!(switch.tables.counters.counted(Counter::AckForwarded), 1);
    // The last one stays, and there is nothing more to tell.
    assert_eq!(switch.remove_member(key(9), address(3)), (false, None));
}

/// Each copy has a hop limit one lower, so that loops end.
#[test]
fn copies_have_a_lower_hop_limit_and_none_is_made_at_one() {
    let mut switch = switch();
    for (hop_limit, left) in [(255, Some(254)), (2, Some(1)), (1, None), (0, None)] {
        let mut headers = request(1, 9);
        headers.ip.hop_limit = hop_limit;
        let mut copies = Vec::new();
        let verdict = switch.handle(0, 1, &mut frame(&headers, b"x"), |_, copy| {
            let copy = copy.concat();
            let packet = Packet::parse(&copy[14..]).unwrap();
            assert!(packet.is_intact());
            assert_eq!(internet_checksum([&copy[14..34]]), 0);
            copies.push(packet.headers.ip.hop_limit);
            true
        });
        assert_eq!((verdict, copies), (Verdict::Drop, left.map_or(vec![], |left| vec![left; 2])));
    }
    assert_eq!(switch.tables.counters.counted(Counter::RequestExpired), 2);
}

#[test]
fn requests_and_answers_are_accepted_at_their_ports_only() {
    let mut switch = Switch::new();
    let mut replication = replication([2, 3]);
    replication.inputs = vec![7, 8];
    let mut merging = merging(&[2, 3]);
    (merging.members[0].ports, merging.members[1].ports) = (vec![2], vec![3, 4]);
    switch.tables.insert(key(9), replication, Some(merging)).unwrap();
    for (port, copies) in [(7, 2), (8, 2), (2, 0), (9, 0)] {
        let copied = handle_at(&mut switch, port, &mut frame(&request(1, 9), b"x"));
        assert_eq!(copied, (Verdict::Drop, copies), "port {port}");
    }
    for (member, port, verdict) in
        [(3, 4, Verdict::Drop), (2, 3, Verdict::Drop), (2, 7, Verdict::Drop), (2, 2, Verdict::Pass)]
    {
        assert_eq!(handle_at(&mut switch, port, &mut frame(&answer(member, 5), b"")).0, verdict);
    }
    let mut notification = answer(2, 0);
    (notification.bth.opcode, notification.aeth) = (Opcode::Cnp, None);
    let notification = frame(&notification, b"");
    for (port, verdict) in [(3, Verdict::Drop), (2, Verdict::Pass)] {
        assert_eq!(handle_at(&mut switch, port, &mut notification.clone()).0, verdict);
    }
    let counted = |switch: &Switch, counter| switch.tables.counters.counted(counter);
    assert_eq!(counted(&switch, Counter::RequestMisplaced), 2);
    assert_eq!(counted(&switch, Counter::AnswerDropped), 3);
    assert_eq!(counted(&switch, Counter::AnswerSuppressed), 1);
    // Routes change.
    let moved = [Source { address: address(2), psn_offset: 0, ports: vec![5] }];
    assert_eq!(switch.tables.relocate(key(9), &moved), Ok(true));
    assert_eq!(handle_at(&mut switch, 2, &mut frame(&answer(2, 6), b"")).0, Verdict::Drop);
    assert_eq!(handle_at(&mut switch, 5, &mut frame(&answer(2, 6), b"")).0, Verdict::Drop);
    assert_eq!(counted(&switch, Counter::AnswerDropped), 4);
    let many = [Source { ports: (1..18).collect(), ..moved[0].clone() }];
    let refused = Refused::Ports { key: key(9), count: 17 };
    assert_eq!(switch.tables.relocate(key(9), &many), Err(refused));
    assert_eq!(switch.tables.relocate(key(8), &moved), Ok(false));
}

#[test]
fn copies_that_cannot_be_handed_on_are_counted() {
    let mut switch = switch();
    let verdict = switch.handle(0, 1, &mut frame(&request(1, 9), b"x"), |port, _| port == 2);
    let counted = |counter| switch.tables.counters.counted(counter);
    assert_eq!(verdict, Verdict::Drop);
    assert_eq!((counted(Counter::Copy), counted(Counter::CopyFailed)), (1, 1));
}

proptest! {
/// Arbitrary frames cause no panic, and only the sender's are copied.
    #[test]
    fn arbitrary_frames_cause_no_panic(
        kind in prop::sample::select(vec![[8, 0], [0x86, 0xdd], [8, 6], [0, 0]]),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        flips in prop::collection::vec((0_usize..80, any::<u8>()), 0..4),
    ) {
        let mut switch = switch();
        let mut any = [&[0; 12][..], &kind, &bytes].concat();
        prop_assert_eq!(handle(&mut switch, &mut any).1, 0);
        let mut near = frame(&request(1, 9), &[5; 20]);
        for (at, byte) in flips {
            if let Some(place) = near.get_mut(at) {
                *place = byte;
            }
        }
        handle(&mut switch, &mut near);
    }
}
