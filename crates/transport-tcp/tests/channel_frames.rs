//! Frames of channels on unprotected streams, from a peer that makes them by hand.

use std::{
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

use transport::{
    Cause, Completion, EndpointId, OneSidedWrites, PeerMemory, Region, Token, Transport,
};
use transport_tcp::{ConnectionId, SharedConnections, SharedEvent, TcpTransport};

use crate::common::*;

const CHANNEL: u8 = 11;
const MESSAGE: u8 = 12;

/// A transport with two channels, 1 and 2, on a connection whose other end is a raw socket.
struct Faced {
    transport: TcpTransport,
    connection: ConnectionId,
    endpoints: [EndpointId; 2],
    raw: TcpStream,
    completions: Vec<Completion>,
    events: Vec<SharedEvent>,
}

impl Faced {
    fn new() -> Self {
        let (ours, raw) = stream_pair("127.0.0.1").unwrap();
        raw.set_nodelay(true).unwrap();
        let mut transport = transport(&patient().direct_copies(false));
        let connection = transport.share(ours.into()).unwrap();
        let endpoints = [1, 2].map(|channel| {
            let link = transport.reserve(connection, channel).unwrap();
            transport.open(link).unwrap()
        });
        let (completions, events) = (Vec::new(), Vec::new());
        Self { transport, connection, endpoints, raw, completions, events }
    }

    fn poll(&mut self) {
        self.transport.poll(&mut self.completions, Duration::from_millis(1));
        self.events.extend(self.transport.take_shared_events());
    }

    #[track_caller]
    fn poll_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < PATIENCE, "{:?}, {:?}", self.completions, self.events);
            self.poll();
        }
    }

    fn count(&self, is_counted: impl Fn(&Completion) -> bool) -> usize {
        self.completions.iter().filter(|it| is_counted(it)).count()
    }

    /// Writes these bytes in pieces, each of which is read before the next one comes.
    fn write(&mut self, bytes: &[u8], piece_bytes: usize) {
        for piece in bytes.chunks(piece_bytes) {
            // The transport may have closed the connection already.
            let _ = self.raw.write_all(piece);
            self.poll();
        }
    }

    /// Checks that these bytes end the connection, and with it both endpoints, by this cause.
    #[track_caller]
    fn assert_ends(mut self, bytes: &[u8], words: &str) {
        self.write(bytes, bytes.len());
        self.poll_until(|it| !it.events.is_empty());
        let [SharedEvent::Ended { connection, cause: Some(Cause::Protocol(text)) }] =
            &self.events[..]
        else {
            panic!("{:?}", self.events);
        };
        assert!(*connection == self.connection && text.contains(words), "{text:?}, not {words:?}");
        // The first may have ended before by its bye.
        let cause = |it: &Completion| match it {
            Completion::Broken { endpoint, cause } => Some((*endpoint, cause.clone())),
            _ => None,
        };
        let mut causes: Vec<_> = self.completions.iter().filter_map(cause).collect();
        causes.sort_by_key(|(endpoint, _)| *endpoint != self.endpoints[0]);
        assert_eq!(causes.len(), 2, "{causes:?}");
        assert!(matches!(causes[0], (_, Cause::Protocol(_) | Cause::ClosedByPeer)), "{causes:?}");
        assert_eq!(causes[1], (self.endpoints[1], Cause::Protocol(text.clone())));
    }
}

fn channel(number: u32) -> Vec<u8> {
    frame(CHANNEL, 0, 0, 0, number)
}

fn data(block: u32, is_last: bool, payload: &[u8]) -> Vec<u8> {
    let flags = if is_last { LAST } else { 0 };
    [frame(DATA, flags, payload.len() as u32, 0, block), payload.to_vec()].concat()
}

fn word(word: &[u8]) -> Vec<u8> {
    [frame(CONTROL, 0, word.len() as u32, 0, 0), word.to_vec()].concat()
}

/// Payload that looks like frames: a channel is selected by none of it.
fn misleading(segment: u32) -> Vec<u8> {
    let frames = [channel(2), word(b"wrong"), frame(BYE, 0, 0, 0, 0), channel(9)].concat();
    [frames, vec![segment as u8; 90_000]].concat()
}

#[test]
fn blocks_of_two_channels_come_segment_by_segment() {
    for piece_bytes in [1_000_000, 65_536, 7_001] {
        let mut it = Faced::new();
        let segments: Vec<Vec<u8>> = (0..6).map(misleading).collect();
        let bytes = segments.concat();
        let into = [Region::zeroed(bytes.len()), Region::zeroed(bytes.len())];
        // The memory of one is followed, so that lengths of its segments are guessed.
        let mut followed = Vec::new();
        for (at, endpoint) in it.endpoints.into_iter().enumerate() {
            let mut lease = into[at].write(0..bytes.len()).unwrap();
            followed.extend((at == 0).then(|| lease.arriving()));
            it.transport.post_receive(endpoint, lease, Token(at as u64)).unwrap();
        }
        let mut sent = channel(1);
        for (at, payload) in segments.iter().enumerate() {
            // Twice the same channel now and then.
            let order = if at % 3 == 0 { [1, 2] } else { [2, 1] };
            for number in order {
                sent.extend(channel(number));
                sent.extend(data(0, at + 1 == segments.len(), payload));
                if at == 4 {
                    sent.extend(word(b"between"));
                }
            }
        }
        it.write(&sent, piece_bytes);
        it.poll_until(|it| it.count(|done| matches!(done, Completion::Received { .. })) == 2);
        assert_eq!(it.count(|done| matches!(done, Completion::Control { .. })), 2);
        drop(followed);
        for region in into {
            assert!(region.try_into_vec().unwrap() == bytes, "in pieces of {piece_bytes}");
        }
        assert_eq!(it.events, []);
    }
}

