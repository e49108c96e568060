//! Conversion of map entries from and to byte arrays, for which `aya` needs no `unsafe impl Pod`.

use std::net::{IpAddr, Ipv6Addr};

use mcrdma::{
    AnswerCounters, Branch, Counter, GroupKey, MEMBERS_MAX, Merging, PORTS_MAX, Port, Region,
    Replication, Rewriting, Source, TracedPacket,
};
use roce::{
    Aeth, BTH_BYTES, Mac, Opcode, Serial, ShiftTables, Syndrome, UDP_BYTES,
    ethernet::{TYPE_IPV4, TYPE_IPV6, TYPE_TAG},
};
use zerocopy::{FromBytes, FromZeros, transmute};

use super::entries::{self, Address, CHUNK_REGIONS, STARTS};

/// In place of a packet's number.
const NO_PACKET: u32 = u32::MAX;
/// Credit code without a limit (IBA table 45).
const CREDITS_UNLIMITED: u32 = 31;

pub type AddressBytes = Address;
pub type GroupKeyBytes = [u8; size_of::<entries::GroupKey>()];
pub type RegionsKeyBytes = [u8; size_of::<entries::RegionsKey>()];
pub type MemberKeyBytes = [u8; size_of::<entries::MemberKey>()];
pub type MemberBytes = [u8; size_of::<entries::Member>()];
pub type GroupBytes = [u8; size_of::<entries::Group>()];
pub type RegionsBytes = [u8; size_of::<entries::Regions>()];
pub type SenderBytes = [u8; size_of::<entries::Sender>()];
pub type AnswersBytes = [u8; size_of::<entries::Answers>()];
pub type TrafficBytes = [u8; size_of::<entries::Traffic>()];

/// IPv4 as `::ffff:a.b.c.d`.
pub fn address(address: IpAddr) -> AddressBytes {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn read_address(octets: Address) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}

/// At most [`PORTS_MAX`]; zero-terminated.
fn ports(ports: &[Port]) -> [u32; PORTS_MAX] {
    let mut all = [0; PORTS_MAX];
    for (place, &port) in all.iter_mut().zip(ports) {
        *place = port;
    }
    all
}

fn read_ports(ports: &[u32; PORTS_MAX]) -> Vec<Port> {
    ports.iter().copied().take_while(|&port| port != 0).collect()
}

/// Key of `groups`; also of `senders` and `answers`, with the sender's queue pair as `number`.
pub fn group_key(sender: IpAddr, number: u32) -> GroupKeyBytes {
    transmute!(entries::GroupKey { sender: address(sender), id: number })
}

pub fn read_group_key(bytes: &GroupKeyBytes) -> GroupKey {
    let key: entries::GroupKey = transmute!(*bytes);
    GroupKey { sender: read_address(key.sender), id: key.id }
}

/// Key of a chunk of the regions of a branch, in this generation.
fn regions_key(generation: u64, branch: usize, chunk: u32) -> RegionsKeyBytes {
    transmute!(entries::RegionsKey { generation, branch: branch as u32, chunk })
}

pub fn regions_generation(key: &RegionsKeyBytes) -> u64 {
    let key: entries::RegionsKey = transmute!(*key);
    key.generation
}

pub fn member_key(sender: IpAddr, qpn: u32, member: IpAddr) -> MemberKeyBytes {
    transmute!(entries::MemberKey { sender: address(sender), qpn, member: address(member) })
}

/// The sender's address and queue pair, and the member's address.
pub fn read_member_key(bytes: &MemberKeyBytes) -> (IpAddr, u32, IpAddr) {
    let key: entries::MemberKey = transmute!(*bytes);
    (read_address(key.sender), key.qpn, read_address(key.member))
}

/// The index of a member's record, and the ingress ports of its answers.
pub fn member(index: u32, inputs: &[Port]) -> MemberBytes {
    transmute!(entries::Member { index, ports: ports(inputs) })
}

pub fn read_member(bytes: &MemberBytes) -> (u32, Vec<Port>) {
    let member: entries::Member = transmute!(*bytes);
    (member.index, read_ports(&member.ports))
}

