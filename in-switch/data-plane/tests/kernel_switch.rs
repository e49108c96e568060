//! The program in the kernel and the pure logic treat every frame alike.
//!
//! Each test has a network namespace of its own: ports `s0` on, whose other ends `h0` on are read and
//! written with packet sockets. Needs root, and a build with clang.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use data_plane::{DataPlane, KernelPlane};
use mcrdma::{
    Branch, Counter, GroupCounters, GroupKey, MEMBERS_MAX, Merging, REGIONS_MAX, Region,
    Replication, Rewriting, Source, Switch, Verdict,
};
use packet_socket::{Batch, Interface, Offload};
use roce::{
    Aeth, Bth, ETHERNET_BYTES, Headers, IpHeader, Mac, NakCode, Opcode, Packet, Reth, Serial,
    Syndrome,
};

use crate::links;

pub const PORTS: usize = 5;
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A switch in the kernel with both ends of its ports, and the same switch as pure logic.
pub struct Twins {
    pub kernel: Option<KernelPlane>,
    hosts: Vec<Interface>,
    /// Interface numbers of the switch's ends.
    pub ports: Vec<u32>,
    pub pure: Switch,
    now_ns: u64,
}

impl Drop for Twins {
    fn drop(&mut self) {
        self.kernel.take().map(KernelPlane::unpin);
    }
}

fn own_network() {
    lab::enter_own_network().unwrap();
}

fn ip(words: &str) {
    lab::ip(words).unwrap();
}

fn quiet(link: &str) {
    lab::quiet(link, 9000).unwrap();
}

pub fn skipped() -> bool {
    let possible = KernelPlane::check();
    if let Err(error) = &possible {
        println!("SKIPPED: needs root (network namespaces, eBPF): {error}");
    }
    possible.is_err()
}

/// The directory of a test's maps.
pub fn directory(name: &str) -> PathBuf {
    let root = PathBuf::from("/sys/fs/bpf");
    root.join(format!("rdmc-test-{name}-{}", std::process::id()))
}

impl Twins {
    pub fn new(name: &str) -> Self {
        own_network();
        let mut kernel = KernelPlane::open_with_test_clock(&directory(name)).unwrap();
        ip("link add name bridge0 type bridge mcast_snooping 0");
        quiet("bridge0");
        // Bridges that filter drop packets with invalid IP headers.
        for family in ["ip", "ip6", "arp"] {
            let path = format!("/proc/sys/net/bridge/bridge-nf-call-{family}tables");
            let _ = std::fs::write(path, "0");
        }
        let (mut hosts, mut ports) = (Vec::new(), Vec::new());
        for port in 0..PORTS {
            links::veth(&format!("s{port}"), &format!("h{port}"), 9000);
            // A frame that passes is flooded to all other ports.
            ip(&format!("link set s{port} master bridge0"));
            ip(&format!("link set s{port} type bridge_slave learning off"));
            kernel.attach(&format!("s{port}")).unwrap();
            let host = Interface::open(&format!("h{port}"), true).unwrap();
            ports.push(rustix::net::netdevice::name_to_index(&host, &format!("s{port}")).unwrap());
            hosts.push(host);
        }
        let (kernel, pure) = (Some(kernel), Switch::new());
        Self { kernel, hosts, ports, pure, now_ns: 0 }
    }

    pub fn insert(&mut self, key: GroupKey, replication: Replication, merging: Option<Merging>) {
        self.kernel.as_mut().unwrap().insert(key, &replication, merging.as_ref()).unwrap();
        self.pure.tables.insert(key, replication, merging).unwrap();
    }

