//! The switch in userspace: bridges frames, with their offloads, and copies groups' packets. Needs root: each
//! host is a thread with a network namespace of its own.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use data_plane::{UserspacePlane, UserspaceTables};
use mcrdma::{Branch, Counter, GroupKey, Merging, Replication, Rewriting, Source};
use packet_socket::{Batch, Interface, Offload, Outgoing};
use roce::{Aeth, Bth, Headers, IpHeader, Mac, Opcode, Packet, Serial, Syndrome};

use crate::links;

const PATIENCE: Duration = Duration::from_secs(20);

fn own_network() {
    lab::enter_own_network().unwrap();
    ip("link set lo up");
}

fn ip(words: &str) {
    lab::ip(words).unwrap();
}

fn quiet(link: &str) {
    lab::quiet(link, 9000).unwrap();
}

fn skipped() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: needs root (network namespaces)");
    }
    !is_root
}

/// Runs a switch with this many ports `s0` on in this thread's network, until it is dropped.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<data_plane::Forwarded>>,
    tables: UserspaceTables,
}

impl Running {
    fn start(ports: usize) -> Self {
        let names: Vec<String> = (0..ports).map(|port| format!("s{port}")).collect();
        let mut plane = UserspacePlane::open(names.iter().map(String::as_str)).unwrap();
        let (stop, tables) = (Arc::new(AtomicBool::new(false)), plane.tables());
        let stopped = Arc::clone(&stop);
        // Its sockets stay in the network in which they were made.
        let thread = thread::spawn(move || {
            plane.run(&stopped).unwrap();
            plane.forwarded()
        });
        Self { stop, thread: Some(thread), tables }
    }

