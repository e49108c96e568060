//! The network itself: members, connections, time.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use transport::{Cause, Completion, EndpointId, PostError, ReadLease, Token, WriteLease};

use crate::{
    events::{Event, Events},
    member::{SimLink, SimTransport},
    ports::{Port, Receive, Send, Transfer},
};

/// How the network behaves. [`SimConfig::default`]: 1 GB/s ports, no latency, no delays.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Rate of a member's port in each direction, unless set for the member.
    pub bytes_per_second: u64,
    /// Time from a port to the other end of a link, for blocks and control words.
    pub latency_ns: u64,
    /// Each block takes longer by a random part, uniform from 0 to this many thousandths.
    pub block_jitter_permille: u64,
    /// Each control word takes longer by a random time, uniform from 0 to this.
    pub control_jitter_ns: u64,
    /// How long it takes until peers notice that a member has died.
    pub detection_ns: u64,
    /// Whether bytes are really copied. Without, only time is simulated: for very large groups.
    pub carry_bytes: bool,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            bytes_per_second: 1_000_000_000,
            latency_ns: 0,
            block_jitter_permille: 0,
            control_jitter_ns: 0,
            detection_ns: 0,
            carry_bytes: true,
        }
    }
}

/// See the crate's documentation. Clones are handles of the same network.
#[derive(Clone)]
pub struct SimNetwork {
    core: Rc<RefCell<Core>>,
}

pub(crate) struct Core {
    config: SimConfig,
    random: ChaCha8Rng,
    now_ns: u64,
    events: Events,
    members: Vec<Member>,
    endpoints: Vec<Endpoint>,
    transfers: Vec<Option<Transfer>>,
    free_transfers: Vec<usize>,
    sends_posted: u64,
    receives_posted: u64,
    choosing: Vec<usize>,
    /// Members that have got completions and have not been named by [`SimNetwork::step`] since.
    due: VecDeque<usize>,
}

struct Member {
    alive: bool,
    port: Port,
    completions: VecDeque<Completion>,
}

/// One end of a connection; endpoint i and i^1 are each other's peers.
struct Endpoint {
    member: usize,
    state: State,
    /// Posted receives that no send has met.
    receives: VecDeque<Receive>,
    /// Transfers that leave from here and those that come here, in posting order.
    outgoing: Vec<usize>,
    incoming: Vec<usize>,
    bytes_per_second: u64,
    /// No control word arrives at the peer before this: they keep their order.
    control_by_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// Closed from here; ends when the begun send is done.
    Closing,
    Gone,
}

impl SimNetwork {
    /// A network without members. All randomness comes from `seed`.
    pub fn new(config: SimConfig, seed: u64) -> Self {
        Self {
            core: Rc::new(RefCell::new(Core {
                config,
                random: ChaCha8Rng::seed_from_u64(seed),
                now_ns: 0,
                events: Events::default(),
                members: Vec::new(),
                endpoints: Vec::new(),
                transfers: Vec::new(),
                free_transfers: Vec::new(),
                sends_posted: 0,
                receives_posted: 0,
                choosing: Vec::new(),
                due: VecDeque::new(),
            })),
        }
    }

    /// Adds a member; they are numbered from 0.
    pub fn member(&self) -> SimTransport {
        let mut core = self.core.borrow_mut();
        let port = Port::new(core.config.bytes_per_second);
        core.members.push(Member { alive: true, port, completions: VecDeque::new() });
        SimTransport { core: Rc::clone(&self.core), member: core.members.len() - 1 }
    }

    /// Connects two members; each opens its own end, the first `one`'s.
    pub fn connect(&self, one: usize, other: usize) -> (SimLink, SimLink) {
        let mut core = self.core.borrow_mut();
        let first = core.endpoints.len() as u64;
        for member in [one, other] {
            core.endpoints.push(Endpoint {
                member,
                state: State::Open,
                receives: VecDeque::new(),
                outgoing: Vec::new(),
                incoming: Vec::new(),
                bytes_per_second: u64::MAX,
                control_by_ns: 0,
            });
        }
        (SimLink { endpoint: EndpointId(first) }, SimLink { endpoint: EndpointId(first + 1) })
    }

