//! Hosts: queue pairs that share a network card and its link, and the programs that use them.

use std::{collections::VecDeque, net::IpAddr, ops::Range};

use mcrdma::plan::Node;
use roce::{
    Aeth, Bth, Headers, IpHeader, Opcode, Serial,
    rc::{Arrival, Kind, Requester, RequesterConfig, Responder, Status, Work},
};

use crate::{
    Dcqcn, PS_PER_NS,
    cpu::Cpu,
    dcqcn::RateLimit,
    event::Event,
    fabric::Fabric,
    packet::{Packet, address, mixed},
};

/// First numbers of sending and of receiving queue pairs.
pub const SENDER_QPN: u32 = 0x00_0100;
pub const RECEIVER_QPN: u32 = 0x40_0000;
/// Ethernet, IP, UDP, BTH, both check sequences, preamble and gap.
const HEADER_BYTES: u64 = 14 + 20 + 8 + 12 + 4 + 4 + 20;

/// A sending queue pair, with the queue pairs that it sends to.
pub type Pair = usize;

/// What a pair's members have received in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PairCounts {
    /// Bytes of payload, of the slowest member.
    pub bytes: u64,
    /// Retransmitted packets.
    pub repeated: u64,
    /// CNPs that the sender has received.
    pub notifications: u64,
}

/// A queue pair that sends.
pub struct Outgoing {
    pub host: Node,
    pub peer: (IpAddr, u32),
    pub requester: Requester,
    /// In place of the requester's.
    rate_limit: Option<RateLimit>,
    /// It is in its card's round robin.
    pub is_active: bool,
    /// Nothing can be sent before then: of [`Requester::wakes_ns`] and the rate limit, for fast scans by its card.
    pub wakes_ns: u64,
    /// The queue pairs that it sends to.
    pub incoming: Range<usize>,
    pub repeated: u64,
    pub notifications: u64,
}

/// A queue pair that receives.
pub struct Incoming {
    pub host: Node,
    pub peer: (IpAddr, u32),
    pub responder: Responder,
    /// Time of the next CNP, where [`Dcqcn`] decides.
    notifies_ns: u64,
    pub pair: Pair,
    pub member: usize,
    /// In order, of payload.
    pub bytes: u64,
}

impl Incoming {
    /// A marked packet has come: whether a CNP is due.
    fn notifies(&mut self, now_ns: u64, dcqcn: Option<Dcqcn>) -> bool {
        let Some(dcqcn) = dcqcn else { return self.responder.congested(now_ns) };
        let is_due = now_ns >= self.notifies_ns;
        if is_due {
            self.notifies_ns = now_ns + dcqcn.notification_timer_ns;
        }
        is_due
    }
}

impl Outgoing {
    /// Its rate limit, in bits per second, if it has one.
    pub fn bits_per_s(&self) -> Option<f64> {
        let own = self.rate_limit.as_ref().map(RateLimit::bits_per_s);
        own.or_else(|| self.requester.bits_per_s())
    }
}

/// A host's network card.
#[derive(Clone, Debug, Default)]
struct Card {
    /// Answers and CNPs, which are sent before messages.
    answers: VecDeque<Packet>,
    /// Queue pairs with messages, in round robin order.
    active: VecDeque<Pair>,
    /// Time of its pending wake-up; 0: none.
    wakes_ps: u64,
}

/// All hosts of a network.
pub struct Hosts {
    dcqcn: Option<Dcqcn>,
    /// By node.
    cards: Vec<Card>,
    cpus: Vec<Cpu>,
    pub outgoing: Vec<Outgoing>,
    pub incoming: Vec<Incoming>,
}

impl Hosts {
    /// Without queue pairs, for this many nodes. `dcqcn`: in place of that of queue pairs.
    pub fn new(count: usize, dcqcn: Option<Dcqcn>) -> Self {
        Self {
            dcqcn,
            cards: vec![Card::default(); count],
            cpus: vec![Cpu::default(); count],
            outgoing: Vec::new(),
            incoming: Vec::new(),
        }
    }

    pub fn add_outgoing(
        &mut self,
        config: RequesterConfig,
        host: Node,
        peer: (IpAddr, u32),
        psn_first: Serial,
        members: usize,
    ) {
        let incoming = self.incoming.len()..self.incoming.len() + members;
        let rate = config.rate.filter(|_| self.dcqcn.is_none());
        let requester = Requester::new(RequesterConfig { rate, ..config }, psn_first);
        self.outgoing.push(Outgoing {
            host,
            peer,
            requester,
            rate_limit: self.dcqcn.map(RateLimit::new),
            is_active: false,
            wakes_ns: u64::MAX,
            incoming,
            repeated: 0,
            notifications: 0,
        });
    }

