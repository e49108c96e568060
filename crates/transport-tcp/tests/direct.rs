//! Blocks that are copied out of the memory of a peer on this machine: who may refer to what, and what happens to a
//! block whose sender goes away. The clauses of the contract run over this path in `contract`.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use transport::{Cause, Completion, EndpointId, Region, Token, Transport};
use transport_tcp::{SharedConnections, TcpTransport, check_direct_copies};

use crate::common::*;

const READABLE: u8 = 8;
const COPIED: u8 = 10;

/// Returns whether this system lets processes read each other's memory; says so if not. Root, who may not, has an ordinary user
/// run the same tests (`copies_are_tested_as_an_ordinary_user`).
pub fn can_copy() -> bool {
    let ((mut one, _), (mut other, _)) = facing_each_other(&patient(), 1);
    let can = become_neighbours(&mut [&mut one, &mut other], 1);
    if !can && !is_root() {
        let why = check_direct_copies().err().unwrap_or_default();
        skipped(&format!(
            "direct copies; this system does not let processes read each other's memory: {why}"
        ));
    }
    can
}

/// A raw socket to an endpoint, played by this process: it may introduce itself truly or not.
pub struct Raw {
    transport: TcpTransport,
    endpoint: EndpointId,
    socket: TcpStream,
    pub proof: Box<[u8; 16]>,
}

impl Raw {
    fn new() -> Self {
        let (ours, socket) = stream_pair("127.0.0.1").unwrap();
        Self::over(ours, socket)
    }

    /// The first end is the endpoint's.
    pub fn over(ours: TcpStream, socket: TcpStream) -> Self {
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut transport = transport(&patient());
        let endpoint = transport.open(ours.into()).unwrap();
        Self { transport, endpoint, socket, proof: Box::new([0; 16]) }
    }

    /// Says that this process is the peer, and keeps the proof that it is to place. Returns whether it got one.
    pub fn introduce(&mut self, pid: u32) -> bool {
        self.socket.write_all(&introduction(pid)).unwrap();
        let mut polled = 0;
        let refused = self.transport.counters().refused_introductions;
        // The challenge is written in the poll that reads the introduction, or in the next.
        while polled < 2 {
            let read = self.transport.counters().bytes_in;
            self.transport.poll(&mut Vec::new(), Duration::from_millis(1));
            polled += u32::from(self.transport.counters().bytes_in > read || polled > 0);
        }
        if self.transport.counters().refused_introductions > refused {
            return false;
        }
        let challenge = self.read_frame(CHALLENGE);
        self.proof.copy_from_slice(&challenge[16..]);
        true
    }

    /// Says where the proof is; returns whether it was found there, in a process that may be read.
    pub fn prove(&mut self, address: u64) -> bool {
        self.socket.write_all(&proof(address)).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let before = self.transport.counters();
        loop {
            assert!(Instant::now() < deadline, "no answer");
            self.transport.poll(&mut Vec::new(), Duration::from_millis(1));
            if self.transport.counters().refused_introductions > before.refused_introductions {
                return false;
            }
            if self.transport.counters().direct_streams_in > before.direct_streams_in {
                return true;
            }
        }
    }

    /// As [`Raw::new`], with this process as a neighbour; `None` where that is not possible.
    fn neighbour() -> Option<Self> {
        let mut raw = Self::new();
        let can = raw.introduce(std::process::id()) && {
            identify(&raw.socket).unwrap();
            raw.prove(address(&raw.proof[..]))
        };
        assert!(can || !can_copy());
        can.then_some(raw)
    }

    /// Reads frames until one of this kind, and returns its header and body.
    fn read_frame(&mut self, kind: u8) -> Vec<u8> {
        loop {
            let mut frame = vec![0; 16];
            self.socket.read_exact(&mut frame).unwrap();
            let body_bytes = u32::from_le_bytes(frame[4..8].try_into().unwrap()) as usize;
            frame.resize(16 + body_bytes, 0);
            self.socket.read_exact(&mut frame[16..]).unwrap();
            if frame[0] == kind {
                return frame;
            }
        }
    }

    /// Sends frames and returns all completions of the endpoint, which ends.
    fn ends_with(mut self, frames: &[u8]) -> Vec<Completion> {
        self.socket.write_all(frames).unwrap();
        poll_until(&mut self.transport, ended)
    }

    #[track_caller]
    fn breaks(self, frames: &[u8], words: &str) {
        let completions = self.ends_with(frames);
        let Some(Completion::Broken { cause: Cause::Protocol(text), .. }) = completions.last()
        else {
            panic!("{completions:?}");
        };
        assert!(text.contains(words), "{text:?} does not contain {words:?}");
    }
}

fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().addr() as u64
}

#[test]
fn a_reference_is_copied_and_answered() {
    let Some(mut raw) = Raw::neighbour() else { return };
    let (source, into) = (vec![3; 100_001], Region::zeroed(200_000));
    post_receive(&mut raw.transport, raw.endpoint, &into, 1);
    raw.socket.write_all(&reference(source.len(), 0, address(&source))).unwrap();
    let completions = poll_until(&mut raw.transport, |new| !new.is_empty());
    let (endpoint, bytes) = (raw.endpoint, 100_001);
    let expected = Completion::Received { endpoint, token: Token(1), bytes, immediate: 5 };
    assert_eq!(completions, [expected]);
    assert!(into.read(0..100_001).unwrap().iter().all(|&byte| byte == 3));
    assert!(into.read(100_001..200_000).unwrap().iter().all(|&byte| byte == 0));
    raw.transport.poll(&mut Vec::new(), Duration::ZERO);
    assert_eq!(raw.read_frame(COPIED), frame(COPIED, 0, 0, 0, 0));
}

/// A peer that names another process or other bytes, or that does not say as that process that the stream is its own, is
/// not read. `processes` has tests with other users.
#[test]
fn a_false_introduction_is_not_believed() {
    let Some(_) = Raw::neighbour() else { return };
    let mut sleeper = Guard(Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap());
    let (_other, other) = stream_pair("127.0.0.1").unwrap();
    let own = std::process::id();
    let is_read = |pid, identified: Option<&TcpStream>, change: &dyn Fn(&mut Raw) -> u64| {
        let mut raw = Raw::new();
        let is_read = raw.introduce(pid) && {
            let is_ours = identified.is_none_or(|it| it.as_raw_fd() == raw.socket.as_raw_fd());
            if is_ours {
                identify(&raw.socket).unwrap();
            } else if let Some(other) = identified {
                assert!(identify(other).is_err(), "nobody waits for it");
            }
            let address = change(&mut raw);
            raw.prove(address)
        };
        // Blocks go through the socket.
        let into = Region::zeroed(3);
        post_receive(&mut raw.transport, raw.endpoint, &into, 1);
        raw.socket.write_all(&[&frame(DATA, LAST, 3, 0, 0)[..], b"abc"].concat()).unwrap();
        poll_until(&mut raw.transport, |new| !new.is_empty());
        assert_eq!(&into.read(0..3).unwrap()[..], b"abc");
        is_read
    };
    let right = |raw: &mut Raw| address(&raw.proof[..]);
    assert!(is_read(own, None, &right));
    for pid in [sleeper.0.id(), 0, 1, u32::MAX, i32::MAX as u32] {
        assert!(!is_read(pid, None, &right), "{pid}");
    }
    assert!(!is_read(own, Some(&other), &right));
    assert!(!is_read(own, None, &|_| 8));
    assert!(!is_read(own, None, &|_| u64::MAX));
    let wrong = |raw: &mut Raw| {
        raw.proof[15] ^= 1;
        address(&raw.proof[..])
    };
    assert!(!is_read(own, None, &wrong));
    sleeper.kill();
}

/// What is to be placed is the reader's choice, new each time.
#[test]
fn each_challenge_is_another_one() {
    let Some(raw) = Raw::neighbour() else { return };
    let Some(other) = Raw::neighbour() else { return };
    assert_ne!((*raw.proof, *other.proof), ([0; 16], [0; 16]));
    assert_ne!(raw.proof, other.proof);
}

#[test]
fn frames_that_nobody_asked_for() {
    let source = vec![1; 50_000];
    let valid = reference(50_000, 0, address(&source));
    Raw::new().breaks(&valid, "cannot be read here");
    Raw::new().breaks(&frame(COPIED, 0, 0, 0, 0), "to which it was not referred");
    let own = introduction(std::process::id());
    Raw::new().breaks(&[&own[..], &own].concat(), "a second introduction");
    Raw::new().breaks(&proof(8), "an unsolicited proof");
    Raw::new().breaks(&[challenge(), challenge()].concat(), "a second challenge");
    let Some(raw) = Raw::neighbour() else { return };
    raw.breaks(&valid, "no memory was posted");
    let Some(raw) = Raw::neighbour() else { return };
    let again = proof(address(&raw.proof[..]));
    raw.breaks(&again, "an unsolicited proof");
    let settings = patient().direct_copies(false);
    let (mut transport, _, mut socket) = facing_raw(&settings);
    socket.write_all(&frame(READABLE, 0, 0, 0, 0)).unwrap();
    let completions = poll_until(&mut transport, ended);
    let broken =
        |it: &Completion| matches!(it, Completion::Broken { cause: Cause::Protocol(_), .. });
    assert!(completions.last().is_some_and(broken), "{completions:?}");
}