#[test]
fn long_writes_of_one_channel_come_between_blocks_of_another() {
    let mut it = Faced::new();
    let memory = PeerMemory::zeroed(200_000);
    it.transport.expose(it.endpoints[1], 5, memory.clone()).unwrap();
    let into = Region::zeroed(150_000);
    post_receive(&mut it.transport, it.endpoints[0], &into, 1);
    let written = misleading(7);
    let place = [5_000_u64.to_le_bytes(), (written.len() as u64).to_le_bytes()].concat();
    let write = [frame(WRITE, 0, written.len() as u32, 3, 5), place, written.clone()].concat();
    let blocks = [data(0, false, &vec![1; 70_000]), data(0, true, &vec![2; 80_000])];
    let sent =
        [channel(1), blocks[0].clone(), channel(2), write, channel(1), blocks[1].clone()].concat();
    it.write(&sent, sent.len());
    it.poll_until(|it| it.completions.len() == 2);
    let mut contents = vec![0; written.len()];
    memory.copy_out(5_000, &mut contents).unwrap();
    assert!(contents == written);
    let contents = into.try_into_vec().unwrap();
    assert!(contents[..70_000].iter().all(|&byte| byte == 1));
    assert!(contents[70_000..].iter().all(|&byte| byte == 2));
}

#[test]
fn frames_that_cannot_be_parsed_end_the_connection() {
    let mut lost = [channel(1), data(0, true, &[1; 30])].concat();
    lost.extend(b"GET / HTTP/1.1\r\n\r\n");
    Faced::new().assert_ends(&lost, "not a frame");
    Faced::new().assert_ends(&channel(3), "channel 3, which is not open");
    Faced::new().assert_ends(&word(b"x"), "a frame for no channel");
    let behind = [channel(1), frame(BYE, 0, 0, 0, 0), word(b"x")].concat();
    Faced::new().assert_ends(&behind, "behind the bye of its channel");
    Faced::new().assert_ends(&frame(MESSAGE, 0, 65, 0, 0), "a control word of 65 bytes");
}

/// What a channel refuses is read over, however long, and the other one goes on behind it.
#[test]
fn a_refused_segment_is_read_over() {
    for piece_bytes in [1_000_000, 5_003] {
        let mut it = Faced::new();
        let into = Region::zeroed(90);
        post_receive(&mut it.transport, it.endpoints[1], &into, 2);
        let refused = data(0, false, &misleading(1));
        let sent = [channel(1), refused, channel(2), data(0, true, &[8; 90])].concat();
        it.write(&sent, piece_bytes);
        let received = |done: &Completion| matches!(done, Completion::Received { .. });
        it.poll_until(|it| it.count(received) == 1);
        let broken = |done: &Completion| matches!(done, Completion::Broken { cause: Cause::Protocol(why), .. } if why.contains("no memory"));
        assert_eq!(it.count(broken), 1, "{:?}", it.completions);
        assert_eq!(into.try_into_vec().unwrap(), [8; 90]);
    }
}

/// A segment that was begun is sent to its end, also if its channel ends before, and its memory is given back.
#[test]
fn a_channel_that_ends_inside_a_segment_leaves_the_others_whole() {
    const LONG: usize = 12 << 20;
    let (one, other) = link_pair("127.0.0.1", 1).unwrap();
    let settings = patient().direct_copies(false).segment_bytes(LONG);
    let mut sender = transport(&settings.clone().drain_timeout(Duration::from_millis(20)));
    let mut receiver = transport(&settings);
    let shared = [sender.share(one).unwrap(), receiver.share(other).unwrap()];
    let mut open = |number| {
        let links = [sender.reserve(shared[0], number), receiver.reserve(shared[1], number)];
        let [one, other] = links.map(Result::unwrap);
        [sender.open(one).unwrap(), receiver.open(other).unwrap()]
    };
    let (first, second) = (open(1), open(2));
    let (long, short) = (Region::from_vec(vec![3; LONG]), Region::from_vec(vec![4; 100_000]));
    let (into_long, into_short) = (Region::zeroed(LONG), Region::zeroed(100_000));
    post_receive(&mut receiver, first[1], &into_long, 1);
    post_receive(&mut receiver, second[1], &into_short, 2);
    post_send(&mut sender, first[0], &long, 1);
    post_send(&mut sender, second[0], &short, 2);
    // The receiver does not read yet, so that the socket is full in the middle of the segment.
    sender.poll(&mut Vec::new(), Duration::ZERO);
    sender.close(first[0]);
    let of_first = poll_until(&mut sender, ended);
    let closed = [
        Completion::Cancelled { endpoint: first[0], token: Token(1) },
        Completion::Closed { endpoint: first[0] },
    ];
    assert_eq!(of_first, closed);
    assert!(long.try_into_vec().is_ok(), "its lease is out");
    let (mut at_receiver, begin) = (Vec::new(), Instant::now());
    let wanted = [
        Completion::Received { endpoint: second[1], token: Token(2), bytes: 100_000, immediate: 0 },
        Completion::Broken { endpoint: first[1], cause: Cause::ClosedByPeer },
    ];
    while !wanted.iter().all(|it| at_receiver.contains(it)) {
        assert!(begin.elapsed() < PATIENCE, "{at_receiver:?}");
        sender.poll(&mut Vec::new(), Duration::ZERO);
        receiver.poll(&mut at_receiver, Duration::from_millis(1));
    }
    assert!(into_short.try_into_vec().unwrap() == vec![4; 100_000]);
}
