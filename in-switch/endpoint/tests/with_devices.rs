//! Endpoints in userspace interoperate with rdma_rxe, as sender and as receivers of one group, through the
//! switch in the kernel.
//!
//! Runs in the virtual machine of `./dev test-rdma`.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use data_plane::{DataPlane, KernelPlane};
use endpoint::{Endpoint, Event, Peer};
use mcrdma::{Branch, GroupKey, Merging, Region, Replication, Rewriting, Source};
use roce::{
    Mac, Serial,
    rc::{Kind, RequesterConfig, Status, Work},
};
use testing::{Place, places};
use verbs::{Connection, Device, Operation};

const ID: u32 = 0x80_0456;
const PSN_FIRST: u32 = 0xff_ff80;
const VIRTUAL_START: u64 = 0x1000_0000;
const BYTES_MAX: usize = 300_000;
const PATIENCE: Duration = Duration::from_secs(30);
const LENGTHS: [usize; 5] = [1, 1024, 1025, 65_536, BYTES_MAX];

fn connection(peer: IpAddr, peer_qpn: u32, psn_offset: u32) -> Connection {
    let first = PSN_FIRST.wrapping_add(psn_offset) % (1 << 24);
    Connection {
        peer,
        peer_qpn,
        send_psn: first,
        receive_psn: first,
        mtu_bytes: 1024,
        timeout: 16,
        retries: 6,
        not_ready_retries: 6,
        not_ready_timer: 14,
    }
}

fn contents(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + salt * 7) as u8).collect()
}

/// A member of the group.
struct Member<'a> {
    place: &'a Place,
    mac: Mac,
    qpn: u32,
    psn_offset: u32,
    memory: (u64, u32),
}

fn insert(
    plane: &mut KernelPlane,
    sender: (IpAddr, u32),
    virtual_address: IpAddr,
    members: &[Member<'_>],
) {
    let branch = |member: &Member<'_>| Branch {
        port: KernelPlane::port_number(&member.place.port).unwrap(),
        mac: member.mac,
        target: member.place.address,
        rewriting: Some(Rewriting {
            qpn: member.qpn,
            psn_offset: member.psn_offset,
            regions: vec![Region {
                start: VIRTUAL_START,
                bytes: BYTES_MAX as u64,
                member_start: member.memory.0,
                member_key: member.memory.1,
            }],
        }),
    };
    let source = |member: &Member<'_>| Source {
        address: member.place.address,
        psn_offset: member.psn_offset,
        ports: Vec::new(),
    };
    let branches = members.iter().map(branch).collect();
    let replication = Replication { sender_qpn: sender.1, inputs: Vec::new(), branches };
    let merging = Merging {
        psn_first: Serial::new(PSN_FIRST),
        virtual_address,
        virtual_mac: Some(Mac([2, 0, 0, 7, 0, 201])),
        members: members.iter().map(source).collect(),
        all_notifications: false,
    };
    let key = GroupKey { sender: sender.0, id: ID };
    plane.insert(key, &replication, Some(&merging)).unwrap();
}

