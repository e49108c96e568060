//! Sends and receives frames for queue pairs, as a network card does.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use packet_socket::{Batch, Interface, InterfaceError};
use roce::{
    Bth, ETHERNET_BYTES, Headers, Mac, Opcode, Packet, ROCE_PORT, Serial,
    rc::{MemoryRegion, Requester, RequesterConfig, Responder, Work},
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::{
    Counts, EndpointError, Event, Faults, Peer, egress::Egress, faults::Injector,
    queue_pair::QueuePair,
};

/// RNR timer code: 0.64 ms (IBA table 46).
const NOT_READY_TIMER: u8 = 12;
/// Range of queue pair numbers, drawn at random: several endpoints of a host receive the same packets.
/// Devices assign smaller numbers first; virtual ones are larger.
const QPNS: std::ops::Range<u32> = 0x4_0000..0x80_0000;
/// Retry interval when nothing could be sent: the socket's buffer was full, or neighbours are not resolved.
const RETRY: Duration = Duration::from_millis(1);
/// Interrupt coalescing: packets in the middle of messages are read about this many at a time, since a wake-up
/// costs more than a packet.
const COALESCED: u32 = 8;
/// Shortest and longest time to coalesce.
const COALESCING_NS: std::ops::RangeInclusive<u64> = 20_000..=500_000;

/// A host's end, on one interface with one address.
pub struct Endpoint {
    name: String,
    egress: Egress,
    /// Bound and never read, so that the kernel does not answer with ICMP port unreachable. `None` where
    /// rdma_rxe has the port.
    _port: Option<OwnedFd>,
    queue_pairs: HashMap<u32, QueuePair>,
    memories: Vec<(MemoryRegion, Vec<u8>)>,
    next_start: u64,
    events: VecDeque<Event>,
    counts: Counts,
    incoming: Injector,
    batch: Batch,
    /// Nothing that was due could be sent last time.
    is_held: bool,
    coalescing: Coalescing,
}

/// State of interrupt coalescing.
#[derive(Default)]
struct Coalescing {
    /// When packets were read last.
    taken_ns: u64,
    until_ns: u64,
    /// A packet that was read last required an answer or ended a message.
    is_urgent: bool,
}

impl Coalescing {
    /// Packets have been read: assumes the same rate from here on.
    fn took(&mut self, now_ns: u64, packets: usize) {
        let since_ns = now_ns - self.taken_ns;
        let wait_ns = since_ns * u64::from(COALESCED) / packets as u64;
        self.taken_ns = now_ns;
        let is_worth_it = !self.is_urgent && wait_ns >= *COALESCING_NS.start();
        let wait_ns = if is_worth_it { wait_ns.min(*COALESCING_NS.end()) } else { 0 };
        self.until_ns = now_ns + wait_ns;
    }
}

impl Endpoint {
    /// Opens an interface of this host by one of its addresses. Needs CAP_NET_RAW.
    pub fn open(interface: &str, address: IpAddr) -> Result<Self, EndpointError> {
        let port = match take_port(address) {
            Ok(port) => Some(port),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
            Err(source) => {
                let (name, step) = (interface.to_owned(), "take UDP port 4791 of its address");
                return Err(InterfaceError { name, step, source }.into());
            }
        };
        let opened = Interface::open(interface, false)?;
        Ok(Self {
            name: interface.to_owned(),
            egress: Egress::new(opened, address),
            _port: port,
            queue_pairs: HashMap::new(),
            memories: Vec::new(),
            next_start: 1 << 32,
            events: VecDeque::new(),
            counts: Counts::default(),
            incoming: Injector::default(),
            batch: Batch::new(),
            is_held: false,
            coalescing: Coalescing::default(),
        })
    }

    /// The interface's Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> Mac {
        self.egress.mac
    }

    /// The interface's MTU: longest IP packet.
    ///
    /// Errors: the interface is gone.
    pub fn mtu_bytes(&self) -> Result<u32, EndpointError> {
        self.egress.interface.mtu_bytes().map_err(|source| self.failed(source))
    }

    /// Sets the receive buffer's size, or the largest that this process may have. Returns the size, in which
    /// the kernel counts its bookkeeping, too.
    ///
    /// Errors: the interface is gone.
    pub fn reserve(&self, bytes: usize) -> Result<usize, EndpointError> {
        self.egress.interface.reserve(bytes).map_err(|source| self.failed(source))
    }

    /// The interface's index.
    #[must_use]
    pub const fn interface(&self) -> u32 {
        self.egress.interface.index()
    }

    /// Injects faults from now on, into received and sent packets.
    pub fn inject(&mut self, faults: Faults) {
        self.incoming = Injector::new(faults);
        self.egress.inject(Faults { seed: faults.seed.wrapping_add(1), ..faults });
    }

    /// Makes a queue pair that is connected to a peer, without a handshake. Returns its number.
    ///
    /// `send_psn`, `receive_psn`: PSNs of the first packets of both directions.
    pub fn queue_pair(
        &mut self,
        peer: Peer,
        config: RequesterConfig,
        send_psn: u32,
        receive_psn: u32,
    ) -> u32 {
        let number = self.draw_number();
        self.connect(number, peer, config, send_psn, receive_psn);
        number
    }

    /// A number for a queue pair that will be connected later, to exchange with its peer before.
    #[must_use]
    pub fn draw_number(&self) -> u32 {
        loop {
            let number = rand::random_range(QPNS);
            if !self.queue_pairs.contains_key(&number) {
                return number;
            }
        }
    }

    /// As [`Endpoint::queue_pair`], with a number that was drawn.
    pub fn connect(
        &mut self,
        number: u32,
        peer: Peer,
        config: RequesterConfig,
        send_psn: u32,
        receive_psn: u32,
    ) {
        let requester = Requester::new(config, Serial::new(send_psn));
        let mut responder =
            Responder::new(config.mtu_bytes, Serial::new(receive_psn), NOT_READY_TIMER);
        self.memories.iter().for_each(|(memory, _)| responder.register(*memory));
        let queue_pair = QueuePair::new(number, peer, requester, responder);
        self.queue_pairs.insert(number, queue_pair);
        // Resolved now, so that the first answer is not delayed.
        let _ = self.egress.resolve(&peer);
    }

    /// Destroys a queue pair; its peer is not notified. Whether it was there.
    pub fn remove(&mut self, qpn: u32) -> bool {
        self.queue_pairs.remove(&qpn).is_some()
    }

    /// Registers zeroed memory that peers of all queue pairs may write.
    pub fn register(&mut self, bytes: usize) -> MemoryRegion {
        let key = self.memories.len() as u32 + 1;
        let memory = MemoryRegion { start: self.next_start, bytes: bytes as u64, key };
        self.next_start += bytes.next_multiple_of(1 << 32) as u64;
        self.memories.push((memory, vec![0; bytes]));
        let all = self.queue_pairs.values_mut();
        all.for_each(|queue_pair| queue_pair.responder.register(memory));
        memory
    }

    /// Registered memory, by its key.
    #[must_use]
    pub fn memory(&self, key: u32) -> Option<&[u8]> {
        let found = self.memories.iter().find(|(memory, _)| memory.key == key);
        found.map(|(_, bytes)| &bytes[..])
    }

    fn get(&mut self, qpn: u32) -> Result<&mut QueuePair, EndpointError> {
        self.queue_pairs.get_mut(&qpn).ok_or(EndpointError::QueuePair { qpn })
    }

    /// Posts a message. Its `id` has to differ from those that have not completed. Its bytes are sent from where they
    /// are, and dropped when it has completed or its queue pair is removed.
    pub fn send(
        &mut self,
        qpn: u32,
        work: Work,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<(), EndpointError> {
        let given = bytes.as_ref().len();
        if work.bytes as usize != given {
            return Err(EndpointError::Length { work: work.bytes, given });
        }
        let queue_pair = self.get(qpn)?;
        queue_pair.requester.post(work)?;
        queue_pair.keep_message(work.id, Box::new(bytes));
        Ok(())
    }

    /// A queue pair's current rate, if it has rate control (DCQCN).
    #[must_use]
    pub fn rate_bits_per_s(&self, qpn: u32) -> Option<f64> {
        self.queue_pairs.get(&qpn)?.requester.bits_per_s()
    }

    /// Posts a receive. Its memory is returned with the completion.
    pub fn receive(&mut self, qpn: u32, id: u64, memory: Vec<u8>) -> Result<(), EndpointError> {
        self.get(qpn)?.post_receive(id, memory);
        Ok(())
    }

    /// The next completion.
    pub fn completed(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Values of the counters.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Sends what is due, then reads and answers received packets. Waits up to `timeout` if there is nothing
    /// to do.
    ///
    /// Errors: the interface is down or gone.
    pub fn progress(&mut self, timeout: Duration) -> Result<(), EndpointError> {
        let mut has_sent = false;
        for queue_pair in self.queue_pairs.values_mut() {
            has_sent |= self.egress.send_requests(queue_pair, &mut self.counts);
        }
        self.is_held = !has_sent;
        let wakes_in = self.wakes_in().unwrap_or(timeout);
        let timeout = if has_sent { Duration::ZERO } else { timeout.min(wakes_in) };
        let mut batch = std::mem::take(&mut self.batch);
        let received = self.egress.interface.receive(&mut batch, timeout);
        let mut incoming = std::mem::take(&mut self.incoming);
        self.coalescing.is_urgent = false;
        for (_, frame) in batch.frames() {
            let injected = incoming.apply(frame, |frame| self.take(frame));
            self.counts.faults_injected += injected;
        }
        if let Ok(packets @ 1..) = received {
            let now_ns = self.egress.now_ns();
            self.coalescing.took(now_ns, packets);
        }
        (self.incoming, self.batch) = (incoming, batch);
        // A received packet may have opened a window, or resolved a neighbour.
        self.is_held &= matches!(received, Ok(0));
        let (all, events) = (self.queue_pairs.values_mut(), &mut self.events);
        all.for_each(|queue_pair| queue_pair.sent(events));
        received.map(drop).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> EndpointError {
        EndpointError::Failed { name: self.name.clone(), source }
    }

    /// Time until [`Endpoint::progress`] has to be called even if no frame arrives; `None`: no timer is set.
    /// For callers that poll its descriptor together with others.
    #[must_use]
    pub fn wakes_in(&self) -> Option<Duration> {
        let wakes = self.queue_pairs.values().filter_map(|pair| pair.requester.wakes_ns()).min();
        let wait = Duration::from_nanos(wakes?.saturating_sub(self.egress.now_ns()));
        Some(if wait.is_zero() && self.is_held { RETRY } else { wait })
    }

    /// Interrupt coalescing: how long the descriptor need not be polled, because the last packets were in the
    /// middle of a message. For callers that poll it together with others.
    #[must_use]
    pub fn coalesces_for(&self) -> Option<Duration> {
        let left = self.coalescing.until_ns.saturating_sub(self.egress.now_ns());
        (left > 0).then(|| Duration::from_nanos(left))
    }

    fn take(&mut self, frame: &[u8]) {
        let Some(inner) = frame.get(ETHERNET_BYTES..) else { return };
        let Ok(packet) = Packet::parse(inner) else {
            if self.egress.learn(frame) {
                self.queue_pairs.values_mut().for_each(|queue_pair| queue_pair.mac = None);
            }
            return;
        };
        let Bth { opcode, ack_requested, .. } = packet.headers.bth;
        self.coalescing.is_urgent |= ack_requested || opcode.ends() || !opcode.is_request();
        let headers = packet.headers;
        let Some(queue_pair) = self.queue_pairs.get(&headers.bth.target_qpn) else { return };
        let is_ours = headers.ip.target == self.egress.address
            && headers.ip.source == queue_pair.peer.address;
        if is_ours && packet.is_intact() {
            self.take_packet(&headers, packet.payload);
        } else {
            self.counts.refused += 1;
        }
    }

    fn take_packet(&mut self, headers: &Headers, payload: &[u8]) {
        let now_ns = self.egress.now_ns();
        let Self { queue_pairs, memories, events, counts, egress, coalescing, .. } = self;
        let Some(queue_pair) = queue_pairs.get_mut(&headers.bth.target_qpn) else { return };
        if let Some(aeth) = headers.aeth {
            counts.answers_received += 1;
            return queue_pair.requester.answered(now_ns, headers.bth.psn, aeth);
        }
        if headers.bth.opcode == Opcode::Cnp {
            counts.notifications_received += 1;
            return queue_pair.requester.notified(now_ns);
        }
        counts.requests_received += 1;
        let is_noticed = headers.ip.is_congested() && queue_pair.responder.congested(now_ns);
        let (answer, event) = queue_pair.receive(headers, payload, |address, bytes| {
            write(memories, address, bytes);
        });
        events.extend(event);
        if is_noticed {
            egress.answer(queue_pair, None, counts);
        }
        if answer.is_some() {
            coalescing.is_urgent = true;
            egress.answer(queue_pair, answer, counts);
        }
    }
}

/// Binds RoCE's UDP port, shared with other endpoints of this address.
fn take_port(address: IpAddr) -> io::Result<OwnedFd> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::new(address, ROCE_PORT))?;
    Ok(socket)
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.egress.interface.as_fd()
    }
}

/// Writes to registered memory; the responder has checked the range.
fn write(memories: &mut [(MemoryRegion, Vec<u8>)], address: u64, bytes: &[u8]) {
    for (memory, room) in memories {
        let place = address.checked_sub(memory.start).filter(|offset| *offset < memory.bytes);
        let room = place.and_then(|offset| room.get_mut(offset as usize..));
        if let Some(room) = room.and_then(|room| room.get_mut(..bytes.len())) {
            room.copy_from_slice(bytes);
            return;
        }
    }
}
