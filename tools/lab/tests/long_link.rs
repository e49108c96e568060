//! What a long link does to packets that cross it, counted. Skipped without root.
//!
//! Times are compared with the least that a delay and a rate allow, which holds on a machine of any speed.

use std::{
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use lab::{Distance, Lab, LabSettings, Link, LongLink, LongLinkCounts, Rate};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::common::{eventually, is_skipped};

const TIMEOUT: Duration = Duration::from_secs(60);
const PAYLOAD_BYTES: usize = 1_000;
/// UDP, IP and Ethernet headers.
const HEADER_BYTES: usize = 42;

/// No delay, no loss, and a queue in which everything fits.
const NEAR: Distance =
    Distance { delay: Duration::ZERO, queue: Duration::from_secs(100), loss: 0.0, seed: 3 };

/// Two racks of one host, and the long link between them.
struct Site {
    // Dropped first: it is in the lab.
    link: LongLink,
    lab: Lab,
}

impl Site {
    fn new(mbit: u64, distance: &Distance) -> Self {
        let link = Link::of_rate(Rate::from_mbit(1_000));
        let settings = LabSettings { racks: 2, uplink: Some(link), ..LabSettings::new(2, link) };
        let lab = Lab::create(&settings).expect("a lab");
        let long = link.at_rate(Rate::from_mbit(mbit));
        Self { link: LongLink::between_racks(&lab, long, distance).expect("a long link"), lab }
    }

    /// Runs a function on a host.
    fn on<T: Send>(&self, host: u32, run: impl FnOnce(&str) -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.lab.host_name(host));
        let address = self.lab.hosts()[host as usize].address.to_string();
        let run = || {
            let namespace = File::open(path).expect("the host is there");
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("as root");
            run(&address)
        };
        thread::scope(|scope| scope.spawn(run).join()).expect("no panic")
    }

    fn udp(&self, host: u32) -> UdpSocket {
        let socket = self.on(host, |address| UdpSocket::bind((address, 0)).expect("a socket"));
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        socket
    }

    /// Sends datagrams from the first host to the second. Answers what became of them, and how long sending took.
    fn send(&self, count: u32) -> (LongLinkCounts, Duration) {
        let (source, target) = (self.udp(0), self.udp(1));
        let to = target.local_addr().expect("an address");
        let start = Instant::now();
        let of = |all: LongLinkCounts| all.carried + all.lost + all.dropped;
        let counts = || self.link.counts()[0];
        // While its target's Ethernet address is unknown, a host keeps few packets.
        source.send_to(&[5; PAYLOAD_BYTES], to).expect("sent");
        eventually("the first packet is counted", || of(counts()) == 1);
        for _ in 1..count {
            source.send_to(&[5; PAYLOAD_BYTES], to).expect("sent");
        }
        eventually("all packets are counted", || of(counts()) == u64::from(count));
        (counts(), start.elapsed())
    }
}

#[test]
fn packets_are_lost_as_often_as_told() {
    if is_skipped() {
        return;
    }
    let site = Site::new(1_000, &Distance { loss: 0.1, ..NEAR });
    let (counts, _) = site.send(4_000);
    // Six standard deviations of 19.
    assert!((286..514).contains(&counts.lost), "{counts:?}");
    assert_eq!((counts.dropped, counts.refused), (0, 0));
    assert_eq!(counts.carried_bytes, counts.carried * (PAYLOAD_BYTES + HEADER_BYTES) as u64);
}

#[test]
fn without_loss_every_packet_arrives_and_none_before_its_delay() {
    if is_skipped() {
        return;
    }
    let delay = Duration::from_millis(20);
    let site = Site::new(1_000, &Distance { delay, ..NEAR });
    let (source, target) = (site.udp(0), site.udp(1));
    let to = target.local_addr().expect("an address");
    for number in 0..100_u8 {
        let start = Instant::now();
        source.send_to(&[number], to).expect("sent");
        let mut received = [0; 2];
        let (bytes, from) = target.recv_from(&mut received).expect("it arrives");
        assert_eq!((bytes, received[0]), (1, number));
        assert!(start.elapsed() >= delay, "{number}: {:?}", start.elapsed());
        target.send_to(&received[..bytes], from).expect("sent");
        source.recv(&mut received).expect("the answer arrives");
        assert!(start.elapsed() >= 2 * delay, "{number}: {:?}", start.elapsed());
    }
    // A packet is counted after it was sent on.
    eventually("all packets are counted", || site.link.counts().map(|it| it.carried) == [100, 100]);
    let [there, back] = site.link.counts();
    assert_eq!([there.lost, there.dropped, back.lost, back.dropped], [0; 4]);
}

#[test]
fn no_more_passes_than_the_rate_and_the_queue_hold() {
    if is_skipped() {
        return;
    }
    let queue = Duration::from_millis(50);
    let site = Site::new(1, &Distance { queue, ..NEAR });
    let (counts, time) = site.send(400);
    // One packet is being sent, and 2 ms of idle time are made up for.
    let sendable = time + queue + Duration::from_millis(2);
    let shaper_bits_per_s = 1e6 * 1514.0 / 1448.0;
    let packet_bits = 8.0 * (PAYLOAD_BYTES + HEADER_BYTES) as f64;
    let most = sendable.as_secs_f64() * shaper_bits_per_s / packet_bits + 1.0;
    assert!(counts.carried as f64 <= most, "{counts:?} in {time:?}: {most}");
    // The queue alone holds six.
    assert!(counts.carried >= 6, "{counts:?}");
    assert_eq!((counts.lost, counts.refused), (0, 0));
}

#[test]
fn what_tcp_hands_over_at_once_crosses_packet_by_packet() {
    if is_skipped() {
        return;
    }
    const BYTES: usize = 1_000_000;
    let site = Site::new(200, &NEAR);
    let listener = site.on(1, |address| TcpListener::bind((address, 0)).expect("listening"));
    let to = listener.local_addr().expect("an address");
    let mut source =
        site.on(0, |_| TcpStream::connect_timeout(&to, TIMEOUT).expect("they reach each other"));
    let mut target = listener.accept().expect("the call").0;
    target.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    thread::scope(|scope| {
        scope.spawn(move || source.write_all(&vec![7; BYTES]).expect("the target reads"));
        target.read_exact(&mut vec![0; BYTES]).expect("all arrives");
    });
    let [there, back] = site.link.counts();
    assert_eq!([there.merged, back.merged], [0, 0]);
    assert!(there.carried >= BYTES as u64 / 1_448, "{there:?}");
}
