//! Groups that change a thousand times while their senders write: every copy is correct, byte by byte, and a
//! permanent member gets each packet exactly once. Over both data planes. Needs root.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use data_plane::{Groups, KernelPlane, UserspacePlane};
use mcrdma::{Branch, Counter, GroupKey, Port, Region, Replication, Rewriting};
use packet_socket::{Batch, Interface, Offload};
use roce::{Bth, ETHERNET_BYTES, Headers, IpHeader, Mac, Opcode, Packet, Reth, Serial};

use crate::links;

const PORTS: usize = 4;
/// Many, so that making the copies of one packet takes long.
const MEMBERS: u32 = 24;
const CHANGES: u32 = 1000;
const BYTES: u32 = 64;
const ROOM_BYTES: u64 = 1 << 20;
/// Packets on their way at a time: those of one turn fit into every socket's room.
const BURST: u32 = 8;
const PATIENCE: Duration = Duration::from_secs(60);
const VIRTUAL_START: u64 = 0x5000_0000;

/// Two groups, so that entries that one frees can be reused by the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sender(u8);

impl Sender {
    fn key(self) -> GroupKey {
        GroupKey { sender: IpAddr::from([10, 1, self.0, 1]), id: 0x80_0000 + u32::from(self.0) }
    }

    fn member(self, member: u32) -> IpAddr {
        IpAddr::from([10, 2, self.0, member as u8])
    }

    fn mac(self, member: u32) -> Mac {
        Mac([2, 0, 0, 0, self.0, member as u8])
    }

    /// No field of it is equal to that of another member.
    fn rewriting(self, member: u32) -> Rewriting {
        let number = u32::from(self.0) * MEMBERS + member;
        let regions = (0..2).map(|region| Region {
            start: VIRTUAL_START + region * ROOM_BYTES,
            bytes: ROOM_BYTES,
            member_start: (u64::from(number) << 40) + (region << 32),
            member_key: 0x1_0000 + number * 2 + region as u32,
        });
        Rewriting { qpn: 0x100 + number, psn_offset: number * 0x1_0000, regions: regions.collect() }
    }

    /// A packet, before the switch or behind it.
    fn frame(self, number: u32, to: Option<u32>) -> Vec<u8> {
        let target = to.map_or(IpAddr::from([10, 3, 0, 1]), |member| self.member(member));
        let mut ip = IpHeader::new(self.key().sender, target).unwrap();
        ip.hop_limit -= u8::from(to.is_some());
        let opcode = if number.is_multiple_of(3) { Opcode::WriteFirst } else { Opcode::WriteOnly };
        let mut headers = Headers::new(ip, Bth::new(opcode, self.key().id, Serial::new(number)));
        let place = u64::from(number % 1000) * u64::from(BYTES);
        let region = u64::from(number % 2);
        let address = VIRTUAL_START + region * ROOM_BYTES + place;
        headers.reth = Some(Reth { address, key: 1, bytes: BYTES });
        if let Some(rewriting) = to.map(|member| self.rewriting(member)) {
            headers.bth.target_qpn = rewriting.qpn;
            headers.bth.psn = Serial::new(number).plus(rewriting.psn_offset);
            let Region { member_start, member_key, .. } = rewriting.regions[region as usize];
            headers.reth =
                Some(Reth { address: member_start + place, key: member_key, bytes: BYTES });
        }
        let payload: Vec<u8> =
            (0..BYTES).map(|at| (at * 7 + number * 13 + u32::from(self.0)) as u8).collect();
        let mut frame = vec![0; ETHERNET_BYTES + headers.packet_bytes(payload.len())];
        frame[..6]
            .copy_from_slice(&to.map_or(Mac([2, 0, 0, 9, 9, 9]), |member| self.mac(member)).0);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 9, self.0]);
        frame[12..14].copy_from_slice(&[8, 0]);
        headers.write(&payload, &mut frame[ETHERNET_BYTES..]).unwrap();
        frame
    }

    /// The group after this many changes: members leave and join at every place, and are in another
    /// order each time; member 0 is always one.
    fn group(self, change: u32, ports: &[Port]) -> Replication {
        let is_in = |member: &u32| {
            *member == 0 || !(change.wrapping_mul(2_654_435_761) >> (member % 29)).is_multiple_of(3)
        };
        let mut members: Vec<u32> = (0..MEMBERS).filter(is_in).collect();
        let turn = change as usize * 7 % members.len();
        members.rotate_left(turn);
        let branch = |member: u32| Branch {
            port: ports[1 + member as usize % (PORTS - 1)],
            mac: self.mac(member),
            target: self.member(member),
            rewriting: Some(self.rewriting(member)),
        };
        Replication {
            sender_qpn: 17,
            inputs: vec![ports[0]],
            branches: members.into_iter().map(branch).collect(),
        }
    }
}

/// The other ends of a switch's ports, the first of which is the senders'.
struct Hosts {
    hosts: Vec<Interface>,
    batch: Batch,
}

impl Hosts {
    /// In a network of this thread's own.
    fn new() -> Self {
        lab::enter_own_network().unwrap();
        let open = |port: usize| {
            links::veth(&format!("s{port}"), &format!("h{port}"), 9000);
            let host = Interface::open(&format!("h{port}"), true).unwrap();
            host.reserve(4 << 20).unwrap();
            host
        };
        Self { hosts: (0..PORTS).map(open).collect(), batch: Batch::new() }
    }

