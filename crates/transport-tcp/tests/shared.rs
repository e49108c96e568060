//! Endpoints that share a connection.

use std::{
    array, iter,
    time::{Duration, Instant},
};

use transport::{Cause, Completion, EndpointId, PostError, Region, Token, Transport};
use transport_tcp::{
    ConnectionId, MESSAGE_BYTES_MAX, SharedConnections, SharedEvent, TcpLink, TcpTransport,
};

use crate::common::*;

/// Protected streams carry records, others frames.
const KINDS: [Protection; 2] = [Protection::None, Protection::Encrypted];

const SHORT: Duration = Duration::from_millis(300);
const PATTERN_BYTES: usize = 251;

/// Two transports with a shared connection.
struct Pair {
    transports: [TcpTransport; 2],
    connections: [ConnectionId; 2],
    completions: [Vec<Completion>; 2],
    events: [Vec<SharedEvent>; 2],
}

impl Pair {
    /// Pairs whose connections have this many streams, protected and not, and one through shared memory.
    fn each(streams: usize) -> impl Iterator<Item = Self> {
        let of_kinds = KINDS.into_iter().map(move |protection| Self::new(streams, protection));
        of_kinds.chain(iter::once_with(|| Self::of(memory_pair(1 << 16).unwrap())))
    }

    fn new(streams: usize, protection: Protection) -> Self {
        Self::of(protected_pair("127.0.0.1", streams, protection).unwrap())
    }

    fn of(links: (TcpLink, TcpLink)) -> Self {
        let (one, other) = links;
        let settings = patient().drain_timeout(Duration::from_secs(2)).direct_copies(false);
        let mut transports = [transport(&settings), transport(&settings)];
        let connections = [transports[0].share(one).unwrap(), transports[1].share(other).unwrap()];
        Self {
            transports,
            connections,
            completions: [const { Vec::new() }; 2],
            events: [const { Vec::new() }; 2],
        }
    }

    fn reserve(&mut self, channel: u32) -> [TcpLink; 2] {
        let [one, other] = &mut self.transports;
        let links = [
            one.reserve(self.connections[0], channel),
            other.reserve(self.connections[1], channel),
        ];
        links.map(Result::unwrap)
    }

    fn open(&mut self, channel: u32) -> [EndpointId; 2] {
        let [one, other] = self.reserve(channel);
        [self.transports[0].open(one).unwrap(), self.transports[1].open(other).unwrap()]
    }

    fn poll(&mut self) {
        for at in 0..2 {
            let wait = Duration::from_millis(at as u64);
            self.transports[at].poll(&mut self.completions[at], wait);
            self.events[at].extend(self.transports[at].take_shared_events());
        }
    }

    #[track_caller]
    fn poll_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < PATIENCE, "{:?}, {:?}", self.completions, self.events);
            self.poll();
        }
    }

    fn send(&mut self, endpoints: [EndpointId; 2], bytes: usize, token: u64) -> Region {
        let mut contents = pattern(token).repeat(bytes.div_ceil(PATTERN_BYTES));
        contents.truncate(bytes);
        let (from, into) = (Region::from_vec(contents), Region::zeroed(bytes));
        post_receive(&mut self.transports[1], endpoints[1], &into, token);
        post_send(&mut self.transports[0], endpoints[0], &from, token);
        into
    }

    fn has(&self, at: usize, wanted: &Completion) -> bool {
        self.completions[at].contains(wanted)
    }
}

fn received(endpoint: EndpointId, token: u64, bytes: usize) -> Completion {
    Completion::Received { endpoint, token: Token(token), bytes: bytes as u64, immediate: 0 }
}

fn word(endpoint: EndpointId, word: &[u8]) -> Completion {
    Completion::Control { endpoint, word: word.into() }
}

/// What contents repeat: not byte by byte, during which nobody polls and a connection grows silent.
fn pattern(token: u64) -> [u8; PATTERN_BYTES] {
    array::from_fn(|at| at as u8 ^ token as u8)
}

#[track_caller]
fn assert_contents(into: &Region, token: u64) {
    let (lease, pattern) = (into.read(0..into.len()).unwrap(), pattern(token));
    assert!(lease.chunks(PATTERN_BYTES).all(|part| *part == pattern[..part.len()]));
}

