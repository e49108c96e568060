//! One end of a group's queue pair, in userspace: on a packet socket of the interface by which the
//! others are reached.

use std::{
    collections::BTreeSet,
    io::ErrorKind,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use endpoint::{Endpoint, EndpointError, Event, Peer};
use if_addrs::{IfAddr, Interface};
use mcrdma::{
    Mac,
    endpoint::{Kind, RequesterConfig, Status, Work},
};
use routes::{Kernel, Station};

/// Payloads of packets that RoCE knows, in bytes, largest first.
pub const MTUS_BYTES: [u32; 5] = [4096, 2048, 1024, 512, 256];
/// What a packet of a SEND has besides: IPv6, UDP, BTH, immediate, ICRC. IPv4 has less.
const HEADERS_BYTES: u32 = 40 + 8 + 12 + 4 + 4;
/// What may be on its way: more costs switches memory, less leaves hosts without work while they wait
/// for each other.
const WINDOW_BYTES: u32 = 256 << 10;
/// Of these packets.
const WINDOW_PACKETS: std::ops::RangeInclusive<u32> = 16..=256;
/// Room for packets that were not looked at yet, if this process may have so much.
const ROOM_BYTES: usize = 4 << 20;
/// What the kernel counts for a packet besides its bytes, about, which it rounds up to twice as much.
const NOTES_BYTES: usize = 1024;
/// Without an answer for so long all that is open is sent again.
const TIMEOUT: Duration = Duration::from_millis(67);
/// How often in a row a receiver may say that it is not ready: 64 ms. Credits see to it that it is.
const NOT_READY_RETRIES: u32 = 100;

/// Why a host cannot have a queue pair; says what helps.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The interface cannot be used.
    #[error("{0}")]
    Interface(String),
    /// This process may not use packet sockets.
    #[error("{0}; give rdmc the capability CAP_NET_RAW, or run it as root")]
    Permission(String),
    /// The address is on no interface.
    #[error("no network interface has the address {0}")]
    NoInterface(IpAddr),
    /// There is no switch on the way.
    #[error("{0} is on the loopback interface, where no switch is")]
    Loopback(IpAddr),
    /// The peer is reached by another interface, or not at all.
    #[error("{peer} is not reached from {local} by {interface}: {why}")]
    Unreached {
        /// This host's address.
        local: IpAddr,
        /// The interface that has it.
        interface: String,
        /// The other end.
        peer: IpAddr,
        /// What the routes say.
        why: String,
    },
    /// Packets would have to be too short.
    #[error("interface {interface} carries packets of {mtu_bytes} bytes; 324 are needed")]
    Mtu {
        /// Its name.
        interface: String,
        /// What it carries.
        mtu_bytes: u32,
    },
}

/// A queue pair that has a number and no peer.
pub struct Unconnected {
    endpoint: Endpoint,
    number: u32,
    mtu_bytes: u32,
    room_bytes: usize,
    /// The router on the way to the first of the peers.
    next_hop: Option<IpAddr>,
}

/// What a root's queue pair talks to, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// Of the virtual peer.
    pub virtual_address: IpAddr,
    /// The group's identifier, which is the virtual peer's queue pair number.
    pub id: u32,
    /// Number of the first packet.
    pub psn_first: u32,
    /// Of [`MTUS_BYTES`], at most that of all members.
    pub mtu_bytes: u32,
    /// Bytes that all receivers have room for ([`Unconnected::room_bytes`]).
    pub room_bytes: usize,
    /// How long nobody may answer.
    pub patience: Duration,
}

/// What a receiver's queue pair talks to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The root's address.
    pub root: IpAddr,
    /// Its queue pair.
    pub qpn: u32,
    /// Number of the first packet.
    pub psn_first: u32,
    /// Of [`MTUS_BYTES`].
    pub mtu_bytes: u32,
}