    /// Sends these packets of each sender; member 0 gets each of them once, and every
    /// member gets only packets that are meant for it.
    fn exchange(&mut self, senders: &[Sender], numbers: std::ops::Range<u32>) {
        let mut missing = Vec::new();
        for number in numbers {
            for &sender in senders {
                self.hosts[0].send(Offload::NONE, &sender.frame(number, None)).unwrap();
                missing.push((sender, number));
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while !missing.is_empty() {
            assert!(Instant::now() < deadline, "member 0 misses {missing:?}");
            for port in 1..PORTS {
                self.hosts[port].receive(&mut self.batch, Duration::ZERO).unwrap();
                for (_, frame) in self.batch.frames() {
                    let (sender, member, number) = checked(senders, frame);
                    if member == 0 {
                        let place = missing.iter().position(|known| *known == (sender, number));
                        missing.swap_remove(place.expect("each packet comes once"));
                    }
                }
            }
        }
    }
}

/// Checks that a frame is exactly the copy for its member; returns its sender, member and number.
fn checked(senders: &[Sender], frame: &[u8]) -> (Sender, u32, u32) {
    let headers = Packet::parse(&frame[ETHERNET_BYTES..]).unwrap().headers;
    let whose = senders.iter().find_map(|&sender| {
        let member = (0..MEMBERS).find(|&member| sender.member(member) == headers.ip.target);
        member.map(|member| (sender, member))
    });
    let (sender, member) = whose.expect("a member's");
    let number = headers.bth.psn.minus(sender.rewriting(member).psn_offset).get();
    let right = sender.frame(number, Some(member));
    assert!(frame == right, "of {sender:?} for member {member}: {headers:?}");
    (sender, member, number)
}

/// Changes both groups in turn while their senders write.
fn change_under_traffic(groups: Groups, mut hosts: Hosts) {
    let senders = [Sender(1), Sender(2)];
    let ports: Vec<Port> =
        (0..PORTS).map(|port| KernelPlane::port_number(&format!("s{port}")).unwrap()).collect();
    let mut groups = groups;
    for sender in senders {
        groups.insert(sender.key(), sender.group(0, &ports), None).unwrap();
    }
    let is_over = AtomicBool::new(false);
    let sent = AtomicU32::new(0);
    let (mut number, groups) = thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let mut before = 0;
            for change in 1..=CHANGES {
                // Packets go out all the time; but changes also follow each other while one is copied.
                let deadline = Instant::now() + PATIENCE;
                while change.is_multiple_of(8) && sent.load(Ordering::Relaxed) == before {
                    assert!(Instant::now() < deadline, "nothing is sent any more");
                    thread::yield_now();
                }
                before = sent.load(Ordering::Relaxed);
                let sender = senders[change as usize % 2];
                assert!(groups.replace(sender.key(), sender.group(change, &ports)).unwrap());
            }
            is_over.store(true, Ordering::Relaxed);
            groups
        });
        let mut number = 0;
        while !is_over.load(Ordering::Relaxed) && !changing.is_finished() {
            sent.fetch_add(1, Ordering::Relaxed);
            hosts.exchange(&senders, number..number + BURST);
            number += BURST;
        }
        (number, changing.join().unwrap())
    });
    // The last change is in force in the end.
    hosts.exchange(&senders, number..number + BURST);
    number += BURST;
    let counters = groups.counters().unwrap();
    assert_eq!(counters.counted(Counter::Request), u64::from(number) * senders.len() as u64);
    assert_eq!(counters.counted(Counter::RegionUnknown), 0);
    assert_eq!(counters.counted(Counter::CopyFailed), 0);
    println!("{CHANGES} changes, {number} packets of each sender, {counters:?}");
}

#[test]
fn updates_of_members_under_traffic_are_atomic_in_userspace() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root (network namespaces)");
        return;
    }
    let hosts = Hosts::new();
    let names: Vec<String> = (0..PORTS).map(|port| format!("s{port}")).collect();
    let mut plane = UserspacePlane::open(names.iter().map(String::as_str)).unwrap();
    let groups = Groups::in_userspace(plane.tables());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let running = thread::spawn(move || plane.run(&stopped).unwrap());
    change_under_traffic(groups, hosts);
    stop.store(true, Ordering::Relaxed);
    running.join().unwrap();
}

#[test]
fn updates_of_members_under_traffic_are_atomic_in_the_kernel() {
    if let Err(error) = KernelPlane::check() {
        println!("SKIPPED: needs root (network namespaces, eBPF): {error}");
        return;
    }
    struct Unpin(std::path::PathBuf);
    impl Drop for Unpin {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
    let unpin = Unpin(format!("/sys/fs/bpf/rdmc-test-updates-{}", std::process::id()).into());
    let hosts = Hosts::new();
    lab::ip("link add name bridge0 type bridge mcast_snooping 0").unwrap();
    lab::quiet("bridge0", 9000).unwrap();
    let mut groups = Groups::in_kernel(&unpin.0).unwrap();
    for port in 0..PORTS {
        lab::ip(&format!("link set s{port} master bridge0")).unwrap();
        groups.kernel().unwrap().attach(&format!("s{port}")).unwrap();
    }
    change_under_traffic(groups, hosts);
}