#[test]
fn references_that_are_wrong() {
    let source = vec![1; 50_000];
    let posted = |bytes| {
        let mut raw = Raw::neighbour()?;
        post_receive(&mut raw.transport, raw.endpoint, &Region::zeroed(bytes), 1);
        Some(raw)
    };
    let Some(raw) = posted(49_999) else { return };
    raw.breaks(&reference(50_000, 0, address(&source)), "longer than the 49999 bytes posted");
    let Some(raw) = posted(50_000) else { return };
    raw.breaks(&reference(50_000, 1, address(&source)), "block 1 came instead of 0");
    for wrong in [0, 8, u64::MAX, u64::MAX - 50_000, 1 << 63] {
        let Some(raw) = posted(50_000) else { return };
        raw.breaks(&reference(50_000, 0, wrong), "memory that cannot be read");
    }
    let Some(raw) = posted(50_000) else { return };
    let begun = [&frame(DATA, 0, 3, 5, 0)[..], b"abc"].concat();
    raw.breaks(&[begun, reference(100, 0, address(&source))].concat(), "inside a block");
}

/// A sender overwrites its proof before it gives back memory: what is copied afterwards is not reported.
#[test]
fn a_copy_without_the_proof_does_not_count() {
    let Some(mut raw) = Raw::neighbour() else { return };
    let (source, into) = (vec![1; 50_000], Region::zeroed(50_000));
    post_receive(&mut raw.transport, raw.endpoint, &into, 1);
    raw.proof.fill(0);
    let word = [&frame(CONTROL, 0, 4, 0, 0)[..], b"word"].concat();
    let frames = [reference(50_000, 0, address(&source)), word].concat();
    raw.socket.write_all(&frames).unwrap();
    // The connection goes on until the sender ends it.
    let completions = poll_until(&mut raw.transport, |new| !new.is_empty());
    assert!(matches!(completions[..], [Completion::Control { .. }]), "{completions:?}");
    for _ in 0..10 {
        let mut more = Vec::new();
        raw.transport.poll(&mut more, Duration::from_millis(1));
        assert_eq!(more, []);
    }
    assert_eq!(raw.transport.counters().bytes_copied, 0);
    let endpoint = raw.endpoint;
    let completions = raw.ends_with(&frame(BYE, 0, 0, 0, 0));
    let cancelled = Completion::Cancelled { endpoint, token: Token(1) };
    let broken = Completion::Broken { endpoint, cause: Cause::ClosedByPeer };
    assert_eq!(completions, [cancelled, broken]);
}

/// The process at the other end of a stream is found once, for the channels of then and of later.
#[test]
fn channels_of_one_stream_are_of_one_process() {
    if !can_copy() {
        return;
    }
    let (left, right) = link_pair("127.0.0.1", 2).unwrap();
    let mut ends = [left, right].map(|link| {
        let mut transport = transport(&patient());
        let shared = transport.share(link).unwrap();
        let reserved = [3, 7, 9].map(|channel| transport.reserve(shared, channel).unwrap());
        (transport, reserved.into_iter(), Vec::new())
    });
    for (opened, all) in [(2, 2), (1, 3)] {
        for (transport, reserved, channels) in &mut ends {
            channels.extend(reserved.take(opened).map(|it| transport.open(it).unwrap()));
        }
        let [(one, ..), (other, ..)] = &mut ends;
        assert!(become_neighbours(&mut [one, other], 2 * all));
    }
    let [(mut one, _, of_one), (mut other, _, of_other)] = ends;
    for (number, (from, to)) in of_one.into_iter().zip(of_other).enumerate() {
        let (source, into) = (Region::from_vec(block(number as u64)), Region::zeroed(BLOCK_BYTES));
        post_receive(&mut other, to, &into, 1);
        post_send(&mut one, from, &source, 2);
        let deadline = Instant::now() + PATIENCE;
        let mut done = Vec::new();
        while !done.iter().any(|it| matches!(it, Completion::Received { .. })) {
            assert!(Instant::now() < deadline);
            one.poll(&mut Vec::new(), Duration::from_millis(1));
            other.poll(&mut done, Duration::from_millis(1));
        }
        assert!(into.read(0..BLOCK_BYTES).unwrap()[..] == block(number as u64)[..]);
    }
    assert_eq!(other.counters().bytes_copied, 3 * BLOCK_BYTES as u64);
}