impl Unconnected {
    /// Opens the interface that has the address `local`, by which `peers` are reached. Needs
    /// CAP_NET_RAW.
    pub fn open(local: IpAddr, peers: &[IpAddr]) -> Result<Self, OpenError> {
        let interfaces = if_addrs::get_if_addrs().map_err(|error| {
            OpenError::Interface(format!("listing network interfaces: {error}"))
        })?;
        let found = interfaces.into_iter().find(|interface| interface.ip() == local);
        let interface = found.ok_or(OpenError::NoInterface(local))?;
        if interface.is_loopback() {
            return Err(OpenError::Loopback(local));
        }
        let endpoint = Endpoint::open(&interface.name, local).map_err(refused)?;
        let next_hops = next_hops(&interface, endpoint.interface(), peers)?;
        let room_bytes = endpoint.reserve(ROOM_BYTES).map_err(refused)?;
        let carries = endpoint.mtu_bytes().map_err(refused)?;
        let fitting = MTUS_BYTES.into_iter().find(|mtu| mtu + HEADERS_BYTES <= carries);
        let mtu_bytes =
            fitting.ok_or(OpenError::Mtu { interface: interface.name, mtu_bytes: carries })?;
        let next_hop = next_hops.first().copied().flatten();
        Ok(Self { number: endpoint.draw_number(), endpoint, mtu_bytes, room_bytes, next_hop })
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The interface's Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> Mac {
        self.endpoint.mac()
    }

    /// The largest of [`MTUS_BYTES`] that the interface carries.
    #[must_use]
    pub const fn mtu_bytes(&self) -> u32 {
        self.mtu_bytes
    }

    /// Room for packets that were not looked at yet, with what the kernel counts besides.
    #[must_use]
    pub const fn room_bytes(&self) -> usize {
        self.room_bytes
    }

    /// The root's end, which sends.
    #[must_use]
    pub fn connect_root(self, root: &Root) -> QueuePair {
        let next_hop = self.next_hop;
        let peer = Peer { address: root.virtual_address, qpn: root.id, next_hop };
        let retries = root.patience.as_millis().div_ceil(TIMEOUT.as_millis());
        let config = RequesterConfig {
            retries: u32::try_from(retries).unwrap_or(u32::MAX),
            ..config(root.mtu_bytes, root.room_bytes)
        };
        self.connect(peer, config, (root.psn_first, 0))
    }

    /// A receiver's end.
    #[must_use]
    pub fn connect_member(self, member: &Member) -> QueuePair {
        let next_hop = self.next_hop;
        let peer = Peer { address: member.root, qpn: member.qpn, next_hop };
        // It sends nothing but answers.
        self.connect(peer, config(member.mtu_bytes, 0), (0, member.psn_first))
    }

    fn connect(mut self, peer: Peer, config: RequesterConfig, psns: (u32, u32)) -> QueuePair {
        self.endpoint.connect(self.number, peer, config, psns);
        QueuePair { endpoint: self.endpoint, number: self.number }
    }
}

/// The routers on the ways to peers, where there are any.
///
/// Errors: one of them is not reached by this interface.
fn next_hops(
    interface: &Interface,
    index: u32,
    peers: &[IpAddr],
) -> Result<Vec<Option<IpAddr>>, OpenError> {
    if peers.iter().all(|&peer| is_on_link(interface, peer)) {
        return Ok(vec![None; peers.len()]);
    }
    let unread = |error| OpenError::Interface(format!("reading routes: {error}"));
    let snapshot = Kernel::open().and_then(|mut kernel| kernel.snapshot()).map_err(unread)?;
    let next_hop = |&peer: &IpAddr| {
        let station = Station { address: peer, mac: None };
        match snapshot.hops(&BTreeSet::from([index]), station) {
            Ok(hops) => Ok(hops.first().and_then(|hop| hop.gateway)),
            // Whose Ethernet address the queue pair will ask for.
            Err(why) => match why.to_ask() {
                Some(asked) => Ok(Some(asked.address).filter(|&address| address != peer)),
                None => Err(OpenError::Unreached {
                    local: interface.ip(),
                    interface: interface.name.clone(),
                    peer,
                    why: why.to_string(),
                }),
            },
        }
    };
    peers.iter().map(next_hop).collect()
}

