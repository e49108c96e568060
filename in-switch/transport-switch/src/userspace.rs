//! Queue pairs in userspace, on a packet socket of the interface through which the peers are
//! reached.

use std::{
    collections::VecDeque,
    io::ErrorKind,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use endpoint::{Counts, Endpoint, EndpointError, Event, Peer};
use roce::{
    Mac,
    rc::{Kind, RequesterConfig, Status, Work},
};
use transport::{Cause, ReadLease, WriteLease};

use crate::{
    MTUS_BYTES, Member, OpenError, Root,
    completion::{Ended, NEVER_READY, NO_ANSWER},
};

/// Nothing gives up before: a host may be away for as long as a virtual machine moves to another host, or a link that
/// flaps comes back.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Headers and trailer of a packet of a SEND: IPv6, UDP, BTH, immediate, ICRC. With IPv4 they are
/// shorter.
const HEADERS_BYTES: u32 = 40 + 8 + 12 + 4 + 4;
/// The window: a longer one needs more memory in switches, a shorter one leaves hosts idle.
const WINDOW_BYTES: u32 = 256 << 10;
/// The bounds of the window in packets.
const WINDOW_PACKETS: std::ops::RangeInclusive<u32> = 16..=256;
/// The receive buffer for packets that were not read yet, if this process may have this much.
const BUFFER_BYTES: usize = 4 << 20;
/// The kernel's approximate overhead for a packet, which it rounds up to twice as much.
const OVERHEAD_BYTES: usize = 1024;
/// The retransmission timeout of the first packet without an answer.
const TIMEOUT: Duration = Duration::from_millis(67);
/// How many times in a row a receiver may answer that it is not ready: 64 ms. Credits ensure that
/// it is.
const NOT_READY_RETRIES: u32 = 100;
/// Buffers of receives that are kept for reuse.
const SPARE_MAX: usize = 64;

/// A queue pair with a number and without a peer.
pub(crate) struct Unconnected {
    endpoint: Endpoint,
    number: u32,
    pub(crate) mtu_bytes: u32,
    pub(crate) buffer_bytes: usize,
}

impl Unconnected {
    pub(crate) fn open(interface: &str, local: IpAddr) -> Result<Self, OpenError> {
        let endpoint = Endpoint::open(interface, local).map_err(refused)?;
        let buffer_bytes = endpoint.reserve(BUFFER_BYTES).map_err(refused)?;
        let carries = endpoint.mtu_bytes().map_err(refused)?;
        let fitting = MTUS_BYTES.into_iter().find(|mtu| mtu + HEADERS_BYTES <= carries);
        let too_short = || OpenError::Mtu { interface: interface.to_owned(), mtu_bytes: carries };
        let mtu_bytes = fitting.ok_or_else(too_short)?;
        Ok(Self { number: endpoint.draw_number(), endpoint, mtu_bytes, buffer_bytes })
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    pub(crate) const fn mac(&self) -> Mac {
        self.endpoint.mac()
    }

    pub(crate) fn connect_root(self, root: &Root, next_hop: Option<IpAddr>) -> QueuePair {
        let peer = Peer { address: root.virtual_address, qpn: root.id, next_hop };
        let retries = root.ack_timeout.as_millis().div_ceil(TIMEOUT.as_millis());
        let config = RequesterConfig {
            retries: u32::try_from(retries).unwrap_or(u32::MAX),
            ..config(root.mtu_bytes, root.buffer_bytes)
        };
        self.connect(peer, config, root.psn_first, 0)
    }

    pub(crate) fn connect_member(self, member: &Member, next_hop: Option<IpAddr>) -> QueuePair {
        let peer = Peer { address: member.root, qpn: member.qpn, next_hop };
        // A receiver sends only answers.
        self.connect(peer, config(member.mtu_bytes, 0), 0, member.psn_first)
    }

    fn connect(
        mut self,
        peer: Peer,
        config: RequesterConfig,
        send_psn: u32,
        receive_psn: u32,
    ) -> QueuePair {
        self.endpoint.connect(self.number, peer, config, send_psn, receive_psn);
        QueuePair {
            endpoint: self.endpoint,
            number: self.number,
            receives: VecDeque::new(),
            spare: Vec::new(),
        }
    }
}

fn config(mtu_bytes: u32, buffer_bytes: usize) -> RequesterConfig {
    let packet_bytes = 2 * (mtu_bytes + HEADERS_BYTES) as usize + OVERHEAD_BYTES;
    let fitting = u32::try_from(buffer_bytes / packet_bytes).unwrap_or(u32::MAX);
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

/// A connected queue pair.
pub(crate) struct QueuePair {
    endpoint: Endpoint,
    number: u32,
    receives: VecDeque<WriteLease>,
    spare: Vec<Vec<u8>>,
}

impl QueuePair {
    pub(crate) fn send(
        &mut self,
        id: u64,
        immediate: u32,
        from: &Arc<ReadLease>,
    ) -> Result<(), Cause> {
        let length = u32::try_from(from.bytes());
        let length = length.map_err(|_| Cause::Lost("a block of 4 GiB".into()))?;
        let work = Work { id, kind: Kind::Send, bytes: length, immediate: Some(immediate) };
        let sent = self.endpoint.send(self.number, work, Block(Arc::clone(from)));
        sent.map_err(|error| Cause::Lost(error.to_string()))
    }

    pub(crate) fn receive(&mut self, into: WriteLease) -> Result<(), String> {
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.resize(into.bytes(), 0);
        self.receives.push_back(into);
        self.endpoint.receive(self.number, 0, memory).map_err(|error| error.to_string())
    }

    pub(crate) fn progress(&mut self, mut ended: impl FnMut(Ended)) -> Result<(), String> {
        self.endpoint.progress(Duration::ZERO).map_err(|error| error.to_string())?;
        while let Some(event) = self.endpoint.completed() {
            match event {
                Event::Sent { id, status: Status::Done, .. } => ended(Ended::Sent { id }),
                Event::Sent { status, .. } => return Err(in_words(status)),
                Event::Arrived { arrival, memory, .. } => {
                    let bytes = arrival.bytes as usize;
                    let (Some(mut into), Some(immediate), false) =
                        (self.receives.pop_front(), arrival.immediate, arrival.is_write)
                    else {
                        return Err("the root has sent something that is not a block".into());
                    };
                    // The responder refuses a longer one.
                    into[..bytes].copy_from_slice(&memory[..bytes]);
                    ended(Ended::Received { into, bytes, immediate });
                    if self.spare.len() < SPARE_MAX {
                        self.spare.push(memory);
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn wakes_in(&self) -> Option<Duration> {
        let coalesces_for = self.endpoint.coalesces_for();
        self.endpoint.wakes_in().into_iter().chain(coalesces_for).min()
    }

    pub(crate) fn gathers(&self) -> bool {
        self.endpoint.coalesces_for().is_some()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let Counts { requests_sent: packets, requests_repeated: repeated, .. } =
            self.endpoint.counts();
        if packets > 0 {
            tracing::debug!(packets, repeated, "sent through a queue pair in userspace");
        }
    }
}

/// A block that is sent from where it is.
struct Block(Arc<ReadLease>);

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn in_words(status: Status) -> String {
    match status {
        Status::NoAnswer => NO_ANSWER.into(),
        Status::NeverReady => NEVER_READY.into(),
        Status::Refused(code) => format!("a receiver refused a block ({code:?})"),
        Status::Done | Status::Flushed => "its queue pair has ended".into(),
    }
}
