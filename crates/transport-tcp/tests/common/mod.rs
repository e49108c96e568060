//! Helpers of several tests: connected streams, settings, and bounded waiting.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{self, UnixStream},
    },
    time::{Duration, Instant},
};

use rustix::process::geteuid;
use socket2::SockRef;
pub use testing::skipped;
use transport::{Completion, EndpointId, Region, Token, Transport};
use transport_shm::{Offer, PipeEnd, ShmLink, ShmPipe};
use transport_tcp::{StreamKeys, TcpLink, TcpSettings, TcpTransport};

/// No test waits longer than this for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a connected pair of streams over the loopback address (`127.0.0.1` or `::1`).
pub fn stream_pair(address: &str) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((address, 0))?;
    let connected = TcpStream::connect(listener.local_addr()?)?;
    Ok((connected, listener.accept()?.0))
}

/// Returns both ends of a link of `streams` streams.
pub fn link_pair(address: &str, streams: usize) -> io::Result<(TcpLink, TcpLink)> {
    protected_pair(address, streams, Protection::None)
}

/// How a link is protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    None,
    Encrypted,
}

/// Makes one end of a link, with keys for each stream; `first` is true for one end only.
pub fn link(streams: Vec<TcpStream>, protection: Protection, first: bool) -> TcpLink {
    if protection == Protection::None {
        return TcpLink::new(streams).unwrap();
    }
    let keys = |stream: u8| {
        let [own, other] = if first { [0, 1] } else { [1, 0] };
        StreamKeys::new([2 * stream + own; 32], [2 * stream + other; 32])
    };
    TcpLink::protected(streams.into_iter().zip((0..).map(keys)).collect()).unwrap()
}

/// As [`link_pair`], with protection.
pub fn protected_pair(
    address: &str,
    streams: usize,
    protection: Protection,
) -> io::Result<(TcpLink, TcpLink)> {
    let pairs = (0..streams).map(|_| stream_pair(address)).collect::<io::Result<Vec<_>>>()?;
    let (left, right): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    Ok((link(left, protection, true), link(right, protection, false)))
}

/// Returns both ends of a pipe of shared memory.
pub fn pipe_pair(ring_bytes: usize) -> [ShmPipe; 2] {
    let offer = Offer::make().unwrap();
    let one = ShmLink::connect(offer.bytes()).unwrap();
    let ends = [one, offer.accept(PATIENCE).unwrap()];
    let ends = ends.map(|link| PipeEnd::begin(link, ring_bytes).unwrap());
    ends.map(|end| end.finish(PATIENCE).unwrap())
}

/// Returns both ends of a link through shared memory.
pub fn memory_pair(ring_bytes: usize) -> io::Result<(TcpLink, TcpLink)> {
    let (left, right) = stream_pair("127.0.0.1")?;
    let [one, other] = pipe_pair(ring_bytes);
    Ok((TcpLink::through_memory(left, one), TcpLink::through_memory(right, other)))
}

/// Timeouts for tests of other things: failing memory is detected in half a second, and a machine
/// that is busy with other tests does not seem silent.
pub fn patient() -> TcpSettings {
    TcpSettings::default()
        .silence_timeout(Duration::from_secs(6))
        .drain_timeout(Duration::from_secs(10))
}

pub fn transport(settings: &TcpSettings) -> TcpTransport {
    TcpTransport::new(settings.clone()).unwrap()
}

/// Returns a transport whose only endpoint is connected to a raw socket, which plays a hostile
/// peer.
pub fn facing_raw(settings: &TcpSettings) -> (TcpTransport, EndpointId, TcpStream) {
    let (ours, raw) = stream_pair("127.0.0.1").unwrap();
    raw.set_nodelay(true).unwrap();
    raw.set_read_timeout(Some(PATIENCE)).unwrap();
    raw.set_write_timeout(Some(PATIENCE)).unwrap();
    // Its frames are not those of a raw socket's tests; `direct` has tests of these.
    let mut transport = transport(&settings.clone().direct_copies(false));
    let endpoint = transport.open(ours.into()).unwrap();
    (transport, endpoint, raw)
}

/// Returns two transports connected by one link.
pub fn facing_each_other(
    settings: &TcpSettings,
    streams: usize,
) -> ((TcpTransport, EndpointId), (TcpTransport, EndpointId)) {
    let (left, right) = link_pair("127.0.0.1", streams).unwrap();
    let side = |link| {
        let mut transport = transport(settings);
        let endpoint = transport.open(link).unwrap();
        (transport, endpoint)
    };
    (side(left), side(right))
}

