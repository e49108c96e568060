//! Entries of the program's maps as bytes: what `bpf/tables.h` declares, by hand, so that nothing has
//! to be believed about the layout of Rust's structs. Numbers are in this machine's order.

use std::net::{IpAddr, Ipv6Addr};

use mcrdma::{
    Branch, GroupKey, MEMBERS_MAX, Merging, PORTS_MAX, Port, REGIONS_MAX, Region, Replication,
    Rewriting, Source,
};
use roce::{Mac, Serial};

pub const ADDRESS_BYTES: usize = 16;
pub const GROUP_KEY_BYTES: usize = 20;
pub const REGIONS_KEY_BYTES: usize = 16;
pub const MEMBER_KEY_BYTES: usize = 36;
const BRANCH_BYTES: usize = 36;
const INPUTS_AT: usize = 16;
const GROUP_HEAD_BYTES: usize = INPUTS_AT + PORTS_MAX * 4;
pub const GROUP_BYTES: usize = GROUP_HEAD_BYTES + MEMBERS_MAX * BRANCH_BYTES;
pub const MEMBER_BYTES: usize = 4 + PORTS_MAX * 4;
const REGION_BYTES: usize = 32;
pub const REGIONS_BYTES: usize = REGIONS_MAX * REGION_BYTES;
pub const SENDER_BYTES: usize = 40;
const RECORD_BYTES: usize = 32;
const ANSWERS_HEAD_BYTES: usize = 48;
pub const ANSWERS_BYTES: usize = ANSWERS_HEAD_BYTES + MEMBERS_MAX * RECORD_BYTES;
/// All messages that there may be (IBA table 45).
const CREDITS_UNLIMITED: u32 = 31;

pub type AddressBytes = [u8; ADDRESS_BYTES];
pub type GroupKeyBytes = [u8; GROUP_KEY_BYTES];
pub type RegionsKeyBytes = [u8; REGIONS_KEY_BYTES];
pub type MemberKeyBytes = [u8; MEMBER_KEY_BYTES];
pub type MemberBytes = [u8; MEMBER_BYTES];
pub type GroupBytes = [u8; GROUP_BYTES];
pub type RegionsBytes = [u8; REGIONS_BYTES];
pub type SenderBytes = [u8; SENDER_BYTES];
pub type AnswersBytes = [u8; ANSWERS_BYTES];

/// IPv4 as `::ffff:a.b.c.d`.
pub fn address(address: IpAddr) -> AddressBytes {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn read_address(bytes: &[u8], at: usize) -> IpAddr {
    let mut octets = [0; ADDRESS_BYTES];
    octets.copy_from_slice(&bytes[at..at + ADDRESS_BYTES]);
    Ipv6Addr::from(octets).to_canonical()
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}

fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    put(bytes, at, &number.to_ne_bytes());
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(number)
}

/// At most [`PORTS_MAX`].
fn put_ports(bytes: &mut [u8], at: usize, ports: &[Port]) {
    for (place, &port) in (at..).step_by(4).zip(ports) {
        put_u32(bytes, place, port);
    }
}

fn read_ports(bytes: &[u8], at: usize) -> Vec<Port> {
    let ports = (0..PORTS_MAX).map(|index| read_u32(bytes, at + index * 4));
    ports.take_while(|&port| port != 0).collect()
}

/// Of `groups`; also of `senders` and `answers`, with a queue pair in the identifier's place.
pub fn group_key(sender: IpAddr, number: u32) -> GroupKeyBytes {
    let mut bytes = [0; GROUP_KEY_BYTES];
    put(&mut bytes, 0, &address(sender));
    put_u32(&mut bytes, 16, number);
    bytes
}

pub fn read_group_key(bytes: &GroupKeyBytes) -> GroupKey {
    GroupKey { sender: read_address(bytes, 0), id: read_u32(bytes, 16) }
}

/// Of `senders` and `answers`: the sender's address and its queue pair.
pub fn read_sender_key(bytes: &GroupKeyBytes) -> (IpAddr, u32) {
    let key = read_group_key(bytes);
    (key.sender, key.id)
}

/// Of a branch of the group whose entry names this generation.
pub fn regions_key(generation: u64, branch: usize) -> RegionsKeyBytes {
    let mut bytes = [0; REGIONS_KEY_BYTES];
    put(&mut bytes, 0, &generation.to_ne_bytes());
    put_u32(&mut bytes, 8, branch as u32);
    bytes
}