    /// Answers what comes out by itself: the group's ACK, if it advances.
    pub fn remove_member(&mut self, key: GroupKey, qpn: u32, member: IpAddr) -> usize {
        let members = self.pure.tables.merging(key).unwrap().members.clone();
        let (was_member, told) = self.pure.remove_member(key, member);
        let told = told.map(|(port, frame)| {
            let port = self.ports.iter().position(|&known| known == port).unwrap();
            self.expected(port, &frame)
        });
        let kernel = self.kernel.as_mut().unwrap();
        kernel.set_test_time(self.now_ns).unwrap();
        assert_eq!(kernel.remove_member(key, qpn, member, &members).unwrap(), was_member);
        let expected = told.unwrap_or_default();
        let count = expected.values().map(Vec::len).sum();
        assert_eq!(self.received(count), expected);
        count
    }

    /// Sends a frame into a port; what comes out of each port of the kernel's switch, in order, is
    /// what comes out of the pure one.
    pub fn compare(&mut self, port: usize, frame: &[u8]) -> BTreeMap<usize, Vec<Vec<u8>>> {
        self.compare_often(port, frame, 1)
    }

    /// The same for one frame, sent this often, one right after the other.
    pub fn compare_often(
        &mut self,
        port: usize,
        frame: &[u8],
        count: usize,
    ) -> BTreeMap<usize, Vec<Vec<u8>>> {
        if let Some(kernel) = &mut self.kernel {
            kernel.set_test_time(self.now_ns).unwrap();
        }
        let mut expected: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
        for _ in 0..count {
            for (to, frames) in self.expected(port, frame) {
                expected.entry(to).or_default().extend(frames);
            }
            self.hosts[port].send(Offload::NONE, frame).unwrap();
        }
        let found = self.received(expected.values().map(Vec::len).sum());
        assert_eq!(found, expected, "of {frame:02x?}");
        found
    }

    /// What comes out of each port of the pure switch.
    fn expected(&mut self, port: usize, frame: &[u8]) -> BTreeMap<usize, Vec<Vec<u8>>> {
        let mut expected: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
        let mut own = frame.to_vec();
        let ports = &self.ports;
        let verdict = self.pure.handle(self.now_ns, self.ports[port], &mut own, |to, copy| {
            let to = ports.iter().position(|&known| known == to).unwrap();
            expected.entry(to).or_default().push(copy.concat());
            true
        });
        match verdict {
            Verdict::Reflect => expected.entry(port).or_default().push(own),
            Verdict::Pass => {
                for other in (0..PORTS).filter(|&other| other != port) {
                    expected.entry(other).or_default().push(own.clone());
                }
            }
            Verdict::Drop => {}
        }
        expected
    }

    /// What comes out of the ports, until there are this many frames and nothing more.
    fn received(&self, count: usize) -> BTreeMap<usize, Vec<Vec<u8>>> {
        let mut found: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
        let mut batch = Batch::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            for (port, host) in self.hosts.iter().enumerate() {
                host.receive(&mut batch, Duration::ZERO).unwrap();
                for (_, frame) in batch.frames() {
                    found.entry(port).or_default().push(frame.to_vec());
                }
            }
            let is_enough = found.values().map(Vec::len).sum::<usize>() >= count;
            if is_enough || Instant::now() > deadline {
                return found;
            }
        }
    }

    /// Also what came last of each group.
    pub fn compare_counters(&self) {
        let plane = self.kernel.as_ref().unwrap();
        for (key, _) in self.pure.tables.groups() {
            assert_eq!(plane.entered(key), self.pure.tables.entered(key), "{key}");
        }
        let kernel = plane.counters().unwrap();
        let named = |counters: mcrdma::Counters| counters.iter().collect::<Vec<_>>();
        assert_eq!(named(kernel), named(self.pure.tables.counters));
        self.pure.tables.groups().for_each(|(key, _)| drop(self.group_counters(key)));
    }

    /// What was counted of a group: by both the same.
    pub fn group_counters(&self, key: GroupKey) -> GroupCounters {
        let (tables, kernel) = (&self.pure.tables, self.kernel.as_ref().unwrap());
        let qpn = tables.replication(key).unwrap().sender_qpn;
        let found = kernel.group_counters(key, qpn, tables.merging(key)).unwrap();
        assert_eq!(found, tables.group_counters(key).unwrap());
        found
    }
}

