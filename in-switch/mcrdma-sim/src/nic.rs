//! Network cards: queue pairs that share a host's link.

use std::{collections::VecDeque, net::IpAddr, ops::Range};

use mcrdma::plan::Node;
use roce::{
    Aeth, Bth, Headers, IpHeader, Opcode, Serial,
    rc::{Arrival, Kind, Requester, Responder, Status, Work},
};

use crate::{
    Network, PS_PER_NS, Pair,
    event::Event,
    network::{RECEIVER_QPN, SENDER_QPN},
    packet::{Packet, address},
};

/// A queue pair that sends.
pub struct Outgoing {
    pub host: Node,
    pub peer: (IpAddr, u32),
    pub requester: Requester,
    /// It is among those that its card looks at.
    pub is_active: bool,
    /// Nothing can be sent before then. What [`Requester::wakes_ns`] says, kept where a card that
    /// looks at all of its queue pairs finds it at once.
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
    pub pair: Pair,
    pub member: usize,
    /// In order, of payload.
    pub bytes: u64,
}

/// A host's network card.
#[derive(Clone, Debug, Default)]
pub struct Card {
    /// Answers and congestion notifications go before messages.
    answers: VecDeque<Packet>,
    /// Queue pairs with messages, in the order of their turns.
    active: VecDeque<Pair>,
    /// It will look for what to send then; 0: when something happens.
    wakes_ps: u64,
}