/// Polls until each of these transports reads the memory of its peers on `streams` streams, and they read its memory. Returns
/// false if the system does not allow that. Nothing may be posted that completes meanwhile.
pub fn become_neighbours(transports: &mut [&mut TcpTransport], streams: u64) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut all = true;
        for transport in &mut *transports {
            transport.poll(&mut Vec::new(), Duration::from_millis(1));
            let counters = transport.counters();
            if counters.refused_introductions > 0 {
                return false;
            }
            all &= counters.direct_streams_in >= streams && counters.direct_streams_out >= streams;
        }
        if all {
            return true;
        }
        assert!(Instant::now() < deadline, "no introduction");
    }
}

/// Polls until the transport is in a state, and returns all completions.
pub fn poll_until_state(
    transport: &mut TcpTransport,
    mut enough: impl FnMut(&TcpTransport) -> bool,
) -> Vec<Completion> {
    let deadline = Instant::now() + PATIENCE;
    let mut completions = Vec::new();
    while !enough(transport) {
        assert!(Instant::now() < deadline, "in vain, after {completions:?}");
        transport.poll(&mut completions, Duration::from_millis(1));
    }
    completions
}

/// Polls until `enough` returns true, and returns all completions.
pub fn poll_until(
    transport: &mut TcpTransport,
    mut enough: impl FnMut(&[Completion]) -> bool,
) -> Vec<Completion> {
    let deadline = Instant::now() + PATIENCE;
    let mut completions = Vec::new();
    while !enough(&completions) {
        assert!(Instant::now() < deadline, "in vain, after {completions:?}");
        transport.poll(&mut completions, Duration::from_millis(50));
    }
    completions
}

/// Returns whether the endpoint has ended.
pub fn ended(completions: &[Completion]) -> bool {
    completions
        .iter()
        .any(|done| matches!(done, Completion::Broken { .. } | Completion::Closed { .. }))
}

/// Posts a receive of the whole of `region`.
pub fn post_receive(transport: &mut TcpTransport, to: EndpointId, region: &Region, token: u64) {
    let lease = region.write(0..region.len()).unwrap();
    transport.post_receive(to, lease, Token(token)).unwrap();
}

/// Posts a send of the whole of `region`.
pub fn post_send(transport: &mut TcpTransport, to: EndpointId, region: &Region, token: u64) {
    let lease = region.read(0..region.len()).unwrap();
    transport.post_send(to, lease, 0, Token(token)).unwrap();
}

/// Makes a frame by hand, as the documentation of the wire format defines it.
pub fn frame(kind: u8, flags: u8, length: u32, immediate: u32, block: u32) -> Vec<u8> {
    let mut frame = vec![kind, flags, b'R', b'D'];
    frame.extend(length.to_le_bytes());
    frame.extend(immediate.to_le_bytes());
    frame.extend(block.to_le_bytes());
    frame
}

/// Returns the introduction of a process.
pub fn introduction(pid: u32) -> Vec<u8> {
    frame(INTRODUCTION, 0, 0, 0, pid)
}

/// Returns a challenge, of zeros.
pub fn challenge() -> Vec<u8> {
    [frame(CHALLENGE, 0, 16, 0, 0), vec![0; 16]].concat()
}

/// Returns the answer to a challenge.
pub fn proof(address: u64) -> Vec<u8> {
    [&frame(PROOF, 0, 8, 0, 0)[..], &address.to_le_bytes()].concat()
}

/// Returns a reference to a block in the sender's memory.
pub fn reference(bytes: usize, block: u32, address: u64) -> Vec<u8> {
    [&frame(REFERENCE, 0, bytes as u32, 5, block)[..], &address.to_le_bytes()].concat()
}

/// Says as this process that it has this end of a stream.
pub fn identify(socket: &TcpStream) -> io::Result<()> {
    let address = net::SocketAddr::from_abstract_name(reader_name(socket))?;
    UnixStream::connect_addr(&address).map(drop)
}

/// Returns where the reader at the other end of a stream waits for the process of this end.
pub fn reader_name(socket: &TcpStream) -> String {
    let text = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => format!(" {ip} {}", address.port()),
        IpAddr::V6(ip) => format!(" {:x} {}", ip.to_bits(), address.port()),
    };
    let ends = [socket.peer_addr().unwrap(), socket.local_addr().unwrap()].map(text).concat();
    let interface = SockRef::from(socket).device().unwrap().map(String::from_utf8);
    let interface = interface.map(|it| format!(" {}", it.unwrap())).unwrap_or_default();
    format!("rdmc-direct{ends}{interface}")
}

/// Returns whether this process may not read others as it could read all of them.
pub fn is_root() -> bool {
    geteuid().is_root()
}

pub const DATA: u8 = 1;
pub const CONTROL: u8 = 2;
pub const HEARTBEAT: u8 = 3;
pub const BYE: u8 = 4;
pub const WRITE: u8 = 5;
pub const INTRODUCTION: u8 = 7;
pub const REFERENCE: u8 = 9;
pub const CHALLENGE: u8 = 13;
pub const PROOF: u8 = 6;
pub const LAST: u8 = 1;