/// Sends through `post` and lets the endpoints work until it has ended and the endpoint that receives
/// has the message.
fn until_done(
    endpoints: &mut [&mut Endpoint],
    mut is_sent: impl FnMut() -> bool,
    receiver: usize,
) -> (bool, Option<Vec<u8>>, Vec<Event>) {
    let (mut sent, mut received, mut others) = (false, None, Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while !(sent && received.is_some()) && Instant::now() < deadline {
        for (index, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint.progress(Duration::from_millis(1)).unwrap();
            while let Some(event) = endpoint.completed() {
                match event {
                    Event::Arrived { memory, .. } if index == receiver => received = Some(memory),
                    event => others.push(event),
                }
            }
        }
        sent |= is_sent() || others.iter().any(|event| matches!(event, Event::Sent { .. }));
    }
    (sent, received, others)
}

/// A group with a device and an endpoint as members; `send_by_device`: whether the device sends.
fn mixed_group(name: &str, send_by_device: bool) {
    let Some(places) = places() else { return };
    let directory = format!("/sys/fs/bpf/rdmc-test-{name}-{}", std::process::id());
    let mut plane = KernelPlane::open(directory.as_ref()).unwrap();
    for place in &places {
        plane.attach(&place.port).unwrap();
    }
    let [sender_at, device_at, endpoint_at] = &places[..3] else { panic!("three places") };
    let virtual_address: IpAddr = "10.7.0.201".parse().unwrap();
    let config = RequesterConfig { timeout_ns: 268_435_456, ..RequesterConfig::default() };

    // Two receivers, and one sender of either kind.
    let device = Device::open(&device_at.device, device_at.address).unwrap();
    let mut memory = device.memory(BYTES_MAX).unwrap();
    let mut queue_pair = device.queue_pair().unwrap();
    let mut endpoint = Endpoint::open(&endpoint_at.interface, endpoint_at.address).unwrap();
    let written = endpoint.register(BYTES_MAX);
    let sending_device = Device::open(&sender_at.device, sender_at.address).unwrap();
    let mut sending_memory = sending_device.memory(BYTES_MAX).unwrap();
    let mut sending_pair = sending_device.queue_pair().unwrap();
    let mut sending_endpoint = Endpoint::open(&sender_at.interface, sender_at.address).unwrap();
    let peer = Peer { address: virtual_address, qpn: ID, next_hop: None };
    let sending_qpn = sending_endpoint.queue_pair(peer, config, PSN_FIRST, PSN_FIRST);
    let sender_qpn = if send_by_device { sending_pair.number() } else { sending_qpn };

    queue_pair.connect(&connection(sender_at.address, sender_qpn, 0x111)).unwrap();
    let peer = Peer { address: sender_at.address, qpn: sender_qpn, next_hop: None };
    let first = (PSN_FIRST + 0x222_222) % (1 << 24);
    let qpn = endpoint.queue_pair(peer, config, first, first);
    let members = [
        Member {
            place: device_at,
            mac: device_at.mac(),
            qpn: queue_pair.number(),
            psn_offset: 0x111,
            memory: (memory.address(), memory.key()),
        },
        Member {
            place: endpoint_at,
            mac: endpoint.mac(),
            qpn,
            psn_offset: 0x222_222,
            memory: (written.start, written.key),
        },
    ];
    insert(&mut plane, (sender_at.address, sender_qpn), virtual_address, &members);
    if send_by_device {
        sending_pair.connect(&connection(virtual_address, ID, 0)).unwrap();
    }

    for (number, bytes) in LENGTHS.into_iter().enumerate() {
        for is_write in [false, true] {
            let sent = contents(bytes, number);
            let id = number as u64;
            let immediate = is_write.then_some(number as u32);
            memory.write(0, &vec![0xee; bytes]).unwrap();
            // Each of both takes a receive: the WRITE has an immediate.
            let room = if is_write { 0 } else { bytes };
            queue_pair.receive(id, &memory, 0..room).unwrap();
            endpoint.receive(qpn, id, vec![0xee; room]).unwrap();
            let mut completions = Vec::new();
            if send_by_device {
                let operation = match is_write {
                    false => Operation::Send,
                    true => Operation::Write { address: VIRTUAL_START, key: 1 },
                };
                sending_memory.write(0, &sent).unwrap();
                sending_pair.send(id, operation, &sending_memory, 0..bytes, immediate).unwrap();
            } else {
                let kind = match is_write {
                    false => Kind::Send,
                    true => Kind::Write { address: VIRTUAL_START, key: 1 },
                };
                let work = Work { id, kind, bytes: bytes as u32, immediate };
                sending_endpoint.send(sending_qpn, work, sent.clone()).unwrap();
            }
            let mut endpoints = [&mut sending_endpoint, &mut endpoint];
            let polled = || {
                sending_device.poll(&mut completions, Duration::ZERO).unwrap();
                !completions.is_empty()
            };
            let (is_sent, received, others) = until_done(&mut endpoints, polled, 1);
            assert!(is_sent, "{bytes} bytes: {others:?}");
            let ended_well = match send_by_device {
                true => completions[0].status == verbs::Status::Done,
                false => {
                    others.contains(&Event::Sent { qpn: sending_qpn, id, status: Status::Done })
                }
            };
            assert!(ended_well, "{completions:?} {others:?}");
            let received = received.expect("the endpoint has the message");
            let of_endpoint = match is_write {
                false => &received[..],
                true => &endpoint.memory(written.key).unwrap()[..bytes],
            };
            assert!(of_endpoint == sent, "{bytes} bytes at the endpoint");
            let mut arrived = Vec::new();
            device.poll(&mut arrived, PATIENCE).unwrap();
            assert_eq!(arrived[0].status, verbs::Status::Done);
            assert!(memory.read(0..bytes).unwrap() == sent, "{bytes} bytes at the device");
        }
    }
    plane.unpin().unwrap();
}

#[test]
fn a_device_sends_to_a_device_and_an_endpoint() {
    mixed_group("by-device", true);
}

#[test]
fn an_endpoint_sends_to_a_device_and_an_endpoint() {
    mixed_group("by-endpoint", false);
}