/// Whoever asks meanwhile does not change the answer.
#[test]
fn what_the_system_allows_is_the_same_for_all_threads() {
    let can_copy = can_copy();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let checked = check_direct_copies();
                    // A file has whether other processes may be read.
                    assert!(checked.is_ok() || !can_copy, "{checked:?}");
                }
            });
        }
    });
}

/// Each of these keeps blocks on the socket.
#[test]
fn settings_that_keep_blocks_on_the_socket() {
    let off = patient().direct_copies(false);
    let limited = patient().rate_max(Some(1 << 30));
    for settings in [[&off, &patient()], [&limited, &patient()], [&off, &off]] {
        let (left, right) = link_pair("127.0.0.1", 1).unwrap();
        let [mut one, mut other] = settings.map(transport);
        let (to_other, to_one) = (one.open(left).unwrap(), other.open(right).unwrap());
        let (source, into) = (Region::from_vec(vec![7; 1 << 20]), Region::zeroed(1 << 20));
        for (from, sender, to, receiver) in [(to_other, &mut one, to_one, &mut other)].into_iter() {
            post_receive(receiver, to, &into, 1);
            post_send(sender, from, &source, 2);
            let mut done = Vec::new();
            let deadline = Instant::now() + PATIENCE;
            while !done.iter().any(|it| matches!(it, Completion::Received { .. })) {
                assert!(Instant::now() < deadline);
                sender.poll(&mut Vec::new(), Duration::from_millis(1));
                receiver.poll(&mut done, Duration::from_millis(1));
            }
        }
        assert_eq!((one.counters().copies, other.counters().copies), (0, 0));
        assert_eq!(one.counters().direct_streams_in + other.counters().direct_streams_in, 0);
    }
}

const BLOCK_BYTES: usize = 4 << 20;
const BLOCKS: u64 = 12;
/// Where the other process connects to.
const ADDRESS: &str = "RDMC_TEST_DIRECT_ADDRESS";
const SENT_BLOCKS: &str = "RDMC_TEST_DIRECT_BLOCKS";

/// Kills a process that it leaves behind.
struct Guard(Child);

impl Guard {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Bytes that differ by place and block.
fn block(number: u64) -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| (at % 251) as u8 ^ number as u8).collect()
}

/// The other process of the tests below: sends as many blocks as requested, and receives until it is killed.
#[test]
fn as_another_process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let blocks: u64 = std::env::var(SENT_BLOCKS).unwrap().parse().unwrap();
    let stream = TcpStream::connect(address).unwrap();
    let mut transport = transport(&patient());
    let endpoint = transport.open(stream.into()).unwrap();
    let into = Region::zeroed(BLOCK_BYTES);
    // Posted one by one, so that the parent's sends always wait for some.
    post_receive(&mut transport, endpoint, &into, 0);
    let sources: Vec<Region> = (0..blocks).map(|number| Region::from_vec(block(number))).collect();
    assert!(become_neighbours(&mut [&mut transport], 1));
    for (token, source) in sources.iter().enumerate() {
        post_send(&mut transport, endpoint, source, token as u64);
    }
    let mut next = 1;
    loop {
        let mut done = Vec::new();
        transport.poll(&mut done, Duration::from_millis(100));
        for it in done {
            match it {
                Completion::Received { token: Token(number), .. } => {
                    assert!(into.read(0..BLOCK_BYTES).unwrap()[..] == block(number)[..]);
                    post_receive(&mut transport, endpoint, &into, next);
                    next += 1;
                }
                Completion::Broken { .. } => return,
                _ => {}
            }
        }
    }
}

/// Starts the other process, which sends this many blocks, and returns it and the end here.
fn start(blocks: u64) -> (Guard, TcpTransport, EndpointId) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // By this path, since an ordinary user may not reach the program by its own.
    let child = Command::new("/proc/self/exe")
        .args(["direct::as_another_process", "--exact", "--test-threads=1"])
        .env(ADDRESS, listener.local_addr().unwrap().to_string())
        .env(SENT_BLOCKS, blocks.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let child = Guard(child);
    let stream = listener.accept().unwrap().0;
    let mut transport = transport(&patient());
    let endpoint = transport.open(stream.into()).unwrap();
    (child, transport, endpoint)
}

fn is_lost(completion: Option<&Completion>) -> bool {
    matches!(completion, Some(Completion::Broken { cause: Cause::Lost(_), .. }))
}