#[test]
fn blocks_of_many_channels_arrive_where_they_belong() {
    for streams in [1, 3] {
        for mut pair in Pair::each(streams) {
            let channels: Vec<[EndpointId; 2]> = (1..20).map(|number| pair.open(number)).collect();
            let mut sent = Vec::new();
            for round in 0..4 {
                for (index, &endpoints) in channels.iter().enumerate() {
                    let (bytes, token) =
                        (1 + index * 37_001 * (round + 1), (round * 100 + index) as u64);
                    sent.push((endpoints[1], token, bytes, pair.send(endpoints, bytes, token)));
                }
            }
            pair.poll_until(|pair| pair.completions[1].len() >= sent.len());
            for (endpoint, token, bytes, into) in &sent {
                assert!(pair.has(1, &received(*endpoint, *token, *bytes)), "{endpoint:?} {token}");
                assert_contents(into, *token);
            }
            // Blocks of one channel come in order on each stream.
            for &[_, endpoint] in channels.iter().filter(|_| streams == 1) {
                let of_it = pair.completions[1].iter().filter_map(|completion| match completion {
                    Completion::Received { endpoint: at, token, .. } if *at == endpoint => {
                        Some(token.0)
                    }
                    _ => None,
                });
                assert!(of_it.is_sorted());
            }
        }
    }
}

#[test]
fn a_channel_with_much_to_send_starves_no_other() {
    for mut pair in Pair::each(1) {
        let (busy, other) = (pair.open(1), pair.open(2));
        for token in 0..40 {
            pair.send(busy, 4 << 20, token);
        }
        pair.poll_until(|pair| !pair.completions[1].is_empty());
        pair.send(other, 300_000, 100);
        pair.poll_until(|pair| pair.has(1, &received(other[1], 100, 300_000)));
        let busy_done = pair.completions[1].iter().filter(|it| it.endpoint() == busy[1]).count();
        assert!(busy_done < 10, "{busy_done} long blocks came first");
    }
}

#[test]
fn words_for_a_channel_that_is_not_open_wait_for_it() {
    for mut pair in Pair::each(2) {
        let [one, other] = pair.reserve(5);
        let early = pair.transports[0].open(one).unwrap();
        pair.transports[0].write_control(early, b"early").unwrap();
        pair.transports[0].write_message(pair.connections[0], b"message").unwrap();
        pair.poll_until(|pair| !pair.events[1].is_empty());
        assert!(pair.completions[1].is_empty(), "{:?}", pair.completions);
        let late = pair.transports[1].open(other).unwrap();
        pair.poll_until(|pair| !pair.completions[1].is_empty());
        assert_eq!(pair.completions[1], [word(late, b"early")]);
    }
}

/// A peer cannot make this end keep any number of words for a group that is not there yet.
#[test]
fn too_many_words_for_a_channel_that_is_not_open_end_it() {
    for mut pair in Pair::each(1) {
        let neighbour = pair.open(4);
        let [one, other] = pair.reserve(5);
        let early = pair.transports[0].open(one).unwrap();
        for _ in 0..3_000 {
            pair.transports[0].write_control(early, b"again").unwrap();
        }
        let ended = Completion::Broken { endpoint: early, cause: Cause::ClosedByPeer };
        pair.poll_until(|pair| pair.has(0, &ended));
        let refused = pair.transports[1].open(other);
        assert!(matches!(refused, Err(PostError::EndpointGone(_))), "{refused:?}");
        pair.transports[0].write_control(neighbour[0], b"goes on").unwrap();
        pair.poll_until(|pair| pair.has(1, &word(neighbour[1], b"goes on")));
        assert_eq!(pair.completions[1].len(), 1, "{:?}", pair.completions[1]);
    }
}

#[test]
fn a_channel_whose_peer_breaks_the_protocol_ends_alone() {
    for streams in [1, 2] {
        for mut pair in Pair::each(streams) {
            let (bad, good) = (pair.open(1), pair.open(2));
            let into = pair.send(good, 3_000_000, 7);
            // Nothing was posted for it.
            let unwanted = Region::from_vec(vec![1; 200_000]);
            post_send(&mut pair.transports[0], bad[0], &unwanted, 8);
            pair.poll_until(|pair| {
                let is_over = |at: usize| {
                    let end = |it: &Completion| matches!(it, Completion::Broken { .. });
                    pair.completions[at].iter().any(|it| it.endpoint() == bad[at] && end(it))
                };
                is_over(0) && is_over(1) && pair.has(1, &received(good[1], 7, 3_000_000))
            });
            assert_contents(&into, 7);
            let cause = |at: usize| {
                pair.completions[at].iter().find_map(|it| match it {
                    Completion::Broken { cause, .. } => Some(cause.clone()),
                    _ => None,
                })
            };
            assert_eq!(cause(0), Some(Cause::ClosedByPeer));
            let words = "a block for which no memory was posted".to_owned();
            assert_eq!(cause(1), Some(Cause::Protocol(words)));
            assert!(unwanted.try_into_vec().is_ok(), "a lease is out");
            // The connection and its other channels go on.
            let into = pair.send(good, 100, 9);
            pair.poll_until(|pair| pair.has(1, &received(good[1], 9, 100)));
            assert_contents(&into, 9);
            let again = pair.open(3);
            pair.send(again, 100, 10);
            pair.poll_until(|pair| pair.has(1, &received(again[1], 10, 100)));
        }
    }
}

