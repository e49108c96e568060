//! The limit on the rate of a transport: never exceeded, shared in turn, and not mistaken for
//! silence. Times are lower bounds only, so that no test depends on how fast the machine is.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use transport::{Completion, EndpointId, Region, Transport};
use transport_tcp::{RATE_MAX_LEAST, TcpSettings, TcpTransport};

use crate::common::*;

const RATE: u64 = 8_000_000;

/// What passes at once at that rate.
const BURST_BYTES: u64 = 128 << 10;

/// What one stream may move without tokens: the least that a call writes, and the rest of a segment;
/// or the least that it reads, which is two records.
const AHEAD_BYTES: u64 = 192 << 10;

fn limited(rate: u64) -> TcpSettings {
    patient().rate_max(Some(rate))
}

/// Two transports with endpoints that face each other.
struct Pair {
    left: TcpTransport,
    right: TcpTransport,
    endpoints: Vec<(EndpointId, EndpointId)>,
    completions: Vec<Completion>,
}

impl Pair {
    fn new(left: &TcpSettings, right: &TcpSettings) -> Self {
        let (left, right) = (transport(left), transport(right));
        Self { left, right, endpoints: Vec::new(), completions: Vec::new() }
    }

    fn connected(mut self, links: usize, streams: usize, protection: Protection) -> Self {
        for _ in 0..links {
            let (left, right) = protected_pair("127.0.0.1", streams, protection).unwrap();
            let ends = (self.left.open(left).unwrap(), self.right.open(right).unwrap());
            self.endpoints.push(ends);
        }
        self
    }

    /// Posts blocks from left to right on one of the links.
    fn post(&mut self, link: usize, source: &Region, targets: &[Region]) {
        let (from, to) = self.endpoints[link];
        for (token, target) in targets.iter().enumerate() {
            post_receive(&mut self.right, to, target, token as u64);
            post_send(&mut self.left, from, source, token as u64);
        }
    }

    /// Polls both transports until this many blocks were received in all.
    fn poll_until_received(&mut self, blocks: usize) {
        let begin = Instant::now();
        while self.received().count() < blocks {
            assert!(begin.elapsed() < 3 * PATIENCE, "in vain: {:?}", self.completions);
            self.left.poll(&mut self.completions, Duration::ZERO);
            self.right.poll(&mut self.completions, Duration::from_millis(1));
            assert!(!ended(&self.completions), "{:?}", self.completions);
        }
    }

    /// Polls both transports until one of them waits for its limit.
    fn poll_until_limited(&mut self) {
        let begin = Instant::now();
        while self.left.counters().limit_waits + self.right.counters().limit_waits == 0 {
            assert!(begin.elapsed() < PATIENCE, "nothing waits for the limit");
            self.left.poll(&mut self.completions, Duration::ZERO);
            self.right.poll(&mut self.completions, Duration::ZERO);
        }
    }

    fn received(&self) -> impl Iterator<Item = EndpointId> + '_ {
        self.completions.iter().filter_map(|completion| match completion {
            Completion::Received { endpoint, .. } => Some(*endpoint),
            _ => None,
        })
    }
}

fn regions(count: usize, bytes: usize) -> Vec<Region> {
    (0..count).map(|_| Region::zeroed(bytes)).collect()
}

/// Checks that this many bytes have taken as long as the limit asks for.
fn assert_limited(begin: Instant, bytes: usize, streams: usize) {
    let free_bytes = BURST_BYTES + AHEAD_BYTES * streams as u64;
    let least = Duration::from_secs_f64((bytes as u64 - free_bytes) as f64 / RATE as f64);
    assert!(begin.elapsed() >= least, "{bytes} bytes in {:?}", begin.elapsed());
}

#[test]
fn neither_direction_exceeds_its_limit_however_links_are_made() {
    let bytes = 3 << 20;
    let source = Region::from_vec(vec![5; bytes]);
    let sides = [(limited(RATE), patient()), (patient(), limited(RATE))];
    for (left, right) in &sides {
        for (streams, protection) in
            [(1, Protection::None), (3, Protection::None), (1, Protection::Encrypted)]
        {
            let mut pair = Pair::new(left, right).connected(1, streams, protection);
            let targets = regions(1, bytes);
            let begin = Instant::now();
            pair.post(0, &source, &targets);
            pair.poll_until_received(1);
            assert_limited(begin, bytes, streams);
            let waits = pair.left.counters().limit_waits + pair.right.counters().limit_waits;
            assert!(waits > 0, "nothing has waited for the limit");
            assert!(targets[0].read(0..bytes).unwrap().iter().all(|&byte| byte == 5));
        }
    }
}

/// Small blocks, which many calls could move without tokens for any of them.
#[test]
fn small_blocks_are_limited_as_well() {
    let (count, bytes) = (2_000, 1_000);
    let source = Region::from_vec(vec![5; bytes]);
    for (left, right) in [(limited(RATE), patient()), (patient(), limited(RATE))] {
        let mut pair = Pair::new(&left, &right).connected(1, 1, Protection::None);
        let targets = regions(count, bytes);
        let begin = Instant::now();
        pair.post(0, &source, &targets);
        pair.poll_until_received(count);
        assert_limited(begin, count * bytes, 1);
    }
}