/// What a target address and a queue pair contribute to a packet's CRC, up to and with the packet number: CRCs are
/// linear, so that this is the difference that they make to a packet of zeros.
fn crc(tables: &ShiftTables, target: IpAddr, qpn: u32) -> u32 {
    let mut zeros = [0; 40 + UDP_BYTES + BTH_BYTES];
    let (ip_bytes, version) = if target.is_ipv4() { (20, 0x45) } else { (40, 0x60) };
    zeros[0] = version;
    let zeros = &zeros[..ip_bytes + UDP_BYTES + BTH_BYTES];
    let mut headers = zeros.to_vec();
    match target {
        IpAddr::V4(target) => headers[16..20].copy_from_slice(&target.octets()),
        IpAddr::V6(target) => headers[24..40].copy_from_slice(&target.octets()),
    }
    let qpn_at = ip_bytes + UDP_BYTES + 5;
    headers[qpn_at..qpn_at + 3].copy_from_slice(&qpn.to_be_bytes()[1..]);
    tables.update(0, zeros, &headers, 0).unwrap_or_default()
}

/// `replication` is valid. `generation`: that of its regions.
pub fn group(
    key: GroupKey,
    replication: &Replication,
    generation: u64,
    tables: &ShiftTables,
) -> GroupBytes {
    let mut group = entries::Group::new_zeroed();
    group.sender_qpn = replication.sender_qpn;
    group.count = replication.branches.len() as u32;
    group.generation = generation;
    group.entered = NO_PACKET;
    group.inputs = ports(&replication.inputs);
    for (place, branch) in group.branches.iter_mut().zip(&replication.branches) {
        place.port = branch.port;
        place.mac = branch.mac.0;
        place.target = address(branch.target);
        place.qpn = key.id;
        if let Some(rewriting) = &branch.rewriting {
            place.qpn = rewriting.qpn;
            place.psn_offset = rewriting.psn_offset;
            place.rewrites = 1;
            place.chunks = rewriting.regions.len().div_ceil(CHUNK_REGIONS) as u8;
        }
        place.crc = crc(tables, branch.target, place.qpn);
    }
    transmute!(group)
}

/// The number of the packet that came last, if any came.
pub fn read_entered(bytes: &GroupBytes) -> Option<Serial> {
    let entered = read_group_entry(bytes).entered;
    (entered != NO_PACKET).then(|| Serial::new(entered))
}

pub fn read_group_entry(bytes: &GroupBytes) -> entries::Group {
    transmute!(*bytes)
}

/// Keys of the regions that a group's entry refers to.
pub fn regions_keys(bytes: &GroupBytes) -> impl Iterator<Item = RegionsKeyBytes> {
    let group = read_group_entry(bytes);
    let branches = group.branches.into_iter().take(group.count as usize);
    branches.enumerate().flat_map(move |(index, branch)| {
        let starts = (branch.chunks > 1).then_some(STARTS);
        let chunks = (0..branch.chunks.into()).chain(starts);
        chunks.map(move |chunk| regions_key(group.generation, index, chunk))
    })
}

/// `regions` reads the entry of a chunk of regions.
pub fn read_group(
    bytes: &GroupBytes,
    mut regions: impl FnMut(&RegionsKeyBytes) -> Option<RegionsBytes>,
) -> Replication {
    let group = read_group_entry(bytes);
    let branch = |(index, branch): (usize, &entries::Branch)| {
        let rewriting = (branch.rewrites == 1).then(|| Rewriting {
            qpn: branch.qpn,
            psn_offset: branch.psn_offset,
            regions: (0..branch.chunks.into())
                .filter_map(|chunk| regions(&regions_key(group.generation, index, chunk)))
                .flat_map(read_regions)
                .collect(),
        });
        let (port, mac) = (branch.port, Mac(branch.mac));
        Branch { port, mac, target: read_address(branch.target), rewriting }
    };
    let branches = group.branches.iter().take(group.count as usize).enumerate();
    Replication {
        sender_qpn: group.sender_qpn,
        inputs: read_ports(&group.inputs),
        branches: branches.map(branch).collect(),
    }
}

/// A branch's entries: chunks of its regions, ordered by their start, and of more than one the first addresses.
pub fn regions(
    generation: u64,
    branch: usize,
    all: &[Region],
) -> Vec<(RegionsKeyBytes, RegionsBytes)> {
    let mut all = all.to_vec();
    all.sort_unstable_by_key(|region| region.start);
    let chunks = all.chunks(CHUNK_REGIONS);
    let mut starts = entries::Starts { starts: [u64::MAX; _] };
    for (place, chunk) in starts.starts.iter_mut().zip(chunks.clone()) {
        *place = chunk[0].start;
    }
    let first_addresses =
        (chunks.len() > 1).then(|| (regions_key(generation, branch, STARTS), transmute!(starts)));
    let chunk = |(number, regions)| (regions_key(generation, branch, number), chunk(regions));
    (0..).zip(chunks).map(chunk).chain(first_addresses).collect()
}