    pub fn add_incoming(
        &mut self,
        mtu_bytes: u32,
        pair: Pair,
        member: usize,
        host: Node,
        psn_first: Serial,
    ) {
        let peer = (address(self.outgoing[pair].host), SENDER_QPN + pair as u32);
        let responder = Responder::new(mtu_bytes, psn_first, 1);
        self.incoming.push(Incoming {
            host,
            peer,
            responder,
            notifies_ns: 0,
            pair,
            member,
            bytes: 0,
        });
    }

    /// The next packet that a host's card sends: answers first, then queue pairs in round robin.
    fn next_packet(&mut self, fabric: &mut Fabric, host: Node) -> Option<u32> {
        if let Some(packet) = self.cards[host].answers.pop_front() {
            return Some(fabric.packets.insert(packet));
        }
        let now_ns = fabric.now_ns();
        let mut wakes_ns = u64::MAX;
        for _ in 0..self.cards[host].active.len() {
            let pair = self.cards[host].active.pop_front()?;
            let outgoing = &mut self.outgoing[pair];
            if outgoing.requester.is_idle() {
                outgoing.is_active = false;
                continue;
            }
            self.cards[host].active.push_back(pair);
            if outgoing.wakes_ns <= now_ns
                && let Some(packet) = self.request(fabric, pair)
            {
                return Some(fabric.packets.insert(packet));
            }
            wakes_ns = wakes_ns.min(self.outgoing[pair].wakes_ns);
        }
        if wakes_ns < u64::MAX {
            // Not again at the same time: nothing would have changed.
            self.wake_at(fabric, host, wakes_ns.max(now_ns + 1) * PS_PER_NS);
        }
        None
    }

    fn wake_at(&mut self, fabric: &mut Fabric, host: Node, at_ps: u64) {
        let card = &mut self.cards[host];
        if card.wakes_ps == 0 || at_ps < card.wakes_ps {
            card.wakes_ps = at_ps;
            fabric.events.push(at_ps, Event::Wake { host });
        }
    }

    pub fn wake(&mut self, fabric: &mut Fabric, host: Node) {
        // Another may have been asked for earlier, or this one later.
        if self.cards[host].wakes_ps == fabric.now_ps {
            self.cards[host].wakes_ps = 0;
            self.send(fabric, host);
        }
    }

    /// Sends the next packet of a host's card now, or when its port can.
    pub fn send(&mut self, fabric: &mut Fabric, host: Node) {
        let Some(port) = fabric.uplink(host) else { return };
        if fabric.is_ready(port)
            && let Some(packet) = self.next_packet(fabric, host)
        {
            fabric.put_on_link(port, packet);
            fabric.schedule(port);
        }
    }

    fn request(&mut self, fabric: &mut Fabric, pair: Pair) -> Option<Packet> {
        let now_ns = fabric.now_ns();
        let outgoing = &mut self.outgoing[pair];
        let request = outgoing.requester.send(now_ns);
        if let (Some(request), Some(limit)) = (&request, &mut outgoing.rate_limit) {
            limit.sent(now_ns, u64::from(request.bytes) + HEADER_BYTES);
        }
        // A connection may have ended by this.
        self.complete(fabric, pair);
        let (request, outgoing) = (request?, &mut self.outgoing[pair]);
        outgoing.repeated += u64::from(request.is_repeated);
        let (source, (target, qpn)) = (address(outgoing.host), outgoing.peer);
        let mut headers = headers(source, target, Bth::new(request.opcode, qpn, request.psn))?;
        // Cards choose the source port by queue pair, so that pairs of the same hosts use different ECMP paths; with
        // another seed others.
        let port = (pair as u64).wrapping_add(mixed(fabric.config.seed)) as u16;
        headers.ip.source_port = 0xc000 | (port & 0x3fff);
        headers.bth.ack_requested = request.ack_requested;
        (headers.reth, headers.immediate) = (request.reth, request.immediate);
        Some(Packet { headers, payload_bytes: request.bytes, held: 0 })
    }

    /// The host's program begins to post a message, for which all receivers post a receive.
    pub fn post(&mut self, fabric: &mut Fabric, pair: Pair, bytes: u32, token: u64) {
        let outgoing = &self.outgoing[pair];
        let (host, members) = (outgoing.host, outgoing.incoming.clone());
        for incoming in &mut self.incoming[members] {
            incoming.responder.post_receive(token, bytes);
        }
        let cost_ps = fabric.config.costs.post_ns * PS_PER_NS;
        let at_ps = self.cpus[host].post(fabric.now_ps, cost_ps);
        fabric.events.push(at_ps, Event::Posted { pair, bytes, token });
    }

    /// A message is handed to a queue pair.
    pub fn posted(&mut self, fabric: &mut Fabric, pair: Pair, bytes: u32, token: u64) {
        let outgoing = &mut self.outgoing[pair];
        let host = outgoing.host;
        let work = Work { id: token, kind: Kind::Send, bytes, immediate: None };
        if let Some(limit) = outgoing.rate_limit.as_mut().filter(|_| outgoing.requester.is_idle()) {
            limit.begin();
        }
        if outgoing.requester.post(work).is_err() {
            return self.tell_end(fabric, pair, token, false);
        }
        if !outgoing.is_active {
            outgoing.is_active = true;
            self.cards[host].active.push_back(pair);
        }
        self.complete(fabric, pair);
        self.send(fabric, host);
    }