pub fn address(is_v6: bool, host: u8) -> IpAddr {
    match is_v6 {
        false => IpAddr::from([10, 0, 0, host]),
        true => IpAddr::from([0xfd00, 0, 0, 7, 0, 0, 0, u16::from(host)]),
    }
}

const fn mac(host: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, host])
}

pub const SENDER_QPN: u32 = 0x11;
pub const VIRTUAL: u8 = 200;

pub fn key(is_v6: bool) -> GroupKey {
    GroupKey { sender: address(is_v6, 1), id: 0x80_0001 }
}

/// A group of members 2 on, at ports 1 on; the last branch is for several and not rewritten.
pub fn group(ports: &[u32], is_v6: bool) -> (Replication, Merging) {
    let members = 2_u8..2 + ports.len() as u8 - 1;
    let branch = |(member, &port): (u8, &u32)| Branch {
        port,
        mac: mac(member),
        target: address(is_v6, member),
        rewriting: (usize::from(member) < ports.len()).then(|| Rewriting {
            qpn: 0x30 + u32::from(member),
            psn_offset: 0x1000 * u32::from(member),
            regions: vec![
                Region {
                    start: 0x1000,
                    bytes: 4096,
                    member_start: 0x7f00_0000_0000,
                    member_key: 9,
                },
                Region {
                    start: 0x8000,
                    bytes: 100,
                    member_start: u64::from(member) << 40,
                    member_key: 8,
                },
            ],
        }),
    };
    // Each at its own port; the second also at the sender's.
    let answers_at = |member: u8| match member {
        3 => vec![ports[2], ports[0]],
        member => vec![ports[usize::from(member) - 1]],
    };
    let source = |member: u8| Source {
        address: address(is_v6, member),
        psn_offset: 0x1000 * u32::from(member),
        ports: answers_at(member),
    };
    let merging = Merging {
        psn_first: Serial::new(0xff_fff0),
        virtual_address: address(is_v6, VIRTUAL),
        virtual_mac: Some(mac(VIRTUAL)),
        members: members.clone().map(source).collect(),
        all_notifications: false,
    };
    let branches = members.zip(&ports[1..]).map(branch).collect();
    (Replication { sender_qpn: SENDER_QPN, inputs: vec![ports[0], ports[4]], branches }, merging)
}

pub fn frame(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_BYTES + headers.packet_bytes(payload.len())];
    frame[..6].copy_from_slice(&mac(VIRTUAL).0);
    frame[6..12].copy_from_slice(&mac(1).0);
    let kind: [u8; 2] = if headers.ip.source.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
    frame[12..14].copy_from_slice(&kind);
    headers.write(payload, &mut frame[ETHERNET_BYTES..]).unwrap();
    frame
}

pub fn request(is_v6: bool, opcode: Opcode, psn: u32, reth: Option<Reth>) -> Headers {
    let mut ip = IpHeader::new(address(is_v6, 1), address(is_v6, VIRTUAL)).unwrap();
    (ip.label, ip.traffic_class, ip.hop_limit) = (0x1234, 0x6a, 63);
    let mut headers = Headers::new(ip, Bth::new(opcode, key(is_v6).id, Serial::new(psn)));
    headers.bth.ack_requested = true;
    headers.reth = reth;
    headers.immediate = opcode.has_immediate().then_some(0xdead_beef);
    headers
}

pub fn answer(is_v6: bool, member: u8, psn: u32, aeth: Option<Aeth>) -> Headers {
    let ip = IpHeader::new(address(is_v6, member), address(is_v6, 1)).unwrap();
    let opcode = if aeth.is_some() { Opcode::Acknowledge } else { Opcode::Cnp };
    let psn = Serial::new(psn).plus(0x1000 * u32::from(member));
    let mut headers = Headers::new(ip, Bth::new(opcode, SENDER_QPN, psn));
    headers.aeth = aeth;
    headers
}