fn is_on_link(interface: &Interface, peer: IpAddr) -> bool {
    match (&interface.addr, peer) {
        (IfAddr::V4(own), IpAddr::V4(peer)) => {
            let mask = own.netmask.to_bits();
            own.ip.to_bits() & mask == peer.to_bits() & mask
        }
        (IfAddr::V6(own), IpAddr::V6(peer)) => {
            let mask = own.netmask.to_bits();
            own.ip.to_bits() & mask == peer.to_bits() & mask
        }
        _ => false,
    }
}

fn config(mtu_bytes: u32, room_bytes: usize) -> RequesterConfig {
    let packet_bytes = 2 * (mtu_bytes + HEADERS_BYTES) as usize + NOTES_BYTES;
    let fitting = u32::try_from(room_bytes / packet_bytes).unwrap_or(u32::MAX);
    let packets = fitting.min(WINDOW_BYTES / mtu_bytes);
    let packets = packets.clamp(*WINDOW_PACKETS.start(), *WINDOW_PACKETS.end());
    RequesterConfig {
        mtu_bytes,
        window_packets: packets,
        ack_packets: packets / 4,
        timeout_ns: TIMEOUT.as_nanos() as u64,
        not_ready_retries: NOT_READY_RETRIES,
        ..RequesterConfig::default()
    }
}

fn refused(error: EndpointError) -> OpenError {
    let words = error.to_string();
    match error {
        EndpointError::Interface(error) if error.source.kind() == ErrorKind::PermissionDenied => {
            OpenError::Permission(words)
        }
        _ => OpenError::Interface(words),
    }
}

/// One end of a group's connection.
pub struct QueuePair {
    endpoint: Endpoint,
    number: u32,
}

/// Something that has ended.
pub(crate) enum Ended {
    /// All receivers have the message.
    Sent { id: u64 },
    /// A message has come into the oldest receive's memory.
    Received { memory: Vec<u8>, bytes: u32, immediate: u32 },
}

impl QueuePair {
    /// Errors: the connection has ended.
    pub(crate) fn send(&mut self, id: u64, immediate: u32, bytes: Arc<[u8]>) -> Result<(), String> {
        let length = u32::try_from(bytes.len()).map_err(|_| "a block of 4 GiB".to_owned())?;
        let work = Work { id, kind: Kind::Send, bytes: length, immediate: Some(immediate) };
        self.endpoint.send(self.number, work, bytes).map_err(|error| error.to_string())
    }

    /// Errors: the queue pair is gone.
    pub(crate) fn receive(&mut self, memory: Vec<u8>) -> Result<(), String> {
        self.endpoint.receive(self.number, 0, memory).map_err(|error| error.to_string())
    }

    /// Moves packets, without waiting. Errors: the connection has ended, or the interface.
    pub(crate) fn progress(&mut self, mut ended: impl FnMut(Ended)) -> Result<(), String> {
        self.endpoint.progress(Duration::ZERO).map_err(|error| error.to_string())?;
        while let Some(event) = self.endpoint.completed() {
            match event {
                Event::Sent { id, status: Status::Done, .. } => ended(Ended::Sent { id }),
                Event::Sent { status, .. } => return Err(in_words(status)),
                Event::Arrived { arrival, memory, .. } => match arrival.immediate {
                    Some(immediate) if !arrival.is_write => {
                        ended(Ended::Received { memory, bytes: arrival.bytes, immediate });
                    }
                    _ => return Err("the root has sent something that is no block".into()),
                },
            }
        }
        Ok(())
    }

    /// How long until there is something to do though no packet comes.
    pub(crate) fn wakes_in(&self) -> Option<Duration> {
        self.endpoint.wakes_in()
    }

    /// Readable when a packet comes.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}

fn in_words(status: Status) -> String {
    match status {
        Status::NoAnswer => {
            "no answers to its packets have come: a switch on the way has forgotten the group, or a \
             receiver gets none of its copies"
                .into()
        }
        Status::NeverReady => "a receiver was never ready for a block".into(),
        Status::Refused(code) => format!("a receiver refused a block ({code:?})"),
        Status::Done | Status::Flushed => "its queue pair has ended".into(),
    }
}
