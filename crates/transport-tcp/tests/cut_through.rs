//! What has arrived is sent on at once. There are no heartbeats that would end a wait by chance.

use std::time::{Duration, Instant};

use transport::{Completion, Region, Token, Transport};
use transport_tcp::{TcpSettings, TcpTransport};

use crate::common::*;

/// A round of service reads 64 KiB of each of this many streams.
const STREAMS: usize = 8;

fn member() -> TcpTransport {
    TcpTransport::new(TcpSettings::default().silence_timeout(Duration::from_secs(3_600))).unwrap()
}

/// The rest of a block comes in the same round of service in which the part before it is sent on.
#[test]
fn the_rest_of_a_block_is_sent_on_though_another_round_has_read_it() {
    const BYTES: usize = 150 << 10;
    let [mut first, mut middle, mut last] = [member(), member(), member()];
    let (one, other) = link_pair("127.0.0.1", STREAMS).unwrap();
    let (to_middle, from_first) = (first.open(one).unwrap(), middle.open(other).unwrap());
    let (one, other) = link_pair("127.0.0.1", STREAMS).unwrap();
    let (to_last, from_middle) = (middle.open(one).unwrap(), last.open(other).unwrap());
    let [through, into] = [0, 1].map(|_| Region::zeroed(BYTES));
    let mut lease = through.write(0..BYTES).unwrap();
    let arriving = lease.arriving();
    middle.post_receive(from_first, lease, Token(1)).unwrap();
    last.post_receive(from_middle, into.write(0..BYTES).unwrap(), Token(2)).unwrap();
    let source = Region::from_vec(vec![7; BYTES]);
    first.post_send(to_middle, source.read(0..BYTES).unwrap(), 0, Token(3)).unwrap();

    let mut seen = Vec::new();
    let until = Instant::now() + PATIENCE;
    let mut poll = |transport: &mut TcpTransport, is_it: fn(&Completion) -> bool| {
        while !seen.iter().any(is_it) {
            assert!(Instant::now() < until, "{seen:?}");
            transport.poll(&mut seen, Duration::from_millis(1));
        }
    };
    // All of it waits at the middle, which then reads one part.
    poll(&mut first, |it| matches!(it, Completion::Sent { token: Token(3), .. }));
    poll(&mut middle, |it| matches!(it, Completion::Arriving { token: Token(1), .. }));
    let sends = middle.cut_through().unwrap();
    sends.post_cut_through_send(to_last, arriving.read(BYTES).unwrap(), 0, Token(4)).unwrap();
    poll(&mut middle, |it| matches!(it, Completion::Sent { token: Token(4), .. }));
    poll(&mut last, |it| matches!(it, Completion::Received { token: Token(2), .. }));
    assert!(into.read(0..BYTES).unwrap().iter().all(|&byte| byte == 7));
}

/// A block comes by one thread of the middle, and goes on by another, which nothing but the first wakes.
#[test]
fn what_arrives_by_one_thread_is_sent_on_by_another() {
    const BYTES: usize = 3 << 20;
    let threaded = || {
        let settings = TcpSettings::default().silence_timeout(Duration::from_secs(3_600));
        TcpTransport::new(settings.threads(Some(2))).unwrap()
    };
    let [mut first, mut middle, mut last] = [threaded(), threaded(), threaded()];
    let (one, other) = link_pair("127.0.0.1", 2).unwrap();
    let (to_middle, from_first) = (first.open(one).unwrap(), middle.open(other).unwrap());
    let (one, other) = link_pair("127.0.0.1", 2).unwrap();
    let (to_last, from_middle) = (middle.open(one).unwrap(), last.open(other).unwrap());
    let [through, into] = [0, 1].map(|_| Region::zeroed(BYTES));
    let empty = Region::zeroed(0);
    // An empty block takes the first stream to the last member, so that the next one takes the second.
    last.post_receive(from_middle, empty.write(0..0).unwrap(), Token(1)).unwrap();
    middle.post_send(to_last, empty.read(0..0).unwrap(), 0, Token(2)).unwrap();
    let mut lease = through.write(0..BYTES).unwrap();
    let arriving = lease.arriving();
    middle.post_receive(from_first, lease, Token(3)).unwrap();
    let mut into_last = into.write(0..BYTES).unwrap();
    let _followed = into_last.arriving();
    last.post_receive(from_middle, into_last, Token(4)).unwrap();
    let source = Region::from_vec(vec![7; BYTES]);
    first.post_send(to_middle, source.read(0..BYTES).unwrap(), 0, Token(5)).unwrap();

    let (until, mut seen) = (Instant::now() + PATIENCE, Vec::new());
    let mut poll = |transports: &mut [&mut TcpTransport], is_it: fn(&Completion) -> bool| {
        while !seen.iter().any(is_it) {
            assert!(Instant::now() < until, "{seen:?}");
            for transport in &mut *transports {
                transport.poll(&mut seen, Duration::from_millis(1));
            }
        }
    };
    let arrives_at_middle = |it: &_| matches!(it, Completion::Arriving { token: Token(3), .. });
    poll(&mut [&mut first, &mut middle], arrives_at_middle);
    let sends = middle.cut_through().unwrap();
    sends.post_cut_through_send(to_last, arriving.read(BYTES).unwrap(), 0, Token(6)).unwrap();
    // The socket to the middle is full, and what is behind it waits at the first member, which is not polled.
    let arrives_at_last = |it: &_| matches!(it, Completion::Arriving { token: Token(4), .. });
    poll(&mut [&mut middle, &mut last], arrives_at_last);
    let comes_to_last = |it: &_| matches!(it, Completion::Received { token: Token(4), .. });
    poll(&mut [&mut first, &mut middle, &mut last], comes_to_last);
    assert!(into.read(0..BYTES).unwrap().iter().all(|&byte| byte == 7));
}