#[test]
fn copies_are_the_same() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("copies");
    for is_v6 in [false, true] {
        let (replication, merging) = group(&twins.ports, is_v6);
        twins.insert(key(is_v6), replication, Some(merging));
        for (number, opcode) in (0_u32..).zip(Opcode::ALL) {
            if !opcode.is_request() {
                continue;
            }
            for bytes in [0, 1, 255, 1024, 4096] {
                let known = Reth { address: 0x1000, key: 77, bytes: bytes.max(1) };
                let reth = opcode.has_reth().then_some(known);
                let payload: Vec<u8> = (0..bytes).map(|at| (at * 7) as u8).collect();
                let psn = 0xff_fff0_u32.wrapping_add(number);
                let out = twins.compare(0, &frame(&request(is_v6, opcode, psn, reth), &payload));
                assert_eq!(out.len(), PORTS - 1, "{opcode:?}");
                let all = out.values().flatten();
                assert!(all.into_iter().all(|f| Packet::parse(&f[14..]).unwrap().is_intact()));
            }
        }
    }
    twins.compare_counters();
}

/// Loops end, and only ingress ports are accepted.
#[test]
fn ports_and_hop_limits_are_checked_in_the_same_way() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("ports");
    for is_v6 in [false, true] {
        let (replication, merging) = group(&twins.ports, is_v6);
        twins.insert(key(is_v6), replication, Some(merging.clone()));
        for port in 0..PORTS {
            for hop_limit in [0, 1, 2, 255] {
                let mut headers = request(is_v6, Opcode::SendOnly, 1, None);
                headers.ip.hop_limit = hop_limit;
                let out = twins.compare(port, &frame(&headers, b"x"));
                let is_copied = [0, 4].contains(&port) && hop_limit > 1;
                assert_eq!(out.len(), if is_copied { PORTS - 1 } else { 0 }, "{port} {hop_limit}");
                for copy in out.values().flatten() {
                    let packet = Packet::parse(&copy[14..]).unwrap();
                    assert!(packet.is_intact() && packet.headers.ip.hop_limit == hop_limit - 1);
                }
            }
            for member in [2, 3, 4, 5, 6] {
                let ack = Aeth { syndrome: Syndrome::Ack(1), msn: Serial::new(1) };
                for aeth in [Some(ack), None] {
                    twins.compare(port, &frame(&answer(is_v6, member, 0xff_fff0, aeth), &[]));
                }
            }
        }
        // Routes change.
        let moved = Source { ports: vec![twins.ports[4]], ..merging.members[0].clone() };
        assert!(twins.pure.tables.relocate(key(is_v6), &[moved]).unwrap());
        let now = twins.pure.tables.merging(key(is_v6)).unwrap().members.clone();
        let kernel = twins.kernel.as_mut().unwrap();
        kernel.relocate(key(is_v6), SENDER_QPN, &now).unwrap();
        for port in [1, 4] {
            let ack = Aeth { syndrome: Syndrome::Ack(1), msn: Serial::new(2) };
            twins.compare(port, &frame(&answer(is_v6, 2, 0xff_fff1, Some(ack)), &[]));
        }
    }
    let counted = |counter| twins.pure.tables.counters.counted(counter);
    assert!(counted(Counter::RequestMisplaced) > 0 && counted(Counter::RequestExpired) > 0);
    assert!(counted(Counter::AnswerDropped) > 0 && counted(Counter::AckForwarded) > 0);
    twins.compare_counters();
}