    /// Sets the rate of one member's port: a slow member.
    pub fn set_member_rate(&self, member: usize, bytes_per_second: u64) {
        self.core.borrow_mut().members[member].port.bytes_per_second = bytes_per_second;
    }

    /// Sets the rate of a link, in both directions: a slow link.
    pub fn set_link_rate(&self, link: &SimLink, bytes_per_second: u64) {
        let mut core = self.core.borrow_mut();
        for endpoint in [link.endpoint, peer_of(link.endpoint)] {
            core.endpoint(endpoint).bytes_per_second = bytes_per_second;
        }
    }

    /// The member dies now, without a word. Its own transport goes silent for ever.
    pub fn kill(&self, member: usize) {
        self.core.borrow_mut().kill(member);
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        self.core.borrow().now()
    }

    /// Lets things happen until a member has something to poll, and names it. `None` when nothing
    /// is left to happen.
    pub fn step(&self) -> Option<usize> {
        let mut core = self.core.borrow_mut();
        loop {
            while let Some(member) = core.due.pop_front() {
                if core.has_completions(member) {
                    return Some(member);
                }
            }
            core.step()?;
        }
    }
}

impl Core {
    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn has_completions(&self, member: usize) -> bool {
        !self.members[member].completions.is_empty()
    }

    pub(crate) fn take_completions(&mut self, member: usize, into: &mut Vec<Completion>) {
        into.extend(self.members[member].completions.drain(..));
    }

    /// Lets the next thing happen if it is due by then; otherwise time passes to then.
    pub(crate) fn step_until(&mut self, until_ns: u64) -> bool {
        if self.events.next_time_ns().is_some_and(|time_ns| time_ns <= until_ns) {
            self.step().is_some()
        } else {
            self.now_ns = until_ns;
            false
        }
    }

    /// Lets the next thing happen; `None` if there is none.
    fn step(&mut self) -> Option<()> {
        let (time_ns, event) = self.events.pop()?;
        self.now_ns = time_ns;
        match event {
            Event::PortsFree { transfer } => self.free_ports(transfer),
            Event::Arrival { transfer } => self.arrive(transfer),
            Event::Control { endpoint, word } => {
                if self.endpoint(endpoint).state == State::Open {
                    self.report(endpoint, Completion::Control { endpoint, word });
                }
            }
            Event::PeerClosed { endpoint } => self.end(endpoint, Cause::ClosedByPeer),
            Event::PeerLost { endpoint } => {
                self.end(endpoint, Cause::Lost("connection reset by peer".into()));
            }
            Event::Choose => self.choose(),
        }
        Some(())
    }

    fn endpoint(&mut self, endpoint: EndpointId) -> &mut Endpoint {
        &mut self.endpoints[endpoint.0 as usize]
    }

    fn open_endpoint(&mut self, endpoint: EndpointId) -> Result<&mut Endpoint, PostError> {
        self.endpoints
            .get_mut(endpoint.0 as usize)
            .filter(|end| end.state == State::Open)
            .ok_or(PostError::EndpointGone(endpoint))
    }

    /// Puts a completion into the queue of the endpoint's member, if that lives.
    fn report(&mut self, endpoint: EndpointId, completion: Completion) {
        let member = self.endpoint(endpoint).member;
        if self.members[member].alive {
            self.members[member].completions.push_back(completion);
            self.due.push_back(member);
        }
    }

    pub(crate) fn post_receive(
        &mut self,
        endpoint: EndpointId,
        lease: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        let number = self.receives_posted;
        self.open_endpoint(endpoint)?.receives.push_back(Receive { lease, token, number });
        self.receives_posted += 1;
        Ok(())
    }

