//! Blocks and words in both directions at once, cut in many ways, arrive as they were sent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use transport::{Completion, EndpointId, Region, Token, Transport};
use transport_tcp::{TcpLink, TcpSettings, TcpTransport};

use crate::common::*;

const WINDOW: usize = 3;

/// Pseudo-random numbers that depend only on the seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below
    }
}

/// One side of the transfer: what it sends, what it has received, what it still expects.
struct Side {
    transport: TcpTransport,
    endpoint: EndpointId,
    numbers: Numbers,
    outgoing: Vec<Vec<u8>>,
    sent: usize,
    next_send: usize,
    credits: usize,
    /// Slots of memory by token; completions of several streams may overtake each other.
    posted: VecDeque<(u64, Region)>,
    next_post: usize,
    received: Vec<Option<Vec<u8>>>,
    words: usize,
    next_word: usize,
}

impl Side {
    fn new(
        transport: TcpTransport,
        endpoint: EndpointId,
        seed: u64,
        blocks: usize,
        longest: usize,
    ) -> Self {
        let mut numbers = Numbers(seed);
        let outgoing = (0..blocks)
            .map(|index| {
                // Lengths near zero, near the maximum and between.
                let bytes = match index % 5 {
                    0 => numbers.next(3),
                    1 => longest - numbers.next(3),
                    _ => numbers.next(longest + 1),
                };
                (0..bytes).map(|_| numbers.next(256) as u8).collect()
            })
            .collect();
        Self {
            transport,
            endpoint,
            numbers,
            outgoing,
            sent: 0,
            next_send: 0,
            credits: 0,
            posted: VecDeque::new(),
            next_post: 0,
            received: vec![None; blocks],
            words: 0,
            next_word: 0,
        }
    }

    /// Returns word number `index`; its length depends on the number.
    fn word(index: usize) -> Vec<u8> {
        let mut word = vec![b'w'; 8 + index % 57];
        word[..8].copy_from_slice(&(index as u64).to_le_bytes());
        word
    }

    fn step(&mut self, longest: usize) {
        while self.posted.len() < WINDOW && self.next_post < self.received.len() {
            let region = Region::zeroed(longest);
            post_receive(&mut self.transport, self.endpoint, &region, self.next_post as u64);
            self.posted.push_back((self.next_post as u64, region));
            self.next_post += 1;
            // The word grants the credit.
            self.transport.write_control(self.endpoint, &Self::word(self.next_word)).unwrap();
            self.next_word += 1;
        }
        while self.credits > 0 {
            let region = Region::from_shared(self.outgoing[self.next_send].clone());
            let lease = region.read(0..region.len()).unwrap();
            let token = Token(self.next_send as u64);
            let immediate = self.next_send as u32 ^ 0xFFFF_0000;
            self.transport.post_send(self.endpoint, lease, immediate, token).unwrap();
            self.next_send += 1;
            self.credits -= 1;
        }
        let mut completions = Vec::new();
        let wait = Duration::from_millis(self.numbers.next(2) as u64);
        self.transport.poll(&mut completions, wait);
        for completion in completions {
            self.take(completion);
        }
    }

    fn take(&mut self, completion: Completion) {
        match completion {
            Completion::Sent { .. } => self.sent += 1,
            Completion::Control { word, .. } => {
                assert_eq!(word, Self::word(self.words));
                self.words += 1;
                self.credits += 1;
            }
            Completion::Received { token, bytes, immediate, .. } => {
                let at = self.posted.iter().position(|(posted, _)| *posted == token.0).unwrap();
                let (_, region) = self.posted.remove(at).unwrap();
                let mut block = region.try_into_vec().expect("the lease is handed back");
                block.truncate(bytes as usize);
                assert_eq!(immediate, token.0 as u32 ^ 0xFFFF_0000);
                assert!(self.received[token.0 as usize].replace(block).is_none());
            }
            other => panic!("{other:?}"),
        }
    }

    fn done(&self) -> bool {
        self.sent == self.outgoing.len() && self.received.iter().all(Option::is_some)
    }
}

fn converse(address: &str, settings: &TcpSettings, streams: usize, blocks: usize, longest: usize) {
    let (left, right) = link_pair(address, streams).unwrap();
    converse_over(left, right, settings, blocks, longest);
}

fn converse_over(
    left: TcpLink,
    right: TcpLink,
    settings: &TcpSettings,
    blocks: usize,
    longest: usize,
) {
    let side = |link, seed| {
        let mut transport = transport(settings);
        let endpoint = transport.open(link).unwrap();
        Side::new(transport, endpoint, seed, blocks, longest)
    };
    let (mut left, mut right) = (side(left, 1), side(right, 2));
    let deadline = Instant::now() + PATIENCE;
    while !(left.done() && right.done()) {
        assert!(Instant::now() < deadline, "stuck at {} and {}", left.sent, right.sent);
        left.step(longest);
        right.step(longest);
    }
    for (from, to) in [(&left, &right), (&right, &left)] {
        for (index, block) in from.outgoing.iter().enumerate() {
            assert!(to.received[index].as_ref() == Some(block), "block {index}");
        }
    }
}

fn segments(segment_bytes: usize) -> TcpSettings {
    TcpSettings::default().segment_bytes(segment_bytes)
}

#[test]
fn blocks_in_usual_segments() {
    for streams in [1, 2, 3, 8] {
        converse("127.0.0.1", &segments(64 << 10), streams, 40, 300_000);
    }
}

#[test]
fn blocks_in_segments_of_7_bytes() {
    for streams in [1, 3] {
        converse("127.0.0.1", &segments(7), streams, 30, 20_000);
    }
}

#[test]
fn blocks_in_segments_of_1_byte() {
    converse("127.0.0.1", &segments(1), 1, 20, 500);
}

#[test]
fn blocks_through_tiny_socket_buffers() {
    for (segment_bytes, streams) in [(7, 1), (1000, 3), (64 << 10, 1)] {
        // The system's minimum. The receive buffer keeps its length: with one below the
        // loopback's MTU, TCP waits for its timers.
        let settings = segments(segment_bytes).send_buffer_bytes(Some(1));
        converse("127.0.0.1", &settings, streams, 15, 20_000);
    }
}

#[test]
fn blocks_under_protection() {
    let protection = Protection::Encrypted;
    for (segment_bytes, streams) in [(64 << 10, 1), (1 << 20, 3), (7, 2)] {
        let (left, right) = protected_pair("127.0.0.1", streams, protection).unwrap();
        converse_over(left, right, &segments(segment_bytes), 30, 200_000);
    }
    let tiny = segments(1000).send_buffer_bytes(Some(1));
    let (left, right) = protected_pair("127.0.0.1", 1, protection).unwrap();
    converse_over(left, right, &tiny, 15, 20_000);
}

#[test]
fn blocks_over_ipv6() {
    if let Err(error) = stream_pair("::1") {
        eprintln!("SKIPPED blocks_over_ipv6: this machine has no IPv6 loopback: {error}");
        return;
    }
    converse("::1", &segments(1000), 2, 20, 50_000);
}

#[test]
fn options_that_the_system_refuses_are_named() {
    let settings = TcpSettings::default().congestion(Some("no-such".into()));
    let error = TcpTransport::new(settings).map(drop).unwrap_err().to_string();
    assert!(error.contains("TCP_CONGESTION"), "{error}");
    let settings = TcpSettings::default().congestion(Some("reno".into()));
    let (link, _) = link_pair("127.0.0.1", 1).unwrap();
    transport(&settings).open(link).unwrap();
}