#[test]
fn unknown_memory_is_refused_in_the_same_way() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("refused");
    for (is_v6, merges) in [(false, true), (true, true), (false, false)] {
        let (mut replication, merging) = group(&twins.ports, is_v6);
        let mut key = key(is_v6);
        if !merges {
            (key.id, replication.sender_qpn) = (0x80_0002, 0x12);
        }
        twins.insert(key, replication, merges.then_some(merging));
        for (opcode, bytes) in [
            (Opcode::WriteOnly, 20),
            (Opcode::WriteFirst, 4096),
            (Opcode::WriteOnlyImmediate, 1023),
            (Opcode::WriteOnlyImmediate, 1),
        ] {
            for (start, is_known) in
                [(0x1000 + 4096 - bytes + 1, false), (0xfff, false), (0x2000, false)]
            {
                let reth = Reth { address: u64::from(start), key: 1, bytes };
                let mut headers = request(is_v6, opcode, 5, Some(reth));
                headers.bth.target_qpn = key.id;
                let mut sent = frame(&headers, &vec![5; bytes as usize]);
                let out = twins.compare(0, &sent);
                assert_eq!(out.keys().copied().collect::<Vec<_>>(), [0], "{is_known}");
                let nak = Packet::parse(&out[&0][0][14..]).unwrap();
                assert!(nak.is_intact());
                let refused = Syndrome::Nak(NakCode::RemoteAccess);
                assert_eq!(nak.headers.aeth.unwrap().syndrome, refused);
                // Answers with a wrong ICRC are dropped.
                let last = sent.len() - 5;
                sent[last] ^= 1;
                assert!(twins.compare(0, &sent).is_empty());
            }
        }
    }
    twins.compare_counters();
}

#[test]
fn requests_that_only_one_receiver_can_carry_out_are_refused_in_the_same_way() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("unicast");
    for is_v6 in [false, true] {
        let (replication, merging) = group(&twins.ports, is_v6);
        twins.insert(key(is_v6), replication, Some(merging));
        for opcode in Opcode::ALL.into_iter().filter(|opcode| opcode.is_unicast()) {
            for bytes in [0, 16, 28, 1024] {
                let mut sent = frame(&request(is_v6, opcode, 5, None), &vec![7; bytes]);
                let out = twins.compare(0, &sent);
                assert_eq!(out.keys().copied().collect::<Vec<_>>(), [0], "{opcode:?}");
                let nak = Packet::parse(&out[&0][0][14..]).unwrap();
                assert!(nak.is_intact());
                let refused = Syndrome::Nak(NakCode::InvalidRequest);
                assert_eq!(nak.headers.aeth.unwrap().syndrome, refused);
                let last = sent.len() - 5;
                sent[last] ^= 1;
                assert!(twins.compare(0, &sent).is_empty());
            }
        }
    }
    twins.compare_counters();
}

/// The tag's priority (PCP) is what priority flow control goes by.
#[test]
fn vlan_tags_are_kept_in_the_same_way() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("tags");
    for is_v6 in [false, true] {
        let (replication, merging) = group(&twins.ports, is_v6);
        twins.insert(key(is_v6), replication, Some(merging));
        let unknown = Reth { address: 0x2000, key: 1, bytes: 4 };
        for tag in [[0x81, 0, 0x60, 5], [0x81, 0, 0x60, 0], [0x81, 0, 0, 1]] {
            let mut tagged = |port, headers: &Headers, payload: &[u8]| {
                let mut frame = frame(headers, payload);
                frame.splice(12..12, tag);
                let out = twins.compare(port, &frame);
                for frame in out.values().flatten() {
                    assert_eq!(frame[12..16], tag);
                    assert!(Packet::parse(&frame[18..]).unwrap().is_intact());
                }
                out.values().map(Vec::len).sum::<usize>()
            };
            let copies = tagged(0, &request(is_v6, Opcode::SendOnly, 1, None), &[3; 1000]);
            assert_eq!(copies, PORTS - 1);
            assert_eq!(tagged(0, &request(is_v6, Opcode::WriteOnly, 1, Some(unknown)), b"four"), 1);
            for member in 2..6 {
                let ack = Aeth { syndrome: Syndrome::Ack(1), msn: Serial::new(1) };
                let answer = answer(is_v6, member, 0xff_fff0, Some(ack));
                tagged(usize::from(member) - 1, &answer, &[]);
            }
        }
    }
    assert!(twins.pure.tables.counters.counted(Counter::AckForwarded) > 0);
    twins.compare_counters();
}