/// A process dies while its blocks are being copied: each receive has the right bytes or is cancelled.
#[test]
fn a_sender_is_killed_in_the_middle_of_copies() {
    if !can_copy() {
        return;
    }
    for turns in [0, 1, 2, 5, 9, 14, 30] {
        let (mut child, mut transport, endpoint) = start(BLOCKS);
        let regions: Vec<Region> = (0..BLOCKS).map(|_| Region::zeroed(BLOCK_BYTES)).collect();
        for (token, region) in regions.iter().enumerate() {
            post_receive(&mut transport, endpoint, region, token as u64);
        }
        let mut completions =
            poll_until_state(&mut transport, |transport| transport.counters().copies > 0);
        for _ in 0..turns {
            transport.poll(&mut completions, Duration::ZERO);
        }
        child.kill();
        if !ended(&completions) {
            completions.extend(poll_until(&mut transport, ended));
        }
        assert!(is_lost(completions.last()), "{completions:?}");
        let mut outcomes = 0;
        for completion in &completions {
            match completion {
                Completion::Received { token: Token(number), bytes, .. } => {
                    outcomes += 1;
                    assert_eq!(*bytes, BLOCK_BYTES as u64);
                    let region = &regions[*number as usize];
                    let lease = region.read(0..BLOCK_BYTES).unwrap();
                    assert!(lease[..] == block(*number)[..], "block {number}");
                }
                Completion::Cancelled { .. } => outcomes += 1,
                _ => {}
            }
        }
        assert_eq!(outcomes, BLOCKS);
    }
}

/// A process dies while it copies blocks: each send has been copied or is cancelled, and its memory is free.
#[test]
fn a_receiver_is_killed_in_the_middle_of_copies() {
    if !can_copy() {
        return;
    }
    for wanted in [0, 1, 3, 20] {
        let (mut child, mut transport, endpoint) = start(0);
        // The other end posts its receives before it answers the introduction, so credit is given.
        let mut completions = poll_until_state(&mut transport, |transport| {
            transport.counters().direct_streams_out > 0
        });
        let source = Region::from_vec(block(0));
        post_send(&mut transport, endpoint, &source, 0);
        for _ in 0..wanted {
            transport.poll(&mut completions, Duration::ZERO);
        }
        child.kill();
        if !ended(&completions) {
            completions.extend(poll_until(&mut transport, ended));
        }
        assert!(is_lost(completions.last()), "{completions:?}");
        let sent = completions.iter().filter(|it| {
            matches!(
                it,
                Completion::Sent { token: Token(0), .. }
                    | Completion::Cancelled { token: Token(0), .. }
            )
        });
        assert_eq!(sent.count(), 1);
        assert!(source.write(0..BLOCK_BYTES).is_ok(), "a lease is out");
    }
}

/// Returns whether the system has a socket of loopback with this local port and this remote one.
fn is_connected([local, remote]: [u16; 2]) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    sockets.contains(&format!(" 0100007F:{local:04X} 0100007F:{remote:04X} "))
}

/// Once a stream was reset another one, of another process, may have its addresses: that process then says that it has
/// that one. What was received before the reset can still be read.
#[test]
fn a_stream_that_was_reset_has_no_neighbour() {
    use std::os::{linux::net::SocketAddrExt, unix::net};
    let Some(_) = Raw::neighbour() else { return };
    let mut raw = Raw::new();
    assert!(raw.introduce(std::process::id()));
    let name = reader_name(&raw.socket);
    raw.socket.write_all(&proof(address(&raw.proof[..]))).unwrap();
    let Raw { mut transport, socket, proof: _kept, .. } = raw;
    let ports = [socket.peer_addr().unwrap().port(), socket.local_addr().unwrap().port()];
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    drop(socket);
    // On a busy machine the reset comes later.
    let deadline = Instant::now() + PATIENCE;
    while is_connected(ports) {
        assert!(Instant::now() < deadline, "the reset does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
    let at = net::SocketAddr::from_abstract_name(name).unwrap();
    let _connection = net::UnixStream::connect_addr(&at).unwrap();
    poll_until(&mut transport, ended);
    let counters = transport.counters();
    assert_eq!((counters.direct_streams_in, counters.refused_introductions), (0, 1));
}

/// Runs these tests and those of the contract once more if this is root.
#[test]
fn copies_are_tested_as_an_ordinary_user() {
    if !is_root() {
        return;
    }
    let Some(said) = testing::run_as_ordinary_user(&["direct"]) else { return };
    let text = said.text;
    assert!(text.contains("test direct::a_reference_is_copied_and_answered ... ok"), "{text}");
}
