//! How frames leave: the interface, its neighbours, and batches of a queue pair's packets.

use std::{iter, net::IpAddr, time::Instant};

use packet_socket::{BATCH, Interface, Offload, Outgoing};
use roce::{
    Aeth, ETHERNET_BYTES, HEAD_BYTES_MAX, Headers, Mac, Serial, TAIL_BYTES_MAX, rc::Request,
};

use crate::{
    Counts, Faults, Peer, faults::Injector, neighbours::Neighbours, queue_pair::QueuePair,
};

/// Packets that a queue pair sends before the next one's turn, and before received packets are read.
const BURST: usize = 2 * BATCH;

pub(crate) struct Egress {
    pub(crate) interface: Interface,
    pub(crate) address: IpAddr,
    pub(crate) mac: Mac,
    neighbours: Neighbours,
    outgoing: Injector,
    /// Reused: packets that are to be sent by one system call.
    requests: Vec<Request>,
    /// Reused: a frame in one piece.
    frame: Vec<u8>,
    started: Instant,
}

impl Egress {
    pub(crate) fn new(interface: Interface, address: IpAddr) -> Self {
        Self {
            mac: Mac(interface.mac()),
            interface,
            address,
            neighbours: Neighbours::default(),
            outgoing: Injector::default(),
            requests: Vec::with_capacity(BATCH),
            frame: Vec::new(),
            started: Instant::now(),
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    pub(crate) fn inject(&mut self, faults: Faults) {
        self.outgoing = Injector::new(faults);
    }

    /// The Ethernet address for a peer; sends a request if it is not known.
    pub(crate) fn resolve(&mut self, peer: &Peer) -> Option<Mac> {
        let address = peer.next_hop.unwrap_or(peer.address);
        let known = self.neighbours.get(address);
        if known.is_none() {
            let now_ns = self.now_ns();
            if let Some(question) = self.neighbours.ask(now_ns, self.address, self.mac, address) {
                // Retransmitted if this fails.
                let _ = self.interface.send(Offload::NONE, &question);
            }
        }
        known
    }

    /// Takes a frame that is no packet of RoCE. Whether it has changed a neighbour's address.
    pub(crate) fn learn(&mut self, frame: &[u8]) -> bool {
        self.neighbours.learn(frame)
    }

    fn mac_of(&mut self, queue_pair: &mut QueuePair) -> Option<Mac> {
        if queue_pair.mac.is_none() {
            queue_pair.mac = self.resolve(&queue_pair.peer);
        }
        queue_pair.mac
    }

    /// Sends what is due of a queue pair, a burst at most. Whether there was anything.
    pub(crate) fn send_requests(
        &mut self,
        queue_pair: &mut QueuePair,
        counts: &mut Counts,
    ) -> bool {
        let mut count = 0;
        let mut requests = std::mem::take(&mut self.requests);
        while count < BURST {
            let now_ns = self.now_ns();
            if queue_pair.requester.wakes_ns().is_none_or(|wakes_ns| wakes_ns > now_ns) {
                break;
            }
            let Some(mac) = self.mac_of(queue_pair) else { break };
            requests.clear();
            requests.extend(iter::from_fn(|| queue_pair.requester.send(now_ns)).take(BATCH));
            let sent = self.send_batch(queue_pair, mac, &requests, counts);
            let (sent, held) = requests.split_at(sent);
            held.iter().rev().for_each(|request| queue_pair.requester.take_back(request));
            counts.requests_sent += sent.len() as u64;
            counts.requests_repeated +=
                sent.iter().map(|sent| u64::from(sent.is_repeated)).sum::<u64>();
            count += sent.len();
            if sent.len() < BATCH {
                break;
            }
        }
        self.requests = requests;
        count > 0
    }

    /// Sends requests in order, up to the first that the socket refuses. Returns how many it took; those that are lost by
    /// fault injection count as sent.
    fn send_batch(
        &mut self,
        queue_pair: &QueuePair,
        mac: Mac,
        requests: &[Request],
        counts: &mut Counts,
    ) -> usize {
        let own = self.address;
        let packet = |request| queue_pair.request(own, request);
        if self.outgoing.is_active() {
            let mut requests = requests.iter();
            let mut count = 0;
            while let Some((headers, payload)) = requests.next().and_then(&packet)
                && self.emit(mac, &headers, payload, counts)
            {
                count += 1;
            }
            return count;
        }
        let mut heads = [[0; ETHERNET_BYTES + HEAD_BYTES_MAX]; BATCH];
        let mut tails = [[0; TAIL_BYTES_MAX]; BATCH];
        let mut frames = [Outgoing::whole(Offload::NONE, &[]); BATCH];
        let mut count = 0;
        let places = heads.iter_mut().zip(&mut tails).zip(&mut frames);
        for (request, ((head, tail), frame)) in requests.iter().zip(places) {
            let Some((headers, payload)) = packet(request) else { break };
            self.write_ethernet(mac, head);
            let written = headers.write_around(payload, &mut head[ETHERNET_BYTES..], tail);
            let Ok((head_bytes, tail_bytes)) = written else { break };
            frame.parts = [&head[..ETHERNET_BYTES + head_bytes], payload, &tail[..tail_bytes]];
            count += 1;
        }
        self.interface.send_some(&frames[..count])
    }

    /// Sends an answer; `None`: a CNP.
    pub(crate) fn answer(
        &mut self,
        queue_pair: &mut QueuePair,
        answer: Option<(Serial, Aeth)>,
        counts: &mut Counts,
    ) {
        let Some(mac) = self.mac_of(queue_pair) else { return };
        if let Some(headers) = queue_pair.answer(self.address, answer)
            && self.emit(mac, &headers, &[], counts)
        {
            counts.answers_sent += 1;
        }
    }

    /// Sends a packet by itself, with the faults to inject. Whether the socket took it; lost packets count as sent.
    fn emit(&mut self, mac: Mac, headers: &Headers, payload: &[u8], counts: &mut Counts) -> bool {
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(ETHERNET_BYTES + headers.packet_bytes(payload.len()), 0);
        self.write_ethernet(mac, &mut frame);
        let mut has_room = true;
        if headers.write(payload, &mut frame[ETHERNET_BYTES..]).is_ok() {
            let interface = &self.interface;
            counts.faults_injected += self.outgoing.apply(&frame, |frame| {
                has_room &= interface.send(Offload::NONE, frame).is_ok();
            });
        }
        self.frame = frame;
        has_room
    }

    fn write_ethernet(&self, mac: Mac, frame: &mut [u8]) {
        let kind: [u8; 2] = if self.address.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
        frame[..6].copy_from_slice(&mac.0);
        frame[6..12].copy_from_slice(&self.mac.0);
        frame[12..14].copy_from_slice(&kind);
    }
}