pub fn regions_generation(key: &RegionsKeyBytes) -> u64 {
    read_u64(key, 0)
}

pub fn member_key(sender: IpAddr, qpn: u32, member: IpAddr) -> MemberKeyBytes {
    let mut bytes = [0; MEMBER_KEY_BYTES];
    put(&mut bytes, 0, &group_key(sender, qpn));
    put(&mut bytes, 20, &address(member));
    bytes
}

/// The place of a member's record, and where its answers come in.
pub fn member(index: u32, ports: &[Port]) -> MemberBytes {
    let mut bytes = [0; MEMBER_BYTES];
    put_u32(&mut bytes, 0, index);
    put_ports(&mut bytes, 4, ports);
    bytes
}

pub fn read_member(bytes: &MemberBytes) -> (u32, Vec<Port>) {
    (read_u32(bytes, 0), read_ports(bytes, 4))
}

/// `replication` has been checked. `generation`: which regions are its branches'.
pub fn group(replication: &Replication, generation: u64) -> GroupBytes {
    let mut bytes = [0; GROUP_BYTES];
    put_u32(&mut bytes, 0, replication.sender_qpn);
    put_u32(&mut bytes, 4, replication.branches.len() as u32);
    put(&mut bytes, 8, &generation.to_ne_bytes());
    put_ports(&mut bytes, INPUTS_AT, &replication.inputs);
    let places = bytes[GROUP_HEAD_BYTES..].chunks_exact_mut(BRANCH_BYTES);
    for (place, branch) in places.zip(&replication.branches) {
        put_u32(place, 0, branch.port);
        put(place, 12, &branch.mac.0);
        put(place, 20, &address(branch.target));
        if let Some(rewriting) = &branch.rewriting {
            put_u32(place, 4, rewriting.qpn);
            put_u32(place, 8, rewriting.psn_offset);
            place[18] = 1;
            place[19] = rewriting.regions.len() as u8;
        }
    }
    bytes
}

pub fn group_sender_qpn(bytes: &GroupBytes) -> u32 {
    read_u32(bytes, 0)
}

pub fn group_generation(bytes: &GroupBytes) -> u64 {
    read_u64(bytes, 8)
}

/// The regions that a group's entry refers to.
pub fn regions_keys(group: &GroupBytes) -> impl Iterator<Item = RegionsKeyBytes> {
    let (generation, count) = (group_generation(group), read_u32(group, 4) as usize);
    let places = group[GROUP_HEAD_BYTES..].chunks_exact(BRANCH_BYTES).take(count);
    let with_regions = places.enumerate().filter(|(_, place)| place[19] > 0);
    with_regions.map(move |(branch, _)| regions_key(generation, branch))
}

/// `regions` reads those of a branch that has some.
pub fn read_group(
    bytes: &GroupBytes,
    mut regions: impl FnMut(&RegionsKeyBytes) -> Option<RegionsBytes>,
) -> Replication {
    let generation = group_generation(bytes);
    let count = (read_u32(bytes, 4) as usize).min(MEMBERS_MAX);
    let branch = |(index, place): (usize, &[u8])| {
        let mut mac = Mac::default();
        mac.0.copy_from_slice(&place[12..18]);
        let rewriting = (place[18] == 1).then(|| Rewriting {
            qpn: read_u32(place, 4),
            psn_offset: read_u32(place, 8),
            regions: match place[19] {
                0 => Vec::new(),
                count => regions(&regions_key(generation, index))
                    .map_or(Vec::new(), |all| read_regions(&all, count)),
            },
        });
        Branch { port: read_u32(place, 0), mac, target: read_address(place, 20), rewriting }
    };
    let places = bytes[GROUP_HEAD_BYTES..].chunks_exact(BRANCH_BYTES).take(count).enumerate();
    Replication {
        sender_qpn: read_u32(bytes, 0),
        inputs: read_ports(bytes, INPUTS_AT),
        branches: places.map(branch).collect(),
    }
}

/// At most [`REGIONS_MAX`].
pub fn regions(all: &[Region]) -> RegionsBytes {
    let mut bytes = [0; REGIONS_BYTES];
    for (place, region) in bytes.chunks_exact_mut(REGION_BYTES).zip(all) {
        put(place, 0, &region.start.to_ne_bytes());
        put(place, 8, &region.bytes.to_ne_bytes());
        put(place, 16, &region.member_start.to_ne_bytes());
        put_u32(place, 24, region.member_key);
    }
    bytes
}

