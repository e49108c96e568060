//! Unmodified endpoints: rdma_rxe devices, through the switch in the kernel. One device sends to one virtual
//! peer, three receive.
//!
//! Runs in the virtual machine of `./dev test-rdma`.

use std::{
    net::IpAddr,
    path::Path,
    time::{Duration, Instant},
};

use data_plane::{DataPlane, KernelPlane};
use mcrdma::{Branch, Counter, GroupKey, Merging, Region, Replication, Rewriting, Source};
use roce::{Mac, Serial};
use testing::{Place, places};
use verbs::{Completion, Connection, Device, Event, Memory, Operation, QueuePair, Status};

const BYTES_MAX: usize = 4 << 20;
const ID: u32 = 0x80_0123;
/// The numbers wrap soon.
const PSN_FIRST: u32 = 0xff_ff80;
const PATIENCE: Duration = Duration::from_secs(40);
const VIRTUAL_MAC: Mac = Mac([2, 0, 0, 7, 0, 200]);

/// A device with one queue pair and memory.
struct End {
    memory: Memory,
    queue_pair: Option<QueuePair>,
    device: Device,
}

impl End {
    fn new(place: &Place) -> Self {
        let device = Device::open(&place.device, place.address).unwrap();
        let memory = device.memory(BYTES_MAX).unwrap();
        let queue_pair = device.queue_pair().unwrap();
        Self { memory, queue_pair: Some(queue_pair), device }
    }

    fn qp(&mut self) -> &mut QueuePair {
        self.queue_pair.as_mut().unwrap()
    }

    /// The next completion.
    fn completion(&self, patience: Duration) -> Option<Completion> {
        let (mut found, deadline) = (Vec::new(), Instant::now() + patience);
        while found.is_empty() && Instant::now() < deadline {
            self.device.poll(&mut found, patience).unwrap();
        }
        assert!(found.len() <= 1, "{found:?}");
        found.pop()
    }
}

/// One sender, its receivers, and the switch between them.
struct Group {
    sender: End,
    receivers: Vec<End>,
    plane: Option<KernelPlane>,
    key: GroupKey,
    sender_qpn: u32,
    members: Vec<Source>,
    number: u64,
}

impl Drop for Group {
    fn drop(&mut self) {
        self.plane.take().map(KernelPlane::unpin);
    }
}