    /// Delivers completions to the host's program, and schedules the next transmission.
    fn complete(&mut self, fabric: &mut Fabric, pair: Pair) {
        let outgoing = &mut self.outgoing[pair];
        let ready_ns = outgoing.rate_limit.as_ref().map_or(0, RateLimit::ready_ns);
        outgoing.wakes_ns = outgoing.requester.wakes_ns().map_or(u64::MAX, |ns| ns.max(ready_ns));
        while let Some(completion) = self.outgoing[pair].requester.completed() {
            self.tell_end(fabric, pair, completion.id, completion.status == Status::Done);
        }
    }

    fn tell_end(&mut self, fabric: &mut Fabric, pair: Pair, token: u64, is_done: bool) {
        let at_ps = self.poll(fabric, self.outgoing[pair].host);
        fabric.events.push(at_ps, Event::Completed { pair, token, is_done });
    }

    fn poll(&mut self, fabric: &mut Fabric, host: Node) -> u64 {
        let cost_ps = fabric.config.costs.completion_ns * PS_PER_NS;
        self.cpus[host].poll(fabric.now_ps, cost_ps)
    }

    /// Handles a packet that has arrived at a host. Packets for unknown queue pairs are dropped, as cards do.
    pub fn receive(&mut self, fabric: &mut Fabric, host: Node, packet: &Packet) {
        let Bth { target_qpn: qpn, opcode, .. } = packet.headers.bth;
        if opcode.is_request() {
            let index = qpn.wrapping_sub(RECEIVER_QPN) as usize;
            if self.incoming.get(index).is_some_and(|incoming| incoming.host == host) {
                self.take(fabric, index, packet);
            }
        } else {
            let pair = qpn.wrapping_sub(SENDER_QPN) as usize;
            if self.outgoing.get(pair).is_some_and(|outgoing| outgoing.host == host) {
                self.answered(fabric, pair, &packet.headers);
            }
        }
    }

    fn take(&mut self, fabric: &mut Fabric, index: usize, packet: &Packet) {
        let now_ns = fabric.now_ns();
        let incoming = &mut self.incoming[index];
        let (host, peer) = (incoming.host, incoming.peer);
        debug_assert_eq!(packet.headers.ip.source, peer.0, "requests come from the peer");
        let is_due = packet.headers.ip.is_congested() && incoming.notifies(now_ns, self.dcqcn);
        let reaction = incoming.responder.receive(&packet.headers, packet.payload_bytes);
        if reaction.place.is_some() {
            incoming.bytes += u64::from(packet.payload_bytes);
        }
        if is_due {
            self.answer(fabric, host, peer, Bth::new(Opcode::Cnp, peer.1, Serial::new(0)), None);
        }
        if let Some((psn, aeth)) = reaction.answer {
            self.answer(fabric, host, peer, Bth::new(Opcode::Acknowledge, peer.1, psn), Some(aeth));
        }
        if let Some(Arrival { receive: Some(token), .. }) = reaction.arrival {
            let at_ps = self.poll(fabric, host);
            fabric.events.push(at_ps, Event::Arrived { incoming: index, token });
        }
    }

    fn answer(
        &mut self,
        fabric: &mut Fabric,
        host: Node,
        peer: (IpAddr, u32),
        bth: Bth,
        aeth: Option<Aeth>,
    ) {
        if let Some(mut headers) = headers(address(host), peer.0, bth) {
            headers.aeth = aeth;
            let packet = Packet { headers, payload_bytes: 0, held: 0 };
            self.cards[host].answers.push_back(packet);
            self.send(fabric, host);
        }
    }

    fn answered(&mut self, fabric: &mut Fabric, pair: Pair, headers: &Headers) {
        let now_ns = fabric.now_ns();
        let outgoing = &mut self.outgoing[pair];
        debug_assert_eq!(headers.ip.source, outgoing.peer.0, "answers come from the peer");
        let host = outgoing.host;
        match headers.aeth {
            Some(aeth) => outgoing.requester.answered(now_ns, headers.bth.psn, aeth),
            None => {
                outgoing.notifications += 1;
                outgoing.requester.notified(now_ns);
                if let Some(limit) = &mut outgoing.rate_limit {
                    limit.notified(now_ns);
                }
            }
        }
        self.complete(fabric, pair);
        self.send(fabric, host);
    }
}

/// `None`: addresses of different families, which no network here has.
fn headers(source: IpAddr, target: IpAddr, bth: Bth) -> Option<Headers> {
    Some(Headers::new(IpHeader::new(source, target).ok()?, bth))
}
