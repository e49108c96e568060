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
use transport_tcp::TcpTransport;

use crate::common::*;

const INTRODUCTION: u8 = 7;
const READABLE: u8 = 8;
const REFERENCE: u8 = 9;
const COPIED: u8 = 10;

const PROOF: [u8; 16] = *b"sixteen of bytes";

/// Returns whether this system lets processes read each other's memory; says so if not.
fn can_copy() -> bool {
    let ((mut one, _), (mut other, _)) = facing_each_other(&patient(), 1);
    let can = become_neighbours(&mut [&mut one, &mut other], 1);
    if !can {
        eprintln!("SKIPPED: this system does not let processes read each other's memory");
    }
    can
}

/// A raw socket to an endpoint, played by this process: it may introduce itself truly or not.
struct Raw {
    transport: TcpTransport,
    endpoint: EndpointId,
    socket: TcpStream,
    proof: Box<[u8; 16]>,
}

impl Raw {
    fn new() -> Self {
        let (ours, socket) = stream_pair("127.0.0.1").unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut transport = transport(&patient());
        let endpoint = transport.open(ours.into()).unwrap();
        Self { transport, endpoint, socket, proof: Box::new(PROOF) }
    }

    /// The introduction of this process, as it is.
    fn introduction(&self) -> Vec<u8> {
        let descriptor = self.socket.as_raw_fd() as u32;
        introduction(std::process::id(), descriptor, self.proof.as_ptr().addr() as u64, PROOF)
    }

    /// Introduces this process; returns whether it was found readable.
    fn introduce(&mut self, introduction: &[u8]) -> bool {
        self.socket.write_all(introduction).unwrap();
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
        let introduction = raw.introduction();
        if raw.introduce(&introduction) {
            return Some(raw);
        }
        assert!(!can_copy());
        None
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

fn introduction(pid: u32, descriptor: u32, address: u64, proof: [u8; 16]) -> Vec<u8> {
    let mut frame = frame(INTRODUCTION, 0, 32, 0, 0);
    frame.extend(pid.to_le_bytes());
    frame.extend(descriptor.to_le_bytes());
    frame.extend(address.to_le_bytes());
    frame.extend(proof);
    frame
}

fn reference(bytes: usize, block: u32, address: u64) -> Vec<u8> {
    let mut frame = frame(REFERENCE, 0, bytes as u32, 5, block);
    frame.extend(address.to_le_bytes());
    frame
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

/// A peer that names another process, another connection or other bytes is not read.
#[test]
fn a_false_introduction_is_not_believed() {
    let Some(_) = Raw::neighbour() else { return };
    let sleeper = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn();
    let mut sleeper = Guard(sleeper.unwrap());
    let (_other, other) = stream_pair("127.0.0.1").unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let (pid, other_pid) = (std::process::id(), sleeper.0.id());
    let tell = |change: &dyn Fn(&Raw) -> Vec<u8>| {
        let mut raw = Raw::new();
        let introduction = change(&raw);
        assert!(!raw.introduce(&introduction));
        // Blocks go through the socket.
        let into = Region::zeroed(3);
        post_receive(&mut raw.transport, raw.endpoint, &into, 1);
        raw.socket.write_all(&[&frame(DATA, LAST, 3, 0, 0)[..], b"abc"].concat()).unwrap();
        poll_until(&mut raw.transport, |new| !new.is_empty());
        assert_eq!(&into.read(0..3).unwrap()[..], b"abc");
    };
    let proof = |raw: &Raw| address(&raw.proof[..]);
    let socket = |raw: &Raw| raw.socket.as_raw_fd() as u32;
    tell(&|raw| introduction(other_pid, socket(raw), proof(raw), PROOF));
    tell(&|raw| introduction(0, socket(raw), proof(raw), PROOF));
    tell(&|raw| introduction(u32::MAX, socket(raw), proof(raw), PROOF));
    tell(&|raw| introduction(pid, other.as_raw_fd() as u32, proof(raw), PROOF));
    tell(&|raw| introduction(pid, file.as_raw_fd() as u32, proof(raw), PROOF));
    tell(&|raw| introduction(pid, u32::MAX, proof(raw), PROOF));
    tell(&|raw| introduction(pid, socket(raw), proof(raw), [0; 16]));
    tell(&|raw| introduction(pid, socket(raw), 8, PROOF));
    tell(&|raw| introduction(pid, socket(raw), u64::MAX, PROOF));
    sleeper.kill();
}

#[test]
fn frames_that_nobody_asked_for() {
    let source = vec![1; 50_000];
    let valid = reference(50_000, 0, address(&source));
    Raw::new().breaks(&valid, "cannot be read here");
    Raw::new().breaks(&frame(COPIED, 0, 0, 0, 0), "to which it was not referred");
    let raw = Raw::new();
    let twice = [raw.introduction(), raw.introduction()].concat();
    raw.breaks(&twice, "a second introduction");
    let Some(raw) = Raw::neighbour() else { return };
    raw.breaks(&valid, "no memory was posted");
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

/// The other process of the tests below: sends as many blocks as it is told, and receives until it is killed.
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

/// Starts the other process, which sends so many blocks, and returns it and the end here.
fn start(blocks: u64) -> (Guard, TcpTransport, EndpointId) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
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

/// A duplicate of a file's descriptor, once closed, takes away all locks that its process has on the file.
#[test]
fn descriptors_that_are_no_sockets_are_not_touched() {
    let path = std::env::temp_dir().join(format!("rdmc-locked-{}", std::process::id()));
    let file = std::fs::File::create_new(&path).unwrap();
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    std::fs::remove_file(&path).unwrap();
    let is_locked = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("POSIX") && line.contains(&format!(":{inode} ")))
    };
    assert!(is_locked());
    let mut raw = Raw::new();
    let address = address(&*raw.proof);
    let named = introduction(std::process::id(), file.as_raw_fd() as u32, address, PROOF);
    assert!(!raw.introduce(&named));
    assert!(is_locked(), "the lock is gone");
}