/// Three links with equally much to send: together they are limited, and none waits until another
/// one has finished.
#[test]
fn endpoints_share_the_limit_in_turn() {
    const LINKS: usize = 3;
    let (count, bytes) = (24, 64 << 10);
    let source = Region::from_vec(vec![5; bytes]);
    for (left, right) in [(limited(RATE), patient()), (patient(), limited(RATE))] {
        let mut pair = Pair::new(&left, &right).connected(LINKS, 1, Protection::None);
        let targets: Vec<Vec<Region>> = (0..LINKS).map(|_| regions(count, bytes)).collect();
        let begin = Instant::now();
        for (link, targets) in targets.iter().enumerate() {
            pair.post(link, &source, targets);
        }
        pair.poll_until_received(LINKS * count);
        assert_limited(begin, LINKS * count * bytes, LINKS);
        // When the first link has all of its blocks, every other has at least a third of its own.
        let order: Vec<EndpointId> = pair.received().collect();
        let of = |order: &[EndpointId], link: usize| {
            order.iter().filter(|&&endpoint| endpoint == pair.endpoints[link].1).count()
        };
        let first_done = (1..=order.len())
            .find(|&end| (0..LINKS).any(|link| of(&order[..end], link) == count))
            .unwrap();
        let shares: Vec<usize> = (0..LINKS).map(|link| of(&order[..first_done], link)).collect();
        assert!(shares.iter().all(|&share| share >= count / 3), "{shares:?}");
    }
}

/// A block waits for tokens; a control word does not.
#[test]
fn control_words_do_not_wait() {
    for protection in [Protection::None, Protection::Encrypted] {
        let mut pair = Pair::new(&limited(RATE_MAX_LEAST), &patient()).connected(1, 1, protection);
        let (bytes, (from, to)) = (1 << 20, pair.endpoints[0]);
        let (source, targets) = (Region::zeroed(bytes), regions(1, bytes));
        pair.post(0, &source, &targets);
        pair.poll_until_limited();
        pair.left.write_control(from, b"now").unwrap();
        pair.left.poll(&mut pair.completions, Duration::ZERO);
        // The sender is not polled any more: what has not left by now never does.
        let completions = poll_until(&mut pair.right, |completions| !completions.is_empty());
        assert_eq!(completions, [Completion::Control { endpoint: to, word: b"now".into() }]);
    }
}

/// Four links take turns that come less often than the silence timeout allows bytes to be missing.
#[test]
fn a_link_that_waits_for_its_turn_is_not_silent() {
    const LINKS: usize = 4;
    let silence = Duration::from_millis(1_200);
    let bytes = 160 << 10;
    let source = Region::zeroed(bytes);
    let free = patient().silence_timeout(silence);
    let slow = free.clone().rate_max(Some(RATE_MAX_LEAST));
    for (left, right) in [(&slow, &free), (&free, &slow)] {
        let mut pair = Pair::new(left, right).connected(LINKS, 1, Protection::None);
        let targets: Vec<Vec<Region>> = (0..LINKS).map(|_| regions(1, bytes)).collect();
        let begin = Instant::now();
        for (link, targets) in targets.iter().enumerate() {
            pair.post(link, &source, targets);
        }
        // Fails if a link breaks.
        pair.poll_until_received(LINKS);
        assert!(begin.elapsed() > silence, "the test was too short to find silence");
    }
}

/// It neither spins nor sleeps longer than until the next tokens. Nothing else wakes it: the next
/// heartbeat is due in many minutes.
#[test]
fn a_transport_that_waits_for_tokens_sleeps_until_they_come() {
    let free = patient().silence_timeout(Duration::from_secs(3_600));
    let slow = free.clone().rate_max(Some(RATE_MAX_LEAST));
    for (left, right) in [(&slow, &free), (&free, &slow)] {
        let mut pair = Pair::new(left, right).connected(1, 1, Protection::None);
        let bytes = 320 << 10;
        let (source, targets) = (Region::zeroed(bytes), regions(1, bytes));
        pair.post(0, &source, &targets);
        pair.poll_until_limited();
        let Pair { mut left, mut right, .. } = pair;
        let is_left = left.counters().limit_waits > 0;
        let (limited, peer) =
            if is_left { (&mut left, &mut right) } else { (&mut right, &mut left) };
        let (before, begin, is_done) = (limited.counters(), Instant::now(), AtomicBool::new(false));
        let mut completions = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) && begin.elapsed() < PATIENCE {
                    peer.poll(&mut Vec::new(), Duration::from_millis(50));
                }
            });
            // One wait, until the whole block has moved.
            limited.poll(&mut completions, PATIENCE);
            is_done.store(true, Ordering::Relaxed);
        });
        assert_eq!(completions.len(), 1, "{completions:?}");
        let elapsed = begin.elapsed();
        assert!(elapsed < PATIENCE / 2, "{elapsed:?}");
        // A grant of tokens comes every quarter of a second; the peer's segments and windows also
        // end a wait.
        let waits = limited.counters().waits - before.waits;
        assert!(waits <= 100 + elapsed.as_millis() as u64 / 25, "{waits} waits in {elapsed:?}");
    }
}
