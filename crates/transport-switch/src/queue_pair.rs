//! One end of a group's queue pair, in userspace: on a packet socket of the interface by which the
//! others are reached.

use std::{
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

/// Payloads of packets that RoCE knows, in bytes, largest first.
pub const MTUS_BYTES: [u32; 5] = [4096, 2048, 1024, 512, 256];
/// What a packet of a SEND has besides: IPv6, UDP, BTH, immediate, ICRC. IPv4 has less.
const HEADERS_BYTES: u32 = 40 + 8 + 12 + 4 + 4;
/// What may be on its way. Packet sockets have some 200 KiB of room by default, of which the kernel's
/// own notes on each packet take as much again.
const WINDOW_BYTES: u32 = 64 << 10;
/// Of these packets.
const WINDOW_PACKETS: std::ops::RangeInclusive<u32> = 16..=64;
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
    /// The peer is behind a router.
    #[error(
        "{peer} is not in the network of {local} on {interface}; queue pairs in userspace do not \
         reach behind routers"
    )]
    Routed {
        /// This host's address.
        local: IpAddr,
        /// The interface that has it.
        interface: String,
        /// The other end.
        peer: IpAddr,
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
        if let Some(&peer) = peers.iter().find(|&&peer| !is_on_link(&interface, peer)) {
            return Err(OpenError::Routed { local, interface: interface.name, peer });
        }
        let endpoint = Endpoint::open(&interface.name, local).map_err(refused)?;
        let carries = endpoint.mtu_bytes().map_err(refused)?;
        let fitting = MTUS_BYTES.into_iter().find(|mtu| mtu + HEADERS_BYTES <= carries);
        let mtu_bytes =
            fitting.ok_or(OpenError::Mtu { interface: interface.name, mtu_bytes: carries })?;
        Ok(Self { number: endpoint.draw_number(), endpoint, mtu_bytes })
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

    /// The root's end, which sends.
    #[must_use]
    pub fn connect_root(self, root: &Root) -> QueuePair {
        let peer = Peer { address: root.virtual_address, qpn: root.id, next_hop: None };
        let retries = root.patience.as_millis().div_ceil(TIMEOUT.as_millis());
        let config = RequesterConfig {
            retries: u32::try_from(retries).unwrap_or(u32::MAX),
            ..config(root.mtu_bytes)
        };
        self.connect(peer, config, (root.psn_first, 0))
    }

    /// A receiver's end.
    #[must_use]
    pub fn connect_member(self, member: &Member) -> QueuePair {
        let peer = Peer { address: member.root, qpn: member.qpn, next_hop: None };
        self.connect(peer, config(member.mtu_bytes), (0, member.psn_first))
    }

    fn connect(mut self, peer: Peer, config: RequesterConfig, psns: (u32, u32)) -> QueuePair {
        self.endpoint.connect(self.number, peer, config, psns);
        QueuePair { endpoint: self.endpoint, number: self.number }
    }
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

fn config(mtu_bytes: u32) -> RequesterConfig {
    let packets = (WINDOW_BYTES / mtu_bytes).clamp(*WINDOW_PACKETS.start(), *WINDOW_PACKETS.end());
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