/// One chunk of regions in the kernel's table, more, and as many as may be.
#[test]
fn many_regions_are_found_in_the_same_way() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("regions");
    for (id, count) in (0x80_0001..).zip([1, 15, 16, 17, 33, REGIONS_MAX as u64]) {
        let key = GroupKey { id, ..key(false) };
        let (mut replication, _) = group(&twins.ports, false);
        let starts = (0..count).map(|number| number * 0x100 + (number % 7) * 8);
        for rewriting in replication.branches.iter_mut().filter_map(|b| b.rewriting.as_mut()) {
            // The order in which they are given is not that of their addresses.
            let region = |start| Region {
                start,
                bytes: 0x80,
                member_start: (u64::from(rewriting.qpn) << 32) + start * 3,
                member_key: rewriting.qpn + start as u32,
            };
            rewriting.regions = starts.clone().rev().map(region).collect();
        }
        twins.insert(key, replication.clone(), None);
        let places = [0, 1, 14, 15, 16, 17, 31, 32, 500, count.saturating_sub(2), count - 1];
        for number in places.into_iter().filter(|&number| number < count) {
            let start = starts.clone().nth(number as usize).unwrap();
            for (address, is_known) in [(start, true), (start + 0x7c, true), (start + 0x7d, false)]
            {
                let reth = Reth { address, key: 1, bytes: 4 };
                let mut headers = request(false, Opcode::WriteOnly, 5, Some(reth));
                headers.bth.target_qpn = id;
                let out = twins.compare(0, &frame(&headers, b"four"));
                assert_eq!(out.len(), if is_known { PORTS - 1 } else { 1 }, "{number} of {count}");
            }
        }
        for address in [u64::MAX, u64::MAX - 3, 1 << 63, 0x100 * count] {
            let reth = Reth { address, key: 1, bytes: 4 };
            let mut headers = request(false, Opcode::WriteOnly, 5, Some(reth));
            headers.bth.target_qpn = id;
            assert_eq!(twins.compare(0, &frame(&headers, b"four")).len(), 1);
        }
        // The next agent finds them.
        let kernel = twins.kernel.as_ref().unwrap();
        let found = kernel.groups().unwrap().into_iter().find(|(found, ..)| *found == key).unwrap();
        assert_eq!(Some(&found.1), twins.pure.tables.replication(key));
    }
    twins.compare_counters();
}

#[test]
fn answers_are_merged_in_the_same_way() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("answers");
    let mut random = 12_345_u64;
    let mut below = move |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % most
    };
    for is_v6 in [false, true] {
        let (replication, merging) = group(&twins.ports, is_v6);
        twins.insert(key(is_v6), replication, Some(merging));
        let mut place = 0xff_fff0_u32;
        for turn in 0..700 {
            if turn == 500 {
                twins.remove_member(key(is_v6), SENDER_QPN, address(is_v6, 3));
            }
            place = place.wrapping_add(below(2) as u32);
            // In the end, members acknowledge what was never sent.
            let beyond = if turn < 600 { 0 } else { below(8) as u32 * ((1 << 21) - 1) };
            let psn = place.wrapping_add(below(6) as u32 + beyond);
            let syndrome = match below(12) {
                0..6 => Syndrome::Ack(below(32) as u8),
                6..8 => Syndrome::Nak(NakCode::Sequence),
                8 => Syndrome::ReceiverNotReady(below(32) as u8),
                9 => Syndrome::Nak(NakCode::RemoteOperational),
                _ => Syndrome::Reserved(0x45),
            };
            // Also from an address that is no member's, and from the virtual peer's.
            let member = [2, 3, 4, 5, 6, 2, 3, 4, 5, VIRTUAL][below(10) as usize];
            let aeth = Aeth { syndrome, msn: Serial::new(psn) };
            let mut sent = frame(&answer(is_v6, member, psn, Some(aeth)), &[]);
            if below(20) == 0 {
                let at = 14 + below((sent.len() - 14) as u64) as usize;
                sent[at] ^= 1 << below(8);
            }
            twins.now_ns += [1_000, 50_000, 300_000, 5_000_000][below(4) as usize];
            twins.compare((usize::from(member) - 1).min(PORTS - 1), &sent);
        }
    }
    twins.compare_counters();
}