    pub(crate) fn post_send(
        &mut self,
        from: EndpointId,
        lease: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let source = self.open_endpoint(from)?.member;
        let to = self.endpoint(peer_of(from));
        let (target, bytes) = (to.member, lease.bytes());
        let receive = if to.state == State::Open { to.receives.pop_front() } else { None };
        let fits = receive.as_ref().is_some_and(|receive| bytes <= receive.lease.bytes());
        let peer_open = to.state == State::Open;
        let receive_number = receive.as_ref().map_or(u64::MAX, |receive| receive.number);
        let number = self.sends_posted;
        self.sends_posted += 1;
        let send = Some(Send { lease, token });
        let transfer = self.insert(Transfer {
            source,
            target,
            from,
            send,
            receive,
            bytes,
            immediate,
            number,
            receive_number,
            started: false,
            whole: false,
            half_finished: false,
        });
        self.endpoint(from).outgoing.push(transfer);
        self.endpoint(peer_of(from)).incoming.push(transfer);
        if peer_open && !fits && self.members[target].alive {
            let what = "a block for which no memory was posted, or too little";
            self.end(peer_of(from), Cause::Protocol(what.into()));
            self.tell_peer(peer_of(from), Event::PeerLost { endpoint: from });
            return Ok(());
        }
        for member in [source, target] {
            self.members[member].port.waiting.push(transfer);
            self.let_choose(member);
        }
        Ok(())
    }

    pub(crate) fn write_control(&mut self, from: EndpointId, word: &[u8]) -> Result<(), PostError> {
        self.open_endpoint(from)?;
        let word = word.to_vec();
        self.tell_peer(from, Event::Control { endpoint: peer_of(from), word });
        Ok(())
    }

    /// Schedules something at the peer, behind all control words of this endpoint.
    fn tell_peer(&mut self, from: EndpointId, event: Event) {
        let jitter_ns = self.draw(self.config.control_jitter_ns);
        let arrival_ns = self.now_ns + self.config.latency_ns + jitter_ns;
        let end = self.endpoint(from);
        end.control_by_ns = end.control_by_ns.max(arrival_ns);
        let arrival_ns = end.control_by_ns;
        self.events.schedule(arrival_ns, event);
    }

    pub(crate) fn close(&mut self, endpoint: EndpointId) {
        if self.open_endpoint(endpoint).is_err() {
            return;
        }
        self.endpoint(endpoint).state = State::Closing;
        self.cancel_receives(endpoint);
        self.cancel_sends(endpoint, false);
        self.close_if_idle(endpoint);
    }

    /// Ends a closing endpoint once its begun send is done.
    fn close_if_idle(&mut self, endpoint: EndpointId) {
        let end = self.endpoint(endpoint);
        if end.state == State::Closing && end.outgoing.is_empty() {
            end.state = State::Gone;
            self.report(endpoint, Completion::Closed { endpoint });
            self.tell_peer(endpoint, Event::PeerClosed { endpoint: peer_of(endpoint) });
        }
    }

    /// The endpoint ends because of its peer.
    fn end(&mut self, endpoint: EndpointId, cause: Cause) {
        let state = std::mem::replace(&mut self.endpoint(endpoint).state, State::Gone);
        if state == State::Gone {
            return;
        }
        self.cancel_receives(endpoint);
        self.cancel_sends(endpoint, true);
        let last = match state {
            State::Closing => Completion::Closed { endpoint },
            _ => Completion::Broken { endpoint, cause },
        };
        self.report(endpoint, last);
    }

    fn cancel_receives(&mut self, endpoint: EndpointId) {
        let posted = std::mem::take(&mut self.endpoint(endpoint).receives);
        let incoming = std::mem::take(&mut self.endpoint(endpoint).incoming);
        let matched = incoming
            .iter()
            .filter_map(|&id| self.transfers[id].as_mut()?.receive.take())
            .collect::<Vec<_>>();
        for Receive { lease, token, .. } in matched.into_iter().chain(posted) {
            drop(lease);
            self.report(endpoint, Completion::Cancelled { endpoint, token });
        }
    }