    fn stop(&mut self) -> data_plane::Forwarded {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn veth(port: usize) {
    links::veth(&format!("s{port}"), &format!("h{port}"), 9000);
}

#[test]
fn tcp_with_all_offloads_passes_the_bridge() {
    if skipped() {
        return;
    }
    own_network();
    veth(0);
    veth(1);
    let mut running = Running::start(2);
    let (sender, threads) = std::sync::mpsc::channel();
    let ready = Arc::new(Barrier::new(3));
    let host = |number: u8| {
        let (sender, ready) = (sender.clone(), Arc::clone(&ready));
        move || {
            own_network();
            sender.send((number, rustix::thread::gettid().as_raw_pid())).unwrap();
            ready.wait();
            ip(&format!("addr add 10.1.0.{number}/24 dev h{number}"));
            quiet(&format!("h{number}"));
            ready.wait();
        }
    };
    let data: Vec<u8> =
        (0..8_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let sent = data.clone();
    let (to_listen, to_connect) = (host(0), host(1));
    let (tell_listening, is_listening) = std::sync::mpsc::channel();
    let listening = thread::spawn(move || {
        to_listen();
        let listener = TcpListener::bind((Ipv4Addr::new(10, 1, 0, 0), 7777)).unwrap();
        tell_listening.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received
    });
    let connecting = thread::spawn(move || {
        to_connect();
        is_listening.recv().unwrap();
        let address = (Ipv4Addr::new(10, 1, 0, 0), 7777).into();
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.write_all(&sent).unwrap();
    });
    for _ in 0..2 {
        let (number, thread): (u8, i32) = threads.recv().unwrap();
        ip(&format!("link set h{number} netns {thread}"));
    }
    ready.wait();
    ready.wait();
    connecting.join().unwrap();
    assert!(listening.join().unwrap() == data);
    let forwarded = running.stop();
    // Frames are forwarded unchanged, with a length of many packets (offload).
    assert!((10..5000).contains(&forwarded.frames), "{forwarded:?}");
    assert!(running.tables.lock().tables.counters.counted(Counter::Foreign) >= forwarded.frames);
}

fn frame(target: Mac, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14 + headers.packet_bytes(payload.len())];
    frame[..6].copy_from_slice(&target.0);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12] = 8;
    headers.write(payload, &mut frame[14..]).unwrap();
    frame
}

fn received(host: &Interface) -> Vec<u8> {
    let mut batch = Batch::new();
    assert_eq!(host.receive(&mut batch, PATIENCE).unwrap(), 1);
    let (_, frame) = batch.frames().next().unwrap();
    frame.to_vec()
}

#[test]
fn groups_are_copied_and_the_rest_is_learnt() {
    if skipped() {
        return;
    }
    own_network();
    (0..4).for_each(veth);
    let mut running = Running::start(4);
    let hosts: Vec<Interface> =
        (0..4).map(|port| Interface::open(&format!("h{port}"), true).unwrap()).collect();
    let address = |host: u8| IpAddr::from([10, 0, 0, host]);
    let key = GroupKey { sender: address(1), id: 0x80_0001 };
    let branch = |port: u8| Branch {
        port: rustix::net::netdevice::name_to_index(&hosts[0], &format!("s{port}")).unwrap(),
        mac: Mac([2, 0, 0, 0, 1, port]),
        target: address(10 + port),
        rewriting: Some(Rewriting { qpn: 0x30, psn_offset: 5, regions: Vec::new() }),
    };
    let replication = Replication {
        sender_qpn: 17,
        inputs: vec![branch(0).port],
        branches: vec![branch(1), branch(3)],
    };
    running.tables.lock().tables.insert(key, replication, None).unwrap();
    let ip = IpHeader::new(address(1), address(200)).unwrap();
    let headers = Headers::new(ip, Bth::new(Opcode::SendOnly, key.id, Serial::new(9)));
    hosts[0].send(Offload::NONE, &frame(Mac([2, 0, 0, 0, 2, 2]), &headers, b"copied")).unwrap();
    for port in [1, 3] {
        let copy = received(&hosts[port]);
        let packet = Packet::parse(&copy[14..]).unwrap();
        assert!(packet.is_intact());
        assert_eq!((packet.headers.bth.target_qpn, packet.payload), (0x30, &b"copied"[..]));
        assert_eq!(packet.headers.ip.target, address(10 + port as u8));
    }
    // A VLAN tag stays where it is; a frame for an unknown station is flooded, its answer goes to one port.
    let mut tagged = [&[2, 0, 0, 0, 0, 9], &[2, 0, 0, 0, 0, 1][..]].concat();
    tagged.extend([0x81, 0, 0x20, 5, 0x88, 0xb5]);
    tagged.extend([7; 60]);
    hosts[0].send(Offload::NONE, &tagged).unwrap();
    for host in &hosts[1..] {
        assert_eq!(received(host), tagged);
    }
    tagged.swap(5, 11);
    hosts[2].send(Offload::NONE, &tagged).unwrap();
    assert_eq!(received(&hosts[0]), tagged);
    // The next frame goes everywhere again: at the other ports it is the only one.
    tagged[5] = 8;
    hosts[2].send(Offload::NONE, &tagged).unwrap();
    for port in [0, 1, 3] {
        assert_eq!(received(&hosts[port]), tagged);
    }
    let forwarded = running.stop();
    assert_eq!((forwarded.frames, forwarded.refused), (7, 0));
}

/// A frame of any station to all, with this payload.
fn broadcast(payload: &[u8]) -> Vec<u8> {
    let mut frame = [[0xff; 6], [2, 0, 0, 0, 0, 1]].concat();
    frame.extend([0x88, 0xb5]);
    frame.extend(payload);
    frame
}

#[test]
fn frames_of_parts_are_sent_whole_and_one_that_is_refused_keeps_none() {
    if skipped() {
        return;
    }
    own_network();
    veth(0);
    let [port, host] = ["s0", "h0"].map(|name| Interface::open(name, true).unwrap());
    // More than one system call takes, and one frame in the middle that is longer than the MTU.
    let payload = |number: u8| [&[number][..], &[7; 60]].concat();
    let frames: Vec<Vec<u8>> = (0..100)
        .map(|number| broadcast(&if number == 50 { vec![0; 20_000] } else { payload(number) }))
        .collect();
    let parts = frames.iter().map(|frame| Outgoing {
        offload: Offload::NONE,
        parts: [&frame[..13], &frame[13..40], &frame[40..]],
    });
    let mut refused = Vec::new();
    port.send_many(&parts.collect::<Vec<_>>(), |place| refused.push(place));
    assert_eq!(refused, [50]);
    let mut batch = Batch::new();
    let mut arrived = Vec::new();
    while arrived.len() < 99 && host.receive(&mut batch, PATIENCE).unwrap() > 0 {
        arrived.extend(batch.frames().map(|(_, frame)| frame.to_vec()));
    }
    assert!(arrived.iter().eq(frames.iter().filter(|frame| frame.len() < 1000)));
}

/// A copy that does not fit through its port is counted as such, and is no copy.
#[test]
fn copies_that_a_port_refuses_are_counted() {
    if skipped() {
        return;
    }
    own_network();
    (0..3).for_each(veth);
    let mut running = Running::start(3);
    let hosts: Vec<Interface> =
        (0..3).map(|port| Interface::open(&format!("h{port}"), true).unwrap()).collect();
    lab::quiet("s2", 1500).unwrap();
    let address = |host: u8| IpAddr::from([10, 0, 0, host]);
    let key = GroupKey { sender: address(1), id: 0x80_0001 };
    let branch = |port: u8| Branch {
        port: rustix::net::netdevice::name_to_index(&hosts[0], &format!("s{port}")).unwrap(),
        mac: Mac([2, 0, 0, 0, 1, port]),
        target: address(10 + port),
        rewriting: None,
    };
    let branches = vec![branch(1), branch(2)];
    let replication = Replication { sender_qpn: 17, inputs: vec![branch(0).port], branches };
    running.tables.lock().tables.insert(key, replication, None).unwrap();
    let ip = IpHeader::new(address(1), address(200)).unwrap();
    let headers = Headers::new(ip, Bth::new(Opcode::SendOnly, key.id, Serial::new(9)));
    let sent = frame(Mac([2, 0, 0, 0, 2, 2]), &headers, &[5; 4096]);
    hosts[0].send(Offload::NONE, &sent).unwrap();
    assert_eq!(received(&hosts[1]).len(), sent.len());
    // It has sent all copies of a batch when it ends.
    running.stop();
    let tables = running.tables.lock();
    let counted = |counter| tables.tables.counters.counted(counter);
    assert_eq!((counted(Counter::Copy), counted(Counter::CopyFailed)), (1, 1));
    let of_group = tables.tables.group_counters(key).unwrap().packets;
    assert_eq!(of_group.counted(Counter::Copy), 1);
    assert_eq!(of_group.counted(Counter::CopyFailed), 1);
}

/// While no packet comes that would wake the switch.
#[test]
fn the_sender_is_told_at_once_of_the_removal_of_the_member_that_was_waited_for() {
    if skipped() {
        return;
    }
    own_network();
    (0..3).for_each(veth);
    let mut running = Running::start(3);
    let hosts: Vec<Interface> =
        (0..3).map(|port| Interface::open(&format!("h{port}"), true).unwrap()).collect();
    let address = |host: u8| IpAddr::from([10, 0, 0, host]);
    let key = GroupKey { sender: address(1), id: 0x80_0001 };
    let branch = |member: u8| Branch {
        port: u32::from(member),
        mac: Mac([2, 0, 0, 0, 1, member]),
        target: address(member),
        rewriting: None,
    };
    let source = |member| Source { address: address(member), psn_offset: 0, ports: Vec::new() };
    let merging = Merging {
        psn_first: Serial::new(5),
        virtual_address: address(200),
        virtual_mac: None,
        members: vec![source(2), source(3)],
        all_notifications: false,
    };
    let branches = vec![branch(2), branch(3)];
    let replication = Replication { sender_qpn: 17, inputs: Vec::new(), branches };
    running.tables.lock().tables.insert(key, replication, Some(merging)).unwrap();
    let mut ack = Headers::new(
        IpHeader::new(address(2), address(1)).unwrap(),
        Bth::new(Opcode::Acknowledge, 17, Serial::new(9)),
    );
    ack.aeth = Some(Aeth { syndrome: Syndrome::Ack(31), msn: Serial::new(1) });
    hosts[1].send(Offload::NONE, &frame(Mac([2, 0, 0, 0, 0, 7]), &ack, &[])).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let suppressed =
        || running.tables.lock().tables.counters.counted(Counter::AnswerSuppressed) == 1;
    while !suppressed() {
        assert!(Instant::now() < deadline, "the answer is not merged");
        thread::yield_now();
    }
    assert!(running.tables.remove_member(key, address(3)));
    let told = received(&hosts[0]);
    let packet = Packet::parse(&told[14..]).unwrap();
    assert!(packet.is_intact());
    assert_eq!((packet.headers.ip.source, packet.headers.bth.psn), (address(200), Serial::new(9)));
    assert!(!running.tables.remove_member(key, address(2)), "the last stays");
    running.stop();
}

#[test]
fn a_port_that_is_not_there_is_named() {
    let wrong = UserspacePlane::open(["no-such-port"]).map(|_| ()).unwrap_err().to_string();
    // Without root the socket cannot be opened.
    assert!(wrong.starts_with("interface no-such-port: cannot "), "{wrong}");
}