/// The sender need not retransmit to learn that the others have all.
#[test]
fn the_ack_for_a_removed_member_comes_at_once_in_the_same_way() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("removed");
    for is_v6 in [false, true] {
        let (replication, merging) = group(&twins.ports, is_v6);
        twins.insert(key(is_v6), replication, Some(merging));
        for tag in [&[][..], &[0x81, 0, 0x60, 5]] {
            // Member 5 is the one that is waited for, and then 2.
            let psn = 0xff_fff0 + tag.len() as u32;
            for member in [2, 3, 4] {
                let ack = Aeth { syndrome: Syndrome::Ack(9), msn: Serial::new(psn) };
                let mut sent =
                    frame(&answer(is_v6, member, psn + u32::from(member), Some(ack)), &[]);
                sent.splice(12..12, tag.iter().copied());
                twins.compare(usize::from(member) - 1, &sent);
            }
            let removed = if tag.is_empty() { 5 } else { 2 };
            let forwarded = twins.pure.tables.counters.counted(Counter::AckForwarded);
            let told = twins.remove_member(key(is_v6), SENDER_QPN, address(is_v6, removed));
            assert_eq!(told, PORTS - 1, "{tag:?}");
            let now = twins.pure.tables.counters.counted(Counter::AckForwarded);
            assert_eq!(now - forwarded, 1);
        }
    }
    twins.compare_counters();
}

#[test]
fn cnps_are_forwarded_in_the_same_way() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("congestion");
    let (replication, merging) = group(&twins.ports, false);
    twins.insert(key(false), replication, Some(merging));
    // The second lags as far as it may, then is the only one that sends; then all are silent for long.
    let members = (0..200).map(|number| [2, 2, 2, 2, 3][number % 5]);
    let alone = [3; 40].into_iter().chain([4, 2, 3, 2, 4, 5].repeat(4));
    // At last others lag and catch up by their pace, at its limits.
    let paces = [40_000, 60_000, 39_999, 60_001, 60_000, 40_000, 55_000];
    let in_pace = (0..70).map(|number| [2, 2, 2, 4, 4, 4, 4, 4, 3, 3][number % 10]);
    let intervals = (0..264).map(|number| match number {
        249 => 20_000_000,
        200..240 => 100_000,
        _ => 50_000,
    });
    let intervals = intervals.chain(paces.into_iter().cycle());
    for (member, interval_ns) in members.chain(alone).chain(in_pace).zip(intervals) {
        twins.now_ns += interval_ns;
        let sent = frame(&answer(false, member, 0, None), &[]);
        twins.compare(usize::from(member) - 1, &sent);
    }
    twins.compare_counters();
}