impl Network {
    /// The next packet that a host's card sends: answers first, then each queue pair by turns that
    /// may send now.
    pub(crate) fn next_packet(&mut self, host: Node) -> Option<u32> {
        if let Some(packet) = self.cards[host].answers.pop_front() {
            return Some(self.packets.insert(packet));
        }
        let now_ns = self.now_ns();
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
                && let Some(packet) = self.request(pair)
            {
                return Some(self.packets.insert(packet));
            }
            wakes_ns = wakes_ns.min(self.outgoing[pair].wakes_ns);
        }
        if wakes_ns < u64::MAX {
            // Not again at the same time: nothing would have changed.
            self.wake_at(host, wakes_ns.max(now_ns + 1) * PS_PER_NS);
        }
        None
    }

    fn wake_at(&mut self, host: Node, at_ps: u64) {
        let card = &mut self.cards[host];
        if card.wakes_ps == 0 || at_ps < card.wakes_ps {
            card.wakes_ps = at_ps;
            self.events.push(at_ps, Event::Wake { host });
        }
    }

    pub(crate) fn wake(&mut self, host: Node) {
        // Another may have been asked for earlier, or this one later.
        if self.cards[host].wakes_ps == self.now_ps {
            self.cards[host].wakes_ps = 0;
            self.send(host);
        }
    }

    fn send(&mut self, host: Node) {
        if let Some(port) = self.uplink(host) {
            self.transmit(port);
        }
    }

    fn request(&mut self, pair: Pair) -> Option<Packet> {
        let now_ns = self.now_ns();
        let request = self.outgoing[pair].requester.send(now_ns);
        // A connection may have ended by this.
        self.complete(pair);
        let (request, outgoing) = (request?, &mut self.outgoing[pair]);
        outgoing.repeated += u64::from(request.is_repeated);
        let (source, (target, qpn)) = (address(outgoing.host), outgoing.peer);
        let mut headers = headers(source, target, Bth::new(request.opcode, qpn, request.psn))?;
        // Cards choose it by the queue pair, so that pairs of the same hosts take different ways.
        headers.ip.source_port = 0xc000 | (pair as u16 & 0x3fff);
        headers.bth.ack_requested = request.ack_requested;
        (headers.reth, headers.immediate) = (request.reth, request.immediate);
        Some(Packet { headers, payload_bytes: request.bytes, held: 0 })
    }

    /// A message is handed to a queue pair.
    pub(crate) fn posted(&mut self, pair: Pair, bytes: u32, token: u64) {
        let outgoing = &mut self.outgoing[pair];
        let host = outgoing.host;
        let work = Work { id: token, kind: Kind::Send, bytes, immediate: None };
        if outgoing.requester.post(work).is_err() {
            return self.tell_end(pair, token, false);
        }
        if !outgoing.is_active {
            outgoing.is_active = true;
            self.cards[host].active.push_back(pair);
        }
        self.complete(pair);
        self.send(host);
    }

    /// Tells the host's program of messages that have ended, and finds when there is more to send.
    fn complete(&mut self, pair: Pair) {
        let outgoing = &mut self.outgoing[pair];
        outgoing.wakes_ns = outgoing.requester.wakes_ns().unwrap_or(u64::MAX);
        while let Some(completion) = self.outgoing[pair].requester.completed() {
            self.tell_end(pair, completion.id, completion.status == Status::Done);
        }
    }

    fn tell_end(&mut self, pair: Pair, token: u64, is_done: bool) {
        let at_ps = self.poll(self.outgoing[pair].host);
        self.events.push(at_ps, Event::Completed { pair, token, is_done });
    }

    fn poll(&mut self, host: Node) -> u64 {
        let cost_ps = self.config.costs.completion_ns * PS_PER_NS;
        self.cpus[host].poll(self.now_ps, cost_ps)
    }

    /// A packet has come to a host. What is for nobody there is dropped, as cards do.
    pub(crate) fn receive(&mut self, host: Node, packet: &Packet) {
        let Bth { target_qpn: qpn, opcode, .. } = packet.headers.bth;
        if opcode.is_request() {
            let index = qpn.wrapping_sub(RECEIVER_QPN) as usize;
            if self.incoming.get(index).is_some_and(|incoming| incoming.host == host) {
                self.take(index, packet);
            }
        } else {
            let pair = qpn.wrapping_sub(SENDER_QPN) as usize;
            if self.outgoing.get(pair).is_some_and(|outgoing| outgoing.host == host) {
                self.answered(pair, &packet.headers);
            }
        }
    }

    fn take(&mut self, index: usize, packet: &Packet) {
        let now_ns = self.now_ns();
        let incoming = &mut self.incoming[index];
        let (host, peer) = (incoming.host, incoming.peer);
        debug_assert_eq!(packet.headers.ip.source, peer.0, "requests come from the peer");
        let is_due = packet.headers.ip.is_congested() && incoming.responder.congested(now_ns);
        let reaction = incoming.responder.receive(&packet.headers, packet.payload_bytes);
        if reaction.place.is_some() {
            incoming.bytes += u64::from(packet.payload_bytes);
        }
        if is_due {
            self.answer(host, peer, Bth::new(Opcode::Cnp, peer.1, Serial::new(0)), None);
        }
        if let Some((psn, aeth)) = reaction.answer {
            self.answer(host, peer, Bth::new(Opcode::Acknowledge, peer.1, psn), Some(aeth));
        }
        if let Some(Arrival { receive: Some(token), .. }) = reaction.arrival {
            let at_ps = self.poll(host);
            self.events.push(at_ps, Event::Arrived { incoming: index, token });
        }
    }

    fn answer(&mut self, host: Node, peer: (IpAddr, u32), bth: Bth, aeth: Option<Aeth>) {
        if let Some(mut headers) = headers(address(host), peer.0, bth) {
            headers.aeth = aeth;
            let packet = Packet { headers, payload_bytes: 0, held: 0 };
            self.cards[host].answers.push_back(packet);
            self.send(host);
        }
    }

    fn answered(&mut self, pair: Pair, headers: &Headers) {
        let now_ns = self.now_ns();
        let outgoing = &mut self.outgoing[pair];
        debug_assert_eq!(headers.ip.source, outgoing.peer.0, "answers come from the peer");
        let host = outgoing.host;
        match headers.aeth {
            Some(aeth) => outgoing.requester.answered(now_ns, headers.bth.psn, aeth),
            None => {
                outgoing.notifications += 1;
                outgoing.requester.notified(now_ns);
            }
        }
        self.complete(pair);
        self.send(host);
    }
}

/// `None`: addresses of different families, which no network here has.
fn headers(source: IpAddr, target: IpAddr, bth: Bth) -> Option<Headers> {
    Some(Headers::new(IpHeader::new(source, target).ok()?, bth))
}