fn read_regions(bytes: &RegionsBytes, count: u8) -> Vec<Region> {
    let region = |place: &[u8]| Region {
        start: read_u64(place, 0),
        bytes: read_u64(place, 8),
        member_start: read_u64(place, 16),
        member_key: read_u32(place, 24),
    };
    bytes.chunks_exact(REGION_BYTES).take(count.into()).map(region).collect()
}

/// All members present.
pub fn sender(id: u32, merging: &Merging) -> SenderBytes {
    let count = merging.members.len();
    let mut bytes = [0; SENDER_BYTES];
    put(&mut bytes, 0, &address(merging.virtual_address));
    put(&mut bytes, 16, &(u64::MAX >> (MEMBERS_MAX - count)).to_ne_bytes());
    put_u32(&mut bytes, 24, count as u32);
    put_u32(&mut bytes, 28, merging.all_notifications.into());
    put_u32(&mut bytes, 32, id);
    put_u32(&mut bytes, 36, merging.virtual_mac.is_some().into());
    bytes
}

/// Takes a member out. Whether it was there, and not the last.
pub fn remove_member(bytes: &mut SenderBytes, index: u32) -> bool {
    let present = read_u64(bytes, 16);
    let bit = 1_u64.checked_shl(index).unwrap_or(0);
    let is_there = present & bit != 0 && present != bit;
    if is_there {
        put(bytes, 16, &(present & !bit).to_ne_bytes());
    }
    is_there
}

/// The identifier of the group whose sender it is.
pub fn sender_group(bytes: &SenderBytes) -> u32 {
    read_u32(bytes, 32)
}

/// Whether who asks for its virtual address is answered.
pub fn is_answered(bytes: &SenderBytes) -> bool {
    read_u32(bytes, 36) != 0
}

pub fn virtual_address(bytes: &SenderBytes) -> IpAddr {
    read_address(bytes, 0)
}

/// Nobody has received anything.
pub fn answers(merging: &Merging) -> AnswersBytes {
    let mut bytes = [0; ANSWERS_BYTES];
    let first = merging.psn_first.get();
    for at in [4, 8, 12] {
        put_u32(&mut bytes, at, first);
    }
    let places = bytes[ANSWERS_HEAD_BYTES..].chunks_exact_mut(RECORD_BYTES);
    for (place, member) in places.zip(&merging.members) {
        put_u32(place, 0, first);
        put_u32(place, 8, CREDITS_UNLIMITED);
        put_u32(place, 16, member.psn_offset);
    }
    bytes
}

/// The packet that a member expects next, and its completed messages.
pub fn read_record(bytes: &AnswersBytes, index: u32) -> (Serial, Serial) {
    let at = ANSWERS_HEAD_BYTES + (index as usize).min(MEMBERS_MAX - 1) * RECORD_BYTES;
    (Serial::new(read_u32(bytes, at)), Serial::new(read_u32(bytes, at + 4)))
}

/// As it was told, but for the first packet's number, which nobody needs any more.
pub fn read_merging(
    sender: &SenderBytes,
    answers: &AnswersBytes,
    virtual_mac: Option<Mac>,
    mut members: Vec<(u32, IpAddr, Vec<Port>)>,
) -> Merging {
    members.sort_unstable();
    let source = |(index, address, ports): (u32, IpAddr, Vec<Port>)| {
        let at = ANSWERS_HEAD_BYTES + (index as usize).min(MEMBERS_MAX - 1) * RECORD_BYTES;
        Source { address, psn_offset: read_u32(answers, at + 16), ports }
    };
    Merging {
        psn_first: Serial::new(read_u32(answers, 4)),
        virtual_address: virtual_address(sender),
        virtual_mac,
        members: members.into_iter().map(source).collect(),
        all_notifications: read_u32(sender, 28) != 0,
    }
}

/// The sender's address, its queue pair, and the member.
pub fn read_member_key(bytes: &MemberKeyBytes) -> (IpAddr, u32, IpAddr) {
    (read_address(bytes, 0), read_u32(bytes, 16), read_address(bytes, 20))
}

/// In the value of `addresses`, of eight bytes.
pub fn mac(mac: Mac) -> [u8; 8] {
    let mut bytes = [0; 8];
    put(&mut bytes, 0, &mac.0);
    bytes
}

pub fn read_mac(bytes: [u8; 8]) -> Mac {
    let mut mac = Mac::default();
    mac.0.copy_from_slice(&bytes[..6]);
    mac
}