impl Group {
    fn new(name: &str, receivers: usize) -> Option<Self> {
        let places = places()?;
        let directory = format!("/sys/fs/bpf/rdmc-test-{name}-{}", std::process::id());
        let mut plane = KernelPlane::open(Path::new(&directory)).unwrap();
        for place in &places {
            plane.attach(&place.port).unwrap();
        }
        let virtual_address: IpAddr = "10.7.0.200".parse().unwrap();
        let mut sender = End::new(&places[0]);
        let sender_qpn = sender.qp().number();
        let key = GroupKey { sender: places[0].address, id: ID };
        let connection = |peer, peer_qpn, psn_offset: u32| Connection {
            peer,
            peer_qpn,
            send_psn: PSN_FIRST.wrapping_add(psn_offset) % (1 << 24),
            receive_psn: PSN_FIRST.wrapping_add(psn_offset) % (1 << 24),
            mtu_bytes: 1024,
            timeout: 15,
            // 7 would mean unlimited retries.
            retries: 6,
            not_ready_retries: 6,
            not_ready_timer: 14,
        };
        let (mut ends, mut branches, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for (number, place) in (1_u32..).zip(&places[1..=receivers]) {
            let psn_offset = number * 0x12_3456;
            let mut end = End::new(place);
            end.qp().connect(&connection(key.sender, sender_qpn, psn_offset)).unwrap();
            let region = Region {
                start: 0x1000_0000,
                bytes: BYTES_MAX as u64,
                member_start: end.memory.address(),
                member_key: end.memory.key(),
            };
            branches.push(Branch {
                port: KernelPlane::port_number(&place.port).unwrap(),
                mac: place.mac(),
                target: place.address,
                rewriting: Some(Rewriting {
                    qpn: end.qp().number(),
                    psn_offset,
                    regions: vec![region],
                }),
            });
            sources.push(Source { address: place.address, psn_offset, ports: Vec::new() });
            ends.push(end);
        }
        let members = sources.clone();
        let merging = Merging {
            psn_first: Serial::new(PSN_FIRST),
            virtual_address,
            virtual_mac: Some(VIRTUAL_MAC),
            members: sources,
            all_notifications: false,
        };
        let replication = Replication { sender_qpn, inputs: Vec::new(), branches };
        plane.insert(key, &replication, Some(&merging)).unwrap();
        // The switch answers ARP for the virtual address from here on.
        sender.qp().connect(&connection(virtual_address, ID, 0)).unwrap();
        let (receivers, plane) = (ends, Some(plane));
        Some(Self { sender, receivers, plane, key, sender_qpn, members, number: 0 })
    }

    /// Sends one message and checks the completions and memory of all members.
    fn message(&mut self, bytes: usize, is_write: bool, immediate: Option<u32>) {
        self.number += 1;
        let id = self.number;
        let contents: Vec<u8> = (0..bytes).map(|at| (at as u64 * 31 + id * 7) as u8).collect();
        for receiver in &mut self.receivers {
            receiver.memory.write(0, &vec![0xee; bytes]).unwrap();
            if !is_write || immediate.is_some() {
                let room = if is_write { 0..0 } else { 0..bytes };
                let End { memory, queue_pair, .. } = receiver;
                queue_pair.as_mut().unwrap().receive(id, memory, room).unwrap();
            }
        }
        self.post(&contents, is_write, immediate);
        let done = self.sender.completion(PATIENCE).expect("the sender's completion");
        let qpn = self.sender_qpn;
        assert_eq!(done, Completion { id, qpn, status: Status::Done, event: Some(Event::Sent) });
        // All members have acknowledged.
        for (number, receiver) in self.receivers.iter().enumerate() {
            if !is_write || immediate.is_some() {
                let arrival = receiver.completion(PATIENCE).expect("a receiver's completion");
                let bytes = bytes as u32;
                let event = match is_write {
                    false => Event::Received { bytes, immediate },
                    true => Event::Written { bytes, immediate },
                };
                assert_eq!((arrival.id, arrival.event), (id, Some(event)));
            }
            let received = receiver.memory.read(0..bytes).unwrap();
            assert!(received == contents, "message {id} of {bytes} bytes at receiver {number}");
        }
    }

    fn post(&mut self, contents: &[u8], is_write: bool, immediate: Option<u32>) {
        let End { memory, queue_pair, .. } = &mut self.sender;
        memory.write(0, contents).unwrap();
        let operation = match is_write {
            false => Operation::Send,
            true => Operation::Write { address: 0x1000_0000, key: 1 },
        };
        let range = 0..contents.len();
        queue_pair
            .as_mut()
            .unwrap()
            .send(self.number, operation, memory, range, immediate)
            .unwrap();
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.plane.as_ref().unwrap().counters().unwrap().counted(counter)
    }

    /// Packets that came to receivers again, since their devices are there.
    fn repeated(&self) -> u64 {
        let of_device = |receiver: &End| -> u64 {
            let path = "ports/1/hw_counters/duplicate_request";
            let path = format!("/sys/class/infiniband/{}/{path}", receiver.device.name());
            let text = std::fs::read_to_string(&path).expect("the kernel counts what comes again");
            text.trim().parse().unwrap()
        };
        self.receivers.iter().map(of_device).sum()
    }

    fn all_messages(&mut self, lengths: &[usize]) {
        for &bytes in lengths {
            for (is_write, immediate) in
                [(false, None), (false, Some(0xfeed_0001)), (true, None), (true, Some(7))]
            {
                self.message(bytes, is_write, immediate);
            }
        }
    }
}

#[test]
fn messages_of_all_kinds_reach_all_receivers() {
    for receivers in [1, 3] {
        let Some(mut group) = Group::new("kinds", receivers) else { return };
        let repeated_before = group.repeated();
        group.all_messages(&[1, 1000, 1024, 1025, 65_536, BYTES_MAX]);
        // The sender's link carried each packet once.
        let (requests, copies) = (group.counted(Counter::Request), group.counted(Counter::Copy));
        assert_eq!(copies, requests * receivers as u64);
        println!("{receivers} receivers: {requests} packets, {copies} copies");
        assert_eq!(group.counted(Counter::CopyFailed), 0);
        // Of three answers at most one was forwarded, except those to retransmitted packets.
        let (forwarded, suppressed) =
            (group.counted(Counter::AckForwarded), group.counted(Counter::AnswerSuppressed));
        let repeated = group.repeated() - repeated_before;
        println!(
            "{forwarded} ACKs forwarded, {suppressed} suppressed, {repeated} packets retransmitted"
        );
        let others = receivers as u64 - 1;
        assert!(forwarded > 0 && forwarded.saturating_sub(repeated) * others <= suppressed);
    }
}

/// Run while packets are lost at every port.
#[test]
fn what_is_lost_is_sent_again() {
    let Some(mut group) = Group::new("loss", 3) else { return };
    group.all_messages(&[1, 65_536, 300_000]);
    let counts =
        [Counter::Request, Counter::AckForwarded, Counter::NakForwarded].map(|c| group.counted(c));
    println!("requests, ACKs, NAKs: {counts:?}");
    if std::env::var_os("RDMC_TEST_LOSS").is_some() {
        assert!(counts[2] > 0, "nothing was lost");
    }
}

#[test]
fn a_group_continues_without_a_receiver_that_died_and_was_removed() {
    let Some(mut group) = Group::new("death", 3) else { return };
    group.message(50_000, false, None);
    group.receivers[1].queue_pair = None;
    group.number += 1;
    group.post(&[5; 3000], true, None);
    let early = group.sender.completion(Duration::from_millis(100));
    assert_eq!(early, None, "one of the members has not acknowledged it");
    let dead = group.members[1].address;
    let plane = group.plane.as_mut().unwrap();
    assert!(plane.remove_member(group.key, group.sender_qpn, dead, &group.members).unwrap());
    let done = group.sender.completion(PATIENCE).expect("a completion without the dead");
    assert_eq!(done.status, Status::Done);
    group.receivers.remove(1);
    group.message(50_000, false, Some(3));
}

#[test]
fn a_dead_receiver_that_is_not_removed_ends_the_connection() {
    let Some(mut group) = Group::new("end", 2) else { return };
    group.receivers[0].queue_pair = None;
    group.number += 1;
    group.post(&[5; 3000], true, None);
    let done = group.sender.completion(PATIENCE).expect("a completion");
    assert_eq!(done.status, Status::NoAnswer);
}

#[test]
fn a_write_to_unknown_memory_is_refused() {
    let Some(mut group) = Group::new("unknown", 2) else { return };
    group.number += 1;
    let End { memory, queue_pair, .. } = &mut group.sender;
    let operation = Operation::Write { address: 0x1000_0000 + BYTES_MAX as u64 - 99, key: 1 };
    let qp = queue_pair.as_mut().unwrap();
    qp.send(group.number, operation, memory, 0..100, None).unwrap();
    let done = group.sender.completion(PATIENCE).expect("a completion");
    assert_eq!(done.status, Status::RemoteAccess);
    assert_eq!(group.counted(Counter::RegionUnknown), 1);
}