#[test]
fn a_channel_closes_in_order_while_others_go_on() {
    for mut pair in Pair::each(2) {
        let (first, other) = (pair.open(1), pair.open(2));
        let begun = pair.send(first, 1000, 1);
        pair.poll_until(|pair| pair.has(1, &received(first[1], 1, 1000)));
        assert_contents(&begun, 1);
        let into = pair.send(other, 5_000_000, 2);
        pair.transports[0].write_control(first[0], b"last").unwrap();
        pair.transports[0].close(first[0]);
        pair.poll_until(|pair| {
            pair.has(1, &Completion::Broken { endpoint: first[1], cause: Cause::ClosedByPeer })
                && pair.has(0, &Completion::Closed { endpoint: first[0] })
                && pair.has(1, &received(other[1], 2, 5_000_000))
        });
        assert!(pair.has(1, &word(first[1], b"last")));
        assert_contents(&into, 2);
        let gone = pair.transports[1].write_control(first[1], b"x");
        assert!(matches!(gone, Err(PostError::EndpointGone(_))), "{gone:?}");
        // Its number is not free.
        assert!(pair.transports[0].reserve(pair.connections[0], 2).is_err());
    }
}

#[test]
fn a_reserved_channel_that_is_given_back_ends_for_its_peer() {
    for mut pair in Pair::each(1) {
        let [one, other] = pair.reserve(1);
        let endpoint = pair.transports[0].open(one).unwrap();
        pair.transports[1].release(other);
        let ended = Completion::Broken { endpoint, cause: Cause::ClosedByPeer };
        pair.poll_until(|pair| pair.has(0, &ended));
        pair.poll();
        assert_eq!(pair.completions[1], []);
    }
}

#[test]
fn messages_arrive_whole_and_in_order() {
    for mut pair in Pair::each(2) {
        let (at, to) = (pair.connections[0], pair.connections[1]);
        let messages = [vec![1; 1], vec![2; 64], vec![3; 65], vec![4; MESSAGE_BYTES_MAX]];
        for message in &messages {
            pair.transports[0].write_message(at, message).unwrap();
        }
        for wrong in [0, MESSAGE_BYTES_MAX + 1] {
            assert!(pair.transports[0].write_message(at, &vec![0; wrong]).is_err());
        }
        pair.poll_until(|pair| pair.events[1].len() == 4);
        let wanted = messages.map(|message| SharedEvent::Message { connection: to, message });
        assert_eq!(pair.events[1], wanted);
    }
}

#[test]
fn a_lost_connection_ends_all_of_its_channels() {
    for mut pair in Pair::each(1) {
        let (open, closing) = (pair.open(1), pair.open(2));
        let [_, reserved] = pair.reserve(3);
        pair.transports[1].close(closing[1]);
        let Pair { transports: [one, mut other], connections, .. } = pair;
        drop(one);
        let (mut completions, mut events, begin) = (Vec::new(), Vec::new(), Instant::now());
        while events.is_empty() {
            assert!(begin.elapsed() < PATIENCE, "{completions:?}");
            other.poll(&mut completions, Duration::from_millis(1));
            events = other.take_shared_events();
        }
        assert!(other.reserve(connections[1], 9).is_err());
        assert!(
            matches!(&events[..], [SharedEvent::Ended { connection, cause: Some(Cause::Lost(_)) }] if *connection == connections[1]),
            "{events:?}"
        );
        let of = |endpoint: EndpointId| {
            completions.iter().filter(|it| it.endpoint() == endpoint).cloned().collect::<Vec<_>>()
        };
        assert!(matches!(of(open[1])[..], [Completion::Broken { cause: Cause::Lost(_), .. }]));
        assert_eq!(of(closing[1]), [Completion::Closed { endpoint: closing[1] }]);
        // A reserved channel learns of its end when it is opened.
        let late = other.open(reserved).unwrap();
        let mut told = Vec::new();
        other.poll(&mut told, Duration::ZERO);
        assert!(
            matches!(told[..], [Completion::Broken { endpoint, .. }] if endpoint == late),
            "{told:?}"
        );
    }
}