#[test]
fn packets_of_no_group_pass_unchanged() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("foreign");
    let (replication, merging) = group(&twins.ports, false);
    twins.insert(key(false), replication, Some(merging));
    let sent = frame(&request(false, Opcode::SendOnly, 1, None), &[3; 21]);
    // Each byte of the headers another one; the length's are followed by the whole packet.
    for at in 15..14 + 20 + 8 + 12 {
        for bit in [0, 3, 6] {
            let mut other = sent.clone();
            other[at] ^= 1 << bit;
            twins.compare(0, &other);
        }
    }
    for bytes in [14, 20, 30, 40, 50, 60, 78] {
        twins.compare(0, &sent[..bytes]);
    }
    // A service tag, and two tags.
    for tags in [
        &[0x88, 0xa8, 0, 5][..],
        &[0x81, 0, 0, 5, 0x81, 0, 0, 6],
        &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6],
    ] {
        let mut tagged = sent.clone();
        tagged.splice(12..12, tags.iter().copied());
        twins.compare(0, &tagged);
    }
    assert_eq!(twins.pure.tables.counters.counted(Counter::TagUnsupported), 3);
    // READs to a host, and their responses.
    for opcode in 0x0c..0x20 {
        let mut other = sent.clone();
        (other[14 + 28], other[14 + 33]) = (opcode, 0x70);
        twins.compare(0, &other);
    }
    twins.compare_counters();
}

#[test]
fn arp_and_neighbour_requests_are_answered_in_the_same_way() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("questions");
    for is_v6 in [false, true] {
        let (replication, merging) = group(&twins.ports, is_v6);
        twins.insert(key(is_v6), replication, Some(merging));
    }
    for asked in [VIRTUAL, 2] {
        let mut arp = [[0xff; 6], mac(1).0].concat();
        arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        arp.extend(mac(1).0);
        arp.extend([10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, asked]);
        let mut tagged = arp.clone();
        tagged.splice(12..12, [0x81, 0, 0x60, 5]);
        for arp in [arp, tagged] {
            let out = twins.compare(0, &arp);
            assert_eq!(out.contains_key(&0), asked == VIRTUAL);
        }
        let IpAddr::V6(target) = address(true, asked) else { panic!() };
        let IpAddr::V6(source) = address(true, 1) else { panic!() };
        for option in [&[1, 1, 2, 0, 0, 0, 0, 1][..], &[]] {
            let mut neighbour = [[0x33, 0x33, 0xff, 0, 0, asked], mac(1).0].concat();
            neighbour.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24 + option.len() as u8, 58, 255]);
            neighbour.extend(source.octets());
            neighbour.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, asked]);
            neighbour.extend([135, 0, 0, 0, 0, 0, 0, 0]);
            neighbour.extend(target.octets());
            neighbour.extend(option);
            let out = twins.compare(0, &neighbour);
            assert_eq!(out.contains_key(&0), asked == VIRTUAL);
        }
    }
    twins.compare_counters();
}

#[test]
fn groups_may_be_large_and_outlive_their_agent() {
    if skipped() {
        return;
    }
    let mut twins = Twins::new("large");
    let branches = (0..MEMBERS_MAX).map(|index| Branch {
        port: twins.ports[1 + index % (PORTS - 1)],
        mac: mac(index as u8),
        target: address(false, index as u8 + 2),
        rewriting: None,
    });
    let replication =
        Replication { sender_qpn: SENDER_QPN, inputs: vec![], branches: branches.collect() };
    twins.insert(key(false), replication.clone(), None);
    let sent = frame(&request(false, Opcode::SendOnly, 1, None), &[7; 100]);
    assert_eq!(twins.compare(0, &sent).values().map(Vec::len).sum::<usize>(), MEMBERS_MAX);
    // Another agent finds the groups; ports forward meanwhile.
    twins.kernel = None;
    twins.compare(0, &sent);
    let mut kernel = KernelPlane::open_with_test_clock(&directory("large")).unwrap();
    assert_eq!(kernel.groups().unwrap(), [(key(false), replication.clone(), None)]);
    kernel.attach("s0").unwrap();
    twins.compare(0, &sent);
    kernel.remove(key(false), &replication, None).unwrap();
    assert_eq!(kernel.groups().unwrap(), []);
    twins.kernel = Some(kernel);
    twins.pure.tables.remove(key(false));
    twins.compare(0, &sent);
    assert_eq!(twins.pure.tables.counters.counted(Counter::Foreign), 1);
    twins.compare_counters();
}