fn chunk(regions: &[Region]) -> RegionsBytes {
    let mut chunk = entries::Regions::new_zeroed();
    let unused = entries::Region { start: u64::MAX, ..entries::Region::new_zeroed() };
    chunk.all = [unused; _];
    for (place, &Region { start, bytes, member_start, member_key }) in
        chunk.all.iter_mut().zip(regions)
    {
        *place = entries::Region { start, bytes, member_start, member_key, unused: 0 };
    }
    transmute!(chunk)
}

fn read_regions(bytes: RegionsBytes) -> impl Iterator<Item = Region> {
    let regions: entries::Regions = transmute!(bytes);
    // No region is empty.
    regions.all.into_iter().take_while(|region| region.bytes > 0).map(
        |entries::Region { start, bytes, member_start, member_key, .. }| Region {
            start,
            bytes,
            member_start,
            member_key,
        },
    )
}

/// With all members present.
pub fn sender(id: u32, merging: &Merging) -> SenderBytes {
    let count = merging.members.len();
    transmute!(entries::Sender {
        virtual_address: address(merging.virtual_address),
        present: u64::MAX >> (MEMBERS_MAX - count),
        count: count as u32,
        forward_all: merging.all_notifications.into(),
        id,
        is_answered: merging.virtual_mac.is_some().into(),
        is_traced: 0,
        unused: 0,
    })
}

pub fn read_sender(bytes: &SenderBytes) -> entries::Sender {
    transmute!(*bytes)
}

/// Removes a member. Whether it was there, and not the last.
pub fn remove_member(bytes: &mut SenderBytes, index: u32) -> bool {
    let mut sender = read_sender(bytes);
    let bit = 1_u64.checked_shl(index).unwrap_or(0);
    let is_there = sender.present & bit != 0 && sender.present != bit;
    if is_there {
        sender.present &= !bit;
        *bytes = transmute!(sender);
    }
    is_there
}

/// At the start: every member expects the first PSN.
pub fn answers(merging: &Merging) -> AnswersBytes {
    let first = merging.psn_first.get();
    let mut answers = entries::Answers::new_zeroed();
    (answers.forwarded, answers.nak_number, answers.wait_number) = (first, first, first);
    for (record, member) in answers.records.iter_mut().zip(&merging.members) {
        record.expected = first;
        record.credits = CREDITS_UNLIMITED;
        record.psn_offset = member.psn_offset;
    }
    transmute!(answers)
}

fn record(answers: &entries::Answers, index: u32) -> &entries::Record {
    &answers.records[(index as usize).min(MEMBERS_MAX - 1)]
}

/// The PSN that a member expects next, and its MSN.
pub fn read_record(bytes: &AnswersBytes, index: u32) -> (Serial, Serial) {
    let answers: entries::Answers = transmute!(*bytes);
    let record = record(&answers, index);
    (Serial::new(record.expected), Serial::new(record.msn))
}

/// What was counted of the answers of a group's members, in their order.
pub fn read_answered<'a>(
    bytes: &AnswersBytes,
    members: &'a [Source],
) -> impl Iterator<Item = (IpAddr, AnswerCounters)> + use<'a> {
    let answers: entries::Answers = transmute!(*bytes);
    members.iter().zip(answers.answered).map(|(member, answered)| {
        let entries::Answered { forwarded, suppressed, dropped, icrc_errors } = answered;
        (member.address, AnswerCounters { forwarded, suppressed, dropped, icrc_errors })
    })
}

/// Counters of a group's packets, of all processors together.
pub fn read_traffic<'a>(all: impl IntoIterator<Item = &'a TrafficBytes>) -> entries::Traffic {
    let mut sum = entries::Traffic::new_zeroed();
    for bytes in all {
        let own: entries::Traffic = transmute!(*bytes);
        sum.request_bytes += own.request_bytes;
        sum.trace_lost += own.trace_lost;
        for (sum, own) in sum.counts.iter_mut().zip(own.counts) {
            *sum += own;
        }
    }
    sum
}

