//! A sender whose socket refuses packets because the link is slower. Needs root.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use endpoint::{Endpoint, Event, Peer};
use lab::Network;
use roce::rc::{Kind, RequesterConfig, Status, Work};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

const BYTES: u32 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

fn address(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 3, 1, host).into()
}

/// In a network of its own, with a link `h<host>` that another network's thread has made.
fn open(network: &Network, host: u8) -> Endpoint {
    network.run(move || {
        let link = format!("h{host}");
        lab::ip(&format!("addr add {}/24 dev {link}", address(host))).unwrap();
        lab::quiet(&link, 1500).unwrap();
        Endpoint::open(&link, address(host)).unwrap()
    })
}

/// All threads and timers of the test on one processor, or packets would overtake each other.
fn on_one_processor() {
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    sched_setaffinity(None, &one).unwrap();
}

/// Packets that the socket refuses are sent later, once and in order: the receiver misses none, and none counts as a
/// retransmission.
#[test]
fn what_the_socket_refuses_is_sent_later() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root (network namespaces)");
        return;
    }
    on_one_processor();
    let networks = [Network::new().unwrap(), Network::new().unwrap()];
    let other = networks[1].thread();
    networks[0].run(move || {
        lab::ip(&format!("link add h1 type veth peer name h2 netns {other}")).unwrap();
        let shape = "qdisc add dev h1 root tbf rate 100mbit burst 16kb limit 4mb";
        let tc = std::process::Command::new("tc").args(shape.split(' ')).status();
        assert!(tc.unwrap().success());
    });
    let (mut sender, mut receiver) = (open(&networks[0], 1), open(&networks[1], 2));
    let config = RequesterConfig {
        window_packets: 4096,
        ack_packets: 64,
        timeout_ns: PATIENCE.as_nanos() as u64,
        ..RequesterConfig::default()
    };
    let numbers = [sender.draw_number(), receiver.draw_number()];
    let peer = |host, qpn| Peer { address: address(host), qpn, next_hop: None };
    sender.connect(numbers[0], peer(2, numbers[1]), config, 7, 7);
    receiver.connect(numbers[1], peer(1, numbers[0]), config, 7, 7);
    receiver.reserve(16 << 20).unwrap();
    receiver.receive(numbers[1], 0, vec![0; BYTES as usize]).unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
    let work = Work { id: 5, kind: Kind::Send, bytes: BYTES, immediate: Some(9) };
    sender.send(numbers[0], work, sent.clone()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let (mut arrived, mut completed) = (None, None);
    while arrived.is_none() || completed.is_none() {
        assert!(Instant::now() < deadline, "sender {:?}", sender.counts());
        sender.progress(Duration::ZERO).unwrap();
        receiver.progress(Duration::ZERO).unwrap();
        arrived = arrived.or_else(|| receiver.completed());
        completed = completed.or_else(|| sender.completed());
    }
    let done = Event::Sent { qpn: numbers[0], id: 5, status: Status::Done };
    assert_eq!(completed, Some(done));
    let Some(Event::Arrived { memory, .. }) = arrived else { panic!("{arrived:?}") };
    assert!(memory == sent);
    let counts = sender.counts();
    assert_eq!((counts.requests_sent, counts.requests_repeated), (u64::from(BYTES / 1024), 0));
}