/// Its channels end as those of a peer that breaks any other protocol.
#[test]
fn a_connection_is_refused_whose_messages_make_no_sense() {
    for mut pair in Pair::each(2) {
        let open = pair.open(1);
        let refused = pair.connections[1];
        pair.transports[1].refuse(refused, "a message without sense");
        pair.transports[1].refuse(refused, "again, which changes nothing");
        pair.poll_until(|pair| pair.events.iter().all(|events| !events.is_empty()));
        let cause = Cause::Protocol("a message without sense".into());
        let ended = SharedEvent::Ended { connection: refused, cause: Some(cause.clone()) };
        assert_eq!(pair.events[1], [ended]);
        assert!(pair.has(1, &Completion::Broken { endpoint: open[1], cause }));
        let at_peer = &pair.events[0];
        assert!(matches!(at_peer[..], [SharedEvent::Ended { cause: Some(Cause::Lost(_)), .. }]));
    }
}

/// It stays while it has endpoints, however little they do.
#[test]
fn a_connection_without_endpoints_ends_after_a_while() {
    let (one, other) = protected_pair("127.0.0.1", 2, Protection::Encrypted).unwrap();
    let settings = patient();
    let mut idle = transport(&settings.clone().idle_timeout(SHORT));
    let mut peer = transport(&settings);
    let (own, theirs) = (idle.share(one).unwrap(), peer.share(other).unwrap());
    let (mine, of_peer) = (idle.reserve(own, 1).unwrap(), peer.reserve(theirs, 1).unwrap());
    let (mine, of_peer) = (idle.open(mine).unwrap(), peer.open(of_peer).unwrap());
    let (begin, mut completions) = (Instant::now(), Vec::new());
    while begin.elapsed() < 5 * SHORT {
        idle.poll(&mut completions, Duration::from_millis(1));
        peer.poll(&mut completions, Duration::from_millis(1));
    }
    assert_eq!((completions.len(), idle.has_shared_events()), (0, false), "{completions:?}");
    idle.close(mine);
    peer.close(of_peer);
    let begin = Instant::now();
    while !idle.has_shared_events() || !peer.has_shared_events() {
        assert!(begin.elapsed() < PATIENCE, "it stays");
        idle.poll(&mut completions, Duration::from_millis(1));
        peer.poll(&mut completions, Duration::from_millis(1));
    }
    assert!(begin.elapsed() >= SHORT, "{:?}", begin.elapsed());
    let ended = |connection, cause| vec![SharedEvent::Ended { connection, cause }];
    assert_eq!(idle.take_shared_events(), ended(own, None));
    assert!(matches!(
        peer.take_shared_events()[..],
        [SharedEvent::Ended { connection, cause: Some(_) }] if connection == theirs
    ));
}

/// A peer that asks for ever new channels, each of which is given back here, and never says bye for any.
#[test]
fn channels_that_wait_for_byes_are_bounded() {
    const BOUND: u32 = 16_384;
    let (ours, mut raw) = stream_pair("127.0.0.1").unwrap();
    let settings = patient().silence_timeout(Duration::from_secs(600)).direct_copies(false);
    let mut transport = transport(&settings);
    let connection = transport.share(link(vec![ours], Protection::Encrypted, true)).unwrap();
    std::thread::spawn(move || std::io::copy(&mut raw, &mut std::io::sink()));
    let mut completions = Vec::new();
    for channel in 1..=BOUND {
        let link = transport.reserve(connection, channel).unwrap();
        transport.release(link);
        transport.poll(&mut completions, Duration::ZERO);
    }
    assert!(!transport.has_shared_events(), "{:?}", transport.take_shared_events());
    let link = transport.reserve(connection, BOUND + 1).unwrap();
    transport.release(link);
    let begin = Instant::now();
    while !transport.has_shared_events() {
        assert!(begin.elapsed() < PATIENCE, "more channels are kept");
        transport.poll(&mut completions, Duration::from_millis(1));
    }
    let cause = "16385 channels have ended here without its bye";
    let cause = Some(Cause::Protocol(cause.to_owned()));
    assert_eq!(transport.take_shared_events(), [SharedEvent::Ended { connection, cause }]);
    assert_eq!(completions, []);
}

/// A channel that is given back and whose peer answers does not count any longer.
#[test]
fn channels_that_have_ended_at_both_ends_leave_nothing() {
    for mut pair in Pair::each(2) {
        for channel in 1..=200 {
            let [one, other] = pair.reserve(channel);
            let endpoint = pair.transports[0].open(one).unwrap();
            pair.transports[1].release(other);
            let ended = Completion::Broken { endpoint, cause: Cause::ClosedByPeer };
            pair.poll_until(|pair| pair.has(0, &ended));
        }
        // The last ones may be on their way.
        let one = pair.open(201);
        pair.send(one, 100, 1);
        pair.poll_until(|pair| pair.has(1, &received(one[1], 1, 100)));
        let again = pair.transports[1].reserve(pair.connections[1], 3);
        assert!(again.is_ok(), "its number is kept: {again:?}");
    }
}