    fn cancel_sends(&mut self, endpoint: EndpointId, begun_too: bool) {
        for id in std::mem::take(&mut self.endpoint(endpoint).outgoing) {
            let Some(transfer) = &mut self.transfers[id] else { continue };
            if transfer.started && !begun_too {
                self.endpoint(endpoint).outgoing.push(id);
                continue;
            }
            let send = transfer.send.take();
            if let Some(Send { lease, token }) = send {
                drop(lease);
                self.report(endpoint, Completion::Cancelled { endpoint, token });
            }
            if !self.transfers[id].as_ref().is_some_and(|transfer| transfer.started) {
                self.forget_waiting(id);
            }
        }
    }

    /// A transfer that will never start. Its receive, if any, goes with the target's endpoint.
    fn forget_waiting(&mut self, id: usize) {
        let Some(transfer) = &self.transfers[id] else { return };
        for member in [transfer.source, transfer.target] {
            self.members[member].port.waiting.retain(|&other| other != id);
        }
    }

    fn kill(&mut self, member: usize) {
        self.members[member].alive = false;
        self.members[member].completions.clear();
        let own: Vec<EndpointId> = (0..self.endpoints.len() as u64)
            .map(EndpointId)
            .filter(|&endpoint| self.endpoint(endpoint).member == member)
            .collect();
        for endpoint in own {
            self.end(endpoint, Cause::Lost("died".into()));
            let time_ns = self.now_ns + self.config.detection_ns;
            self.events.schedule(time_ns, Event::PeerLost { endpoint: peer_of(endpoint) });
        }
    }

    fn insert(&mut self, transfer: Transfer) -> usize {
        match self.free_transfers.pop() {
            Some(id) => {
                self.transfers[id] = Some(transfer);
                id
            }
            None => {
                self.transfers.push(Some(transfer));
                self.transfers.len() - 1
            }
        }
    }

    fn let_choose(&mut self, member: usize) {
        if !std::mem::replace(&mut self.members[member].port.choosing, true) {
            if self.choosing.is_empty() {
                self.events.schedule(self.now_ns, Event::Choose);
            }
            self.choosing.push(member);
        }
    }

    /// Starts what can start: blocks that both their ports prefer, until none is left; and where
    /// preferences go round in a circle, the block whose send was posted first.
    fn choose(&mut self) {
        let mut candidates = Vec::new();
        for member in std::mem::take(&mut self.choosing) {
            let port = &mut self.members[member].port;
            port.choosing = false;
            candidates.extend_from_slice(&port.waiting);
        }
        let number = |id: &usize| self.transfers[*id].as_ref().map(|transfer| transfer.number);
        candidates.sort_unstable_by_key(number);
        candidates.dedup();
        loop {
            candidates.retain(|&id| self.can_start(id));
            let Some(&oldest) = candidates.first() else { return };
            let mut started = false;
            for &id in &candidates {
                if self.can_start(id) && self.is_preferred(id) {
                    self.start(id);
                    started = true;
                }
            }
            if !started {
                self.start(oldest);
            }
        }
    }

    fn can_start(&self, id: usize) -> bool {
        self.transfers[id].as_ref().is_some_and(|transfer| {
            !transfer.started
                && !self.members[transfer.source].port.sending
                && !self.members[transfer.target].port.receiving
        })
    }

    /// Whether neither port could start another block that it prefers: the source prefers what
    /// was posted for sending first, the target what was posted for receiving first.
    fn is_preferred(&self, id: usize) -> bool {
        let Some(own) = &self.transfers[id] else { return false };
        let rivals = |member: usize| {
            let waiting = self.members[member].port.waiting.iter();
            waiting
                .filter(|&&other| self.can_start(other))
                .filter_map(|&other| self.transfers[other].as_ref())
        };
        rivals(own.source).all(|other| other.source != own.source || other.number >= own.number)
            && rivals(own.target).all(|other| {
                other.target != own.target || other.receive_number >= own.receive_number
            })
    }

