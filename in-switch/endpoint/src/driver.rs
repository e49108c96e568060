//! Sends and receives frames for queue pairs, as a network card does.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use packet_socket::{Batch, Interface, InterfaceError, Offload};
use roce::{
    Bth, ETHERNET_BYTES, Headers, Mac, Opcode, Packet, ROCE_PORT, Serial,
    rc::{MemoryRegion, Requester, RequesterConfig, Responder, Work},
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::{
    Counts, EndpointError, Event, Faults, Peer, faults::Injector, neighbours::Neighbours,
    queue_pair::QueuePair,
};

/// Packets that a queue pair sends before the next one's turn, and before received packets are read.
const BURST: usize = 64;
/// RNR timer code: 0.64 ms (IBA table 46).
const NOT_READY_TIMER: u8 = 12;
/// Range of queue pair numbers, drawn at random: several endpoints of a host receive the same packets.
/// Devices assign smaller numbers first; virtual ones are larger.
const QPNS: std::ops::Range<u32> = 0x4_0000..0x80_0000;
/// Retry interval when nothing could be sent: the socket's buffer was full, or neighbours are not resolved.
const RETRY: Duration = Duration::from_millis(1);
/// Interrupt coalescing: packets in the middle of messages are read about so many at a time, since a wake-up
/// costs more than a packet.
const COALESCED: u32 = 8;
/// Shortest and longest time to coalesce.
const COALESCING_NS: std::ops::RangeInclusive<u64> = 20_000..=500_000;

/// A host's end, on one interface with one address.
pub struct Endpoint {
    name: String,
    interface: Interface,
    address: IpAddr,
    mac: Mac,
    /// Bound and never read, so that the kernel does not answer with ICMP port unreachable. `None` where
    /// rdma_rxe has the port.
    _port: Option<OwnedFd>,
    queue_pairs: HashMap<u32, QueuePair>,
    memories: Vec<(MemoryRegion, Vec<u8>)>,
    next_start: u64,
    neighbours: Neighbours,
    events: VecDeque<Event>,
    counts: Counts,
    incoming: Injector,
    outgoing: Injector,
    batch: Batch,
    frame: Vec<u8>,
    /// Nothing that was due could be sent last time.
    is_held: bool,
    coalescing: Coalescing,
    started: Instant,
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
            mac: Mac(opened.mac()),
            interface: opened,
            address,
            _port: port,
            queue_pairs: HashMap::new(),
            memories: Vec::new(),
            next_start: 1 << 32,
            neighbours: Neighbours::default(),
            events: VecDeque::new(),
            counts: Counts::default(),
            incoming: Injector::default(),
            outgoing: Injector::default(),
            batch: Batch::new(),
            frame: Vec::new(),
            is_held: false,
            coalescing: Coalescing::default(),
            started: Instant::now(),
        })
    }

    /// The interface's Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> Mac {
        self.mac
    }

    /// The interface's MTU: longest IP packet.
    ///
    /// Errors: the interface is gone.
    pub fn mtu_bytes(&self) -> Result<u32, EndpointError> {
        self.interface.mtu_bytes().map_err(|source| self.failed(source))
    }

    /// Sets the receive buffer's size, or the largest that this process may have. Returns the size, in which
    /// the kernel counts its bookkeeping, too.
    ///
    /// Errors: the interface is gone.
    pub fn reserve(&self, bytes: usize) -> Result<usize, EndpointError> {
        self.interface.reserve(bytes).map_err(|source| self.failed(source))
    }

    /// The interface's index.
    #[must_use]
    pub const fn interface(&self) -> u32 {
        self.interface.index()
    }

    /// Injects faults from now on, into received and sent packets.
    pub fn inject(&mut self, faults: Faults) {
        self.incoming = Injector::new(faults);
        self.outgoing = Injector::new(Faults { seed: faults.seed.wrapping_add(1), ..faults });
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
        self.connect(number, peer, config, (send_psn, receive_psn));
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
        (send_psn, receive_psn): (u32, u32),
    ) {
        let requester = Requester::new(config, Serial::new(send_psn));
        let mut responder =
            Responder::new(config.mtu_bytes, Serial::new(receive_psn), NOT_READY_TIMER);
        self.memories.iter().for_each(|(memory, _)| responder.register(*memory));
        let queue_pair = QueuePair::new(number, peer, requester, responder);
        self.queue_pairs.insert(number, queue_pair);
        // Resolved now, so that the first answer is not delayed.
        let _ = self.resolve(&peer);
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

    /// Posts a message. Its `id` has to differ from those that have not completed.
    pub fn send(&mut self, qpn: u32, work: Work, bytes: Arc<[u8]>) -> Result<(), EndpointError> {
        if work.bytes as usize != bytes.len() {
            return Err(EndpointError::Length { work: work.bytes, given: bytes.len() });
        }
        let queue_pair = self.get(qpn)?;
        queue_pair.requester.post(work)?;
        queue_pair.keep_message(work.id, bytes);
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

    /// Sends what is due, then reads and answers received packets. Waits up to `patience` if there is nothing
    /// to do.
    ///
    /// Errors: the interface is down or gone.
    pub fn progress(&mut self, patience: Duration) -> Result<(), EndpointError> {
        let has_sent = self.send_requests();
        self.is_held = !has_sent;
        let wakes_in = self.wakes_in().unwrap_or(patience);
        let patience = if has_sent { Duration::ZERO } else { patience.min(wakes_in) };
        let mut batch = std::mem::take(&mut self.batch);
        let received = self.interface.receive(&mut batch, patience);
        let mut incoming = std::mem::take(&mut self.incoming);
        self.coalescing.is_urgent = false;
        for (_, frame) in batch.frames() {
            let injected = incoming.apply(frame, |frame| self.take(frame));
            self.counts.faults_injected += injected;
        }
        if let Ok(packets @ 1..) = received {
            let now_ns = self.now_ns();
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

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Time until [`Endpoint::progress`] has to be called even if no frame arrives; `None`: no timer is set.
    /// For callers that poll its descriptor together with others.
    #[must_use]
    pub fn wakes_in(&self) -> Option<Duration> {
        let wakes = self.queue_pairs.values().filter_map(|pair| pair.requester.wakes_ns()).min();
        let wait = Duration::from_nanos(wakes?.saturating_sub(self.now_ns()));
        Some(if wait.is_zero() && self.is_held { RETRY } else { wait })
    }

    /// Interrupt coalescing: how long the descriptor need not be polled, because the last packets were in the
    /// middle of a message. For callers that poll it together with others.
    #[must_use]
    pub fn coalesces_for(&self) -> Option<Duration> {
        let left = self.coalescing.until_ns.saturating_sub(self.now_ns());
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// Whether something was sent.
    fn send_requests(&mut self) -> bool {
        let numbers: Vec<u32> = self.queue_pairs.keys().copied().collect();
        let mut has_sent = false;
        for number in numbers {
            // Removed meanwhile, so that `self` can be borrowed.
            let Some(mut queue_pair) = self.queue_pairs.remove(&number) else { continue };
            has_sent |= self.send_of(&mut queue_pair);
            self.queue_pairs.insert(number, queue_pair);
        }
        has_sent
    }

    fn send_of(&mut self, queue_pair: &mut QueuePair) -> bool {
        let mut count = 0;
        while count < BURST {
            let now_ns = self.now_ns();
            if queue_pair.requester.wakes_ns().is_none_or(|wakes_ns| wakes_ns > now_ns) {
                break;
            }
            let Some(mac) = self.resolve(&queue_pair.peer) else { break };
            let Some(request) = queue_pair.requester.send(now_ns) else { break };
            let Some((headers, payload)) = queue_pair.request(self.address, &request) else {
                break;
            };
            if !self.emit(mac, &headers, payload) {
                queue_pair.requester.take_back();
                break;
            }
            self.counts.requests_sent += 1;
            self.counts.requests_repeated += u64::from(request.is_repeated);
            count += 1;
        }
        count > 0
    }

    /// The Ethernet address for a peer; sends a request if it is not known.
    fn resolve(&mut self, peer: &Peer) -> Option<Mac> {
        let address = peer.next_hop.unwrap_or(peer.address);
        let known = self.neighbours.get(address);
        if known.is_none() {
            let (now_ns, own) = (self.now_ns(), (self.address, self.mac));
            if let Some(question) = self.neighbours.ask(now_ns, own, address) {
                // Retransmitted if this fails.
                let _ = self.interface.send(Offload::NONE, &question);
            }
        }
        known
    }

    /// Sends a packet. Whether the socket took it; packets lost by fault injection count as sent.
    fn emit(&mut self, mac: Mac, headers: &Headers, payload: &[u8]) -> bool {
        let kind: [u8; 2] = if self.address.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
        self.frame.resize(ETHERNET_BYTES + headers.packet_bytes(payload.len()), 0);
        self.frame[..6].copy_from_slice(&mac.0);
        self.frame[6..12].copy_from_slice(&self.mac.0);
        self.frame[12..14].copy_from_slice(&kind);
        if headers.write(payload, &mut self.frame[ETHERNET_BYTES..]).is_err() {
            return true;
        }
        let mut has_room = true;
        let interface = &self.interface;
        self.counts.faults_injected += self.outgoing.apply(&self.frame, |frame| {
            has_room &= interface.send(Offload::NONE, frame).is_ok();
        });
        has_room
    }

    fn take(&mut self, frame: &[u8]) {
        let Some(inner) = frame.get(ETHERNET_BYTES..) else { return };
        let Ok(packet) = Packet::parse(inner) else {
            return self.neighbours.learn(frame);
        };
        let Bth { opcode, ack_requested, .. } = packet.headers.bth;
        self.coalescing.is_urgent |= ack_requested || opcode.ends() || !opcode.is_request();
        let headers = packet.headers;
        let number = headers.bth.target_qpn;
        let Some(mut queue_pair) = self.queue_pairs.remove(&number) else { return };
        let is_ours =
            headers.ip.target == self.address && headers.ip.source == queue_pair.peer.address;
        if is_ours && packet.is_intact() {
            self.take_packet(&mut queue_pair, &headers, packet.payload);
        } else {
            self.counts.refused += 1;
        }
        self.queue_pairs.insert(number, queue_pair);
    }

    fn take_packet(&mut self, queue_pair: &mut QueuePair, headers: &Headers, payload: &[u8]) {
        let now_ns = self.now_ns();
        if let Some(aeth) = headers.aeth {
            self.counts.answers_received += 1;
            return queue_pair.requester.answered(now_ns, headers.bth.psn, aeth);
        }
        if headers.bth.opcode == Opcode::Cnp {
            self.counts.notifications_received += 1;
            return queue_pair.requester.notified(now_ns);
        }
        self.counts.requests_received += 1;
        let is_noticed = headers.ip.is_congested() && queue_pair.responder.congested(now_ns);
        let memories = &mut self.memories;
        let (answer, event) = queue_pair.receive(headers, payload, |address, bytes| {
            write(memories, address, bytes);
        });
        self.events.extend(event);
        if is_noticed {
            self.answer(queue_pair, None);
        }
        if answer.is_some() {
            self.coalescing.is_urgent = true;
            self.answer(queue_pair, answer);
        }
    }

    fn answer(&mut self, queue_pair: &QueuePair, answer: Option<(Serial, roce::Aeth)>) {
        let Some(mac) = self.resolve(&queue_pair.peer) else { return };
        if let Some(headers) = queue_pair.answer(self.address, answer)
            && self.emit(mac, &headers, &[])
        {
            self.counts.answers_sent += 1;
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
        self.interface.as_fd()
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