/// A packet that was traced, and its group. `None`: it is not as `bpf/trace.h` has it.
pub fn read_event(bytes: &[u8]) -> Option<(GroupKey, TracedPacket)> {
    let (event, ports) = entries::Event::read_from_prefix(bytes).ok()?;
    let (ports, _) = <[u32]>::ref_from_prefix_with_elems(ports, event.count as usize).ok()?;
    let opcode = Opcode::from_byte(u8::try_from(event.opcode).ok()?)?;
    let syndrome = u8::try_from(event.syndrome).ok();
    let syndrome = syndrome.map(|byte| Aeth::from_bytes(&[byte, 0, 0, 0]).syndrome);
    let key = GroupKey { sender: read_address(event.group.sender), id: event.group.id };
    let copies = ports.iter().enumerate();
    Some((
        key,
        TracedPacket {
            at_ns: event.at_ns,
            port: event.port,
            opcode,
            psn: Serial::new(event.psn),
            answer: (!opcode.has_payload()).then(|| (read_address(event.source), syndrome)),
            decision: Counter::ALL.get(event.counter as usize)?.0,
            copies: copies.map(|(place, &port)| (port, event.failed >> place & 1 == 0)).collect(),
        },
    ))
}

/// Whether a group's entry says that its packets are traced.
pub fn is_traced(bytes: &GroupBytes) -> bool {
    read_group_entry(bytes).is_traced != 0
}

/// Begins or ends tracing, in a group's entry.
pub fn trace_group(bytes: &GroupBytes, is_on: bool) -> GroupBytes {
    transmute!(entries::Group { is_traced: is_on.into(), ..read_group_entry(bytes) })
}

/// Begins or ends tracing, in the entry of the group's sender.
pub fn trace_sender(bytes: &SenderBytes, is_on: bool) -> SenderBytes {
    transmute!(entries::Sender { is_traced: is_on.into(), ..read_sender(bytes) })
}

/// The last ACK of the slowest of the members that are present, as a frame, and the port at which it came: as
/// `mcrdma::Switch::remove_member` has it.
pub fn repeated_answer(
    sender: IpAddr,
    sender_qpn: u32,
    entry: &SenderBytes,
    answers: &AnswersBytes,
    members: &[Source],
) -> Option<(Port, Vec<u8>)> {
    let (entry, answers) = (read_sender(entry), transmute!(*answers));
    let entries::Answers { forwarded, records, .. } = answers;
    let forwarded = Serial::new(forwarded);
    let present = records.iter().zip(members).enumerate();
    let present = present.filter(|(index, _)| entry.present >> index & 1 == 1);
    let ahead = |record: &entries::Record| Serial::new(record.expected).ahead_of(forwarded);
    let (_, (slowest, &Source { address: member, .. })) =
        present.min_by_key(|(_, (record, _))| ahead(record))?;
    let way = slowest.way;
    if ahead(slowest) <= 0 || way.port == 0 {
        return None;
    }
    let mut ethernet = way.ethernet.to_vec();
    if way.tag & entries::HAS_TAG != 0 {
        ethernet.extend(TYPE_TAG.to_be_bytes());
        ethernet.extend((way.tag as u16).to_be_bytes());
    }
    let kind = if member.is_ipv4() { TYPE_IPV4 } else { TYPE_IPV6 };
    ethernet.extend(kind.to_be_bytes());
    let syndrome = Syndrome::Ack(slowest.credits as u8);
    let aeth = Aeth { syndrome, msn: Serial::new(slowest.msn) };
    let psn = Serial::new(slowest.expected).minus(1).plus(slowest.psn_offset);
    let frame = mcrdma::answer_frame(&ethernet, member, sender, sender_qpn, psn, aeth)?;
    Some((way.port, frame))
}

/// As it was inserted, but for the first PSN, which is no longer needed.
pub fn read_merging(
    sender: &entries::Sender,
    answers: &AnswersBytes,
    virtual_mac: Option<Mac>,
    mut members: Vec<(u32, IpAddr, Vec<Port>)>,
) -> Merging {
    let answers: entries::Answers = transmute!(*answers);
    members.sort_unstable();
    let source = |(index, address, ports): (u32, IpAddr, Vec<Port>)| Source {
        address,
        psn_offset: record(&answers, index).psn_offset,
        ports,
    };
    Merging {
        psn_first: Serial::new(answers.forwarded),
        virtual_address: read_address(sender.virtual_address),
        virtual_mac,
        members: members.into_iter().map(source).collect(),
        all_notifications: sender.forward_all != 0,
    }
}

/// As a value of `addresses`.
pub fn mac(mac: Mac) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac.0;
    [a, b, c, d, e, f, 0, 0]
}

pub fn read_mac([a, b, c, d, e, f, ..]: [u8; 8]) -> Mac {
    Mac([a, b, c, d, e, f])
}