    fn start(&mut self, id: usize) {
        let Some(transfer) = &mut self.transfers[id] else { return };
        let (source, target, from) = (transfer.source, transfer.target, transfer.from);
        transfer.started = true;
        let bytes = transfer.bytes as u64;
        self.members[source].port.sending = true;
        self.members[target].port.receiving = true;
        self.forget_waiting(id);
        let rate = self.members[source].port.bytes_per_second;
        let rate = rate.min(self.members[target].port.bytes_per_second);
        let rate = rate.min(self.endpoint(from).bytes_per_second).max(1);
        let exact_ns = (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64;
        let permille = self.draw(self.config.block_jitter_permille);
        let time_ns = self.now_ns + exact_ns + exact_ns * permille / 1000;
        self.events.schedule(time_ns, Event::PortsFree { transfer: id });
        let arrival_ns = time_ns + self.config.latency_ns;
        self.events.schedule(arrival_ns, Event::Arrival { transfer: id });
    }

    /// The block has left its source whole. The copy is made while both leases are there.
    fn complete_bytes(&mut self, id: usize) {
        let Some(transfer) = &mut self.transfers[id] else { return };
        let Some(send) = &transfer.send else { return };
        if std::mem::replace(&mut transfer.whole, true) || !self.config.carry_bytes {
            return;
        }
        if let Some(receive) = &mut transfer.receive {
            receive.lease[..transfer.bytes].copy_from_slice(&send.lease);
        }
    }

    fn free_ports(&mut self, id: usize) {
        self.complete_bytes(id);
        let Some(transfer) = &mut self.transfers[id] else { return };
        let (source, target, from) = (transfer.source, transfer.target, transfer.from);
        let sent = transfer.send.take();
        self.members[source].port.sending = false;
        self.members[target].port.receiving = false;
        self.let_choose(source);
        self.let_choose(target);
        self.endpoint(from).outgoing.retain(|&other| other != id);
        if let Some(Send { lease, token }) = sent {
            drop(lease);
            self.report(from, Completion::Sent { endpoint: from, token });
        }
        self.close_if_idle(from);
        self.finish_half(id);
    }

    fn arrive(&mut self, id: usize) {
        self.complete_bytes(id);
        let Some(transfer) = &mut self.transfers[id] else { return };
        let (bytes, immediate) = (transfer.bytes as u64, transfer.immediate);
        // A source that died on the way leaves a block that never arrives.
        let receive = if transfer.whole { transfer.receive.take() } else { None };
        let endpoint = peer_of(transfer.from);
        if let Some(Receive { lease, token, .. }) = receive {
            drop(lease);
            self.endpoint(endpoint).incoming.retain(|&other| other != id);
            self.report(endpoint, Completion::Received { endpoint, token, bytes, immediate });
        }
        self.finish_half(id);
    }

    /// A transfer is over when its ports are free and its block has arrived.
    fn finish_half(&mut self, id: usize) {
        let Some(transfer) = &mut self.transfers[id] else { return };
        if !std::mem::replace(&mut transfer.half_finished, true) {
            return;
        }
        let endpoint = peer_of(transfer.from);
        if transfer.receive.is_none() {
            self.transfers[id] = None;
            self.free_transfers.push(id);
            self.endpoint(endpoint).incoming.retain(|&other| other != id);
        }
    }

    fn draw(&mut self, most: u64) -> u64 {
        if most == 0 { 0 } else { self.random.random_range(0..=most) }
    }
}

fn peer_of(endpoint: EndpointId) -> EndpointId {
    EndpointId(endpoint.0 ^ 1)
}
