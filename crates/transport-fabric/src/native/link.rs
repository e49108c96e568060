//! One link: its endpoints, its queued posts, and those that the provider has.

mod arrival;
mod ops;
mod paths;
mod posting;
mod receives;
mod segments;
mod sends;
mod words;
mod writes;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use transport::{Cause, Completion, EndpointId, PeerMemory, ReadLease, Token, WriteLease};

pub use paths::{ANYBODY, device_of};
pub use posting::{OFFLOAD_TAG, Written};
pub use segments::{CUT_BYTES_MIN, are_used as cuts_blocks};
pub use sends::Contents;

use ops::{Op, Ops};
use paths::Paths;
use posting::{Posting, Trouble};
use receives::ReceiveQueue;
use sends::SendQueue;
use words::Words;
use writes::{RING_NAME, Write, WriteQueue, wanted_key};

use crate::{
    native::{
        device::Device,
        lifeline::Lifeline,
        offer::{Cookie, Ends, Offer, Terms},
        ring::{Note, SLOTS, Slot},
        sys::{self, Errno, Object, RawCompletion},
    },
    role::Role,
};

/// The state of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Not all endpoints are connected, or the peer's hello was not received.
    Connecting {
        until: Instant,
    },
    Up,
    /// Closing, until the peer has acknowledged the bye.
    Closing {
        until: Instant,
        bye_sent: bool,
        bye_acked: bool,
    },
}

/// How a link ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Closed,
    Broken(Cause),
}

pub struct Link {
    // Fields are dropped in this order: endpoints are closed before what they use is dropped.
    paths: Paths,
    writes: WriteQueue,
    words: Words,
    pub id: EndpointId,
    pub lifeline: EndpointId,
    phase: Phase,
    /// All paths are connected, and the peer's hello was received.
    is_up: bool,
    pub role: Role,
    /// Keeps the cookie valid, and the endpoints that were made with the offer.
    offer: Offer,
    theirs: Terms,
    ops: Ops,
    sends: SendQueue,
    receives: ReceiveQueue,
    /// How many control words the peer has sent in all, once its bye was received.
    peer_bye: Option<u64>,
    /// The provider's queues are full, and it does not report when they have space.
    retry: bool,
    /// Why it broke, to be reported by the driver.
    pub broken: Option<Cause>,
}

/// Shared state for serving a link.
pub struct Round<'a> {
    pub devices: &'a [Device],
    pub completed: &'a mut Vec<Completion>,
    /// Messages for the lifeline, in order.
    pub lifeline: &'a mut Vec<(EndpointId, Lifeline)>,
}

impl Link {
    /// Makes a link that is not connected. Errors: memory for control slots cannot be registered.
    pub fn new(
        id: EndpointId,
        lifeline: EndpointId,
        ends: Ends,
        devices: &[Device],
        until: Instant,
    ) -> Result<Self, Errno> {
        let Ends { role, ours, theirs } = ends;
        let rails = devices.len().min(theirs.addresses.len());
        let number = ours.terms.number;
        // Keys, where the provider does not choose them: for the ring, and for names of exposed
        // memory.
        let has_keys = devices[0].info.is_message_endpoint;
        let ring_key = has_keys.then(|| wanted_key(number, RING_NAME));
        Ok(Self {
            paths: Paths::new(rails, number, theirs.number),
            writes: WriteQueue::default(),
            words: Words::new(&devices[0], ring_key)?,
            id,
            lifeline,
            phase: Phase::Connecting { until },
            is_up: false,
            role,
            offer: ours,
            theirs,
            ops: Ops::new(id),
            sends: SendQueue::default(),
            receives: ReceiveQueue::default(),
            peer_bye: None,
            retry: false,
            broken: None,
        })
    }

    /// Returns the number by which the peer identifies this link.
    pub fn number(&self) -> u32 {
        self.offer.terms.number
    }

    pub fn cookie(&self) -> Cookie {
        self.offer.terms.cookie
    }

    pub fn is_open(&self) -> bool {
        self.broken.is_none() && !matches!(self.phase, Phase::Closing { .. })
    }

    /// Opens and connects all paths, at the end that connects. Errors: what failed.
    pub fn connect(&mut self, devices: &[Device]) -> Result<Vec<usize>, String> {
        let mut endpoints = Vec::new();
        for path in 0..self.paths.count() {
            let device = &devices[device_of(path)];
            let failed = |error: Errno| format!("opening an endpoint: {}", error.text());
            let address = self.theirs.addresses[device_of(path)].clone();
            let endpoint = device.open_toward(&address).map_err(failed)?;
            endpoints.push(endpoint.address());
            self.adopt(path, Arc::clone(&endpoint), None, devices)?;
            let parameter = [&self.theirs.cookie[..], &[path as u8]].concat();
            sys::connect(&endpoint, &address, &parameter)
                .map_err(|error| format!("connecting: {}", error.text()))?;
        }
        Ok(endpoints)
    }

    /// Takes over the datagram endpoints that were made with the offer, which need no connection.
    /// Errors: the peer's address is invalid.
    pub fn join_datagrams(&mut self, devices: &[Device]) -> Result<(), String> {
        let endpoints = std::mem::take(&mut self.offer.endpoints);
        let rails = self.paths.rails();
        for (rail, (endpoint, vector)) in endpoints.into_iter().enumerate().take(rails) {
            let peer = sys::insert_address(&vector, &self.theirs.addresses[rail])
                .map_err(|error| format!("the peer's address: {}", error.text()))?;
            if rail == 0 {
                self.adopt(0, Arc::clone(&endpoint), Some(peer), devices)?;
            }
            self.adopt(rail + 1, endpoint, Some(peer), devices)?;
        }
        Ok(())
    }

    /// Accepts one of the peer's connection requests. Errors: the path was requested already or
    /// does not exist, or what failed.
    pub fn accept(
        &mut self,
        path: usize,
        request: &sys::Info,
        devices: &[Device],
    ) -> Result<usize, String> {
        if self.role == Role::Connect || !self.paths.is_to_be_made(path) {
            return Err(format!("path {path} was not to be connected"));
        }
        let endpoint = devices[device_of(path)]
            .open_answer(request)
            .map_err(|error| format!("opening an endpoint: {}", error.text()))?;
        self.adopt(path, Arc::clone(&endpoint), None, devices)?;
        sys::accept(&endpoint).map_err(|error| format!("accepting: {}", error.text()))?;
        Ok(endpoint.address())
    }

    /// Adds an endpoint. Posts receives for control words before the peer can write.
    fn adopt(
        &mut self,
        path: usize,
        endpoint: Arc<Object>,
        peer: Option<u64>,
        devices: &[Device],
    ) -> Result<(), String> {
        self.paths.adopt(path, endpoint, peer);
        let places = peer.is_some() || devices[0].info.writes_consume_receives;
        if path == 0 && places {
            for slot in 0..SLOTS {
                self.words
                    .post_place(slot, &self.paths, &mut self.ops)
                    .map_err(|error| format!("posting a receive: {}", error.text()))?;
            }
        }
        Ok(())
    }

    /// Returns whether the peer has not requested all connections yet, and may still do so.
    pub fn misses_requests(&self) -> bool {
        self.role == Role::Accept && !self.paths.are_made()
    }

    /// Records that an endpoint is connected; it may be the last one.
    pub fn connected(&mut self, endpoint: usize) {
        self.paths.connected(endpoint);
    }

    /// Marks the link as up once all conditions are met.
    pub fn rise(&mut self) {
        self.is_up |= self.paths.are_connected() && self.words.knows_peer();
        if self.is_up && matches!(self.phase, Phase::Connecting { .. }) {
            self.phase = Phase::Up;
        }
    }

    /// Returns the first rail and its peer, for offloaded blocks, once the link is up.
    pub fn offload_path(&self) -> Option<(Arc<Object>, u64)> {
        self.paths.first_rail().filter(|_| self.is_up && self.broken.is_none())
    }

    /// Returns the endpoints' addresses, by which events identify them.
    pub fn endpoints(&self) -> impl Iterator<Item = usize> + '_ {
        self.paths.addresses()
    }

    pub fn post_receive(&mut self, into: WriteLease, token: Token) {
        self.receives.push(into, token);
    }

    pub fn post_send(&mut self, from: Contents, immediate: u32, token: Token) {
        self.sends.push(from, immediate, token);
    }

    pub fn post_write(
        &mut self,
        from: ReadLease,
        name: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) {
        self.writes.push(Write { from, name, offset, immediate, token });
    }

    /// Lets the peer write into memory. Errors: as text.
    pub fn expose(
        &mut self,
        name: u32,
        memory: PeerMemory,
        devices: &[Device],
    ) -> Result<Lifeline, String> {
        let key = wanted_key(self.number(), name.into());
        let endpoint = self.paths.endpoint(0);
        self.writes.expose(name, memory, key, &devices[0], endpoint.as_deref())
    }

    /// Queues a control word. Returns false if megabytes of words wait for the peer.
    pub fn write_word(&mut self, word: &[u8]) -> bool {
        self.words.push(word)
    }

    /// Posts what can be posted, and returns the end of the link once it is due.
    pub fn advance(&mut self, round: &mut Round<'_>, now: Instant) -> Option<End> {
        self.rise();
        self.retry = false;
        if self.is_up && self.broken.is_none() {
            self.advance_receives(round);
            self.advance_sends(round);
            self.advance_writes(round);
            self.advance_words(round);
        }
        self.end(round, now)
    }

    /// Posts what can be posted now, and ends nothing.
    pub fn post_now(&mut self, round: &mut Round<'_>) {
        if self.is_up && self.broken.is_none() {
            self.advance_receives(round);
            self.advance_writes(round);
        }
    }

    fn advance_receives(&mut self, round: &Round<'_>) {
        let (paths, devices) = (&self.paths, round.devices);
        let ring = &mut self.words.ring;
        let mut posting = Posting { paths, ops: &mut self.ops, ring, devices };
        let posted = self.receives.post(&mut posting);
        self.note_trouble(posted.err());
    }

    fn advance_sends(&mut self, round: &Round<'_>) {
        if self.broken.is_some() {
            return;
        }
        let (paths, devices) = (&self.paths, round.devices);
        let ring = &mut self.words.ring;
        let mut posting = Posting { paths, ops: &mut self.ops, ring, devices };
        let posted = self.sends.post(&mut posting);
        self.note_trouble(posted.err());
    }

    fn advance_writes(&mut self, round: &mut Round<'_>) {
        let (paths, devices) = (&self.paths, round.devices);
        let ring = &mut self.words.ring;
        let mut posting = Posting { paths, ops: &mut self.ops, ring, devices };
        match self.writes.post(&mut posting) {
            Ok(None) => {}
            Ok(Some(name)) => round.lifeline.push((self.lifeline, Lifeline::WhereIs { name })),
            Err(trouble) => self.note_trouble(Some(trouble)),
        }
    }

    fn advance_words(&mut self, round: &Round<'_>) {
        let info = &round.devices[0].info;
        let posted = self.words.post(&mut self.receives, info, &self.paths, &mut self.ops);
        self.note_trouble(posted.err());
    }

    fn note_trouble(&mut self, trouble: Option<Trouble>) {
        match trouble {
            None => {}
            Some(Trouble::Refused(error)) if error == Errno::AGAIN => self.retry = true,
            Some(Trouble::Refused(error)) => {
                self.break_by(Cause::Lost(format!("posting failed: {}", error.text())));
            }
            Some(Trouble::Memory(error)) => {
                self.break_by(Cause::Memory { access: "registered", error });
            }
            Some(Trouble::Protocol(what)) => self.break_by(Cause::Protocol(what)),
        }
    }

    /// Returns whether a send waits for what arrives of its block, at any endpoint.
    pub fn follows(&self) -> bool {
        self.sends.follows()
    }

    /// Returns whether posts wait for space in the provider's queues, which the provider does not
    /// report.
    pub fn has_to_retry(&self) -> bool {
        self.retry
    }

    /// Breaks the link if none of its posts has completed for `timeout` plus the time that the
    /// longest message takes over a slow network. To be called periodically. Returns whether the link
    /// has work to do.
    pub fn check_answers(&mut self, now: Instant, timeout: Duration) -> bool {
        let is_over = self.ops.misses_answers(now, timeout);
        let confirms = self.is_up && self.is_open() && self.words.confirm();
        if is_over {
            let why = format!(
                "the fabric has carried nothing for {timeout:?}, although the peer is alive: check the \
                 cable, the port and the path between the devices"
            );
            self.break_by(Cause::Lost(why));
        }
        is_over || confirms
    }

    /// Returns how many control words have no completion yet.
    #[cfg(test)]
    pub fn open_words(&self) -> usize {
        self.ops.words()
    }

    /// Returns how many control words, and writes with an immediate, were posted.
    #[cfg(test)]
    pub fn words_sent(&self) -> u64 {
        self.words.ring.sent()
    }

    /// Handles the completion of a post, with or without an error.
    pub fn complete(&mut self, raw: &RawCompletion, round: &mut Round<'_>) {
        let Some(op) = self.ops.take(raw.context) else { return };
        let endpoint = self.id;
        let failed = raw.error != 0;
        if failed {
            self.note_error(raw, matches!(op, Op::Receive { .. }), round.devices);
        } else {
            self.ops.note_answer();
        }
        match op {
            // The provider may have other messages of the block until the link's end.
            Op::Send { .. } | Op::Receive { .. } if failed => {}
            Op::Send { block, .. } => {
                let sent = self.sends.completed(block);
                round.completed.extend(sent.map(|token| Completion::Sent { endpoint, token }));
            }
            Op::Receive { block, segment } => {
                match self.receives.completed(endpoint, block, segment, raw) {
                    Ok(done) => round.completed.extend(done),
                    Err(what) => self.break_by(Cause::Protocol(what)),
                }
            }
            Op::Write(pinned, token, lease) => {
                if !failed {
                    self.writes.completed(raw.context, &mut self.words.ring);
                }
                drop((pinned, lease));
                round.completed.push(match failed {
                    true => Completion::Cancelled { endpoint, token },
                    false => Completion::Sent { endpoint, token },
                });
            }
            Op::Word => {}
            Op::Place if failed => {}
            Op::Place => {
                let place = self.words.next_place();
                let is_written = round.devices[0].info.is_message_endpoint;
                self.take(is_written.then(|| Written::of_receive(raw.data)), round);
                let posted = self.words.post_place(place, &self.paths, &mut self.ops);
                self.note_trouble(posted.err().map(Trouble::Refused));
            }
        }
    }

    pub fn note_error(&mut self, raw: &RawCompletion, receiving: bool, devices: &[Device]) {
        self.break_by(posting::cause_of(raw, receiving, &devices[0].info));
    }

    /// Returns the first message: the address of this end's control slots.
    pub fn hello(&self, devices: &[Device]) -> Lifeline {
        self.words.hello(&devices[0])
    }

    /// Handles what the peer has written, or a slot that it has sent.
    pub fn take(&mut self, written: Option<Written>, round: &mut Round<'_>) {
        let read = match written {
            Some(Written::Slot(slot)) => self.words.read(slot),
            Some(Written::Memory(immediate)) => {
                self.words.ring.read_memory();
                self.take_write(immediate, round);
                return;
            }
            None => self.words.read_sent(),
        };
        match read {
            Ok(slot) => self.take_note(slot, round),
            Err(what) => self.break_by(Cause::Protocol(what)),
        }
    }

    fn take_write(&self, immediate: u32, round: &mut Round<'_>) {
        if self.is_open() {
            round.completed.push(Completion::Written { endpoint: self.id, immediate });
        }
    }

    fn take_note(&mut self, slot: Slot, round: &mut Round<'_>) {
        let endpoint = self.id;
        self.sends.learn(slot.receives);
        match slot.note {
            _ if !self.is_open() => {}
            Note::Word(word) => round.completed.push(Completion::Control { endpoint, word }),
            Note::Written(immediate) => self.take_write(immediate, round),
            Note::Consumed => {}
            Note::Wants { index, bytes } => match self.receives.wanted(index, bytes) {
                Ok(true) => drop(self.words.ring.push(Note::Consumed)),
                Ok(false) => {}
                Err(what) => self.break_by(Cause::Protocol(what)),
            },
        }
    }

    /// Handles a message on the lifeline. Repeated or invalid messages break the link.
    pub fn receive_word(&mut self, word: Option<Lifeline>) {
        let is_valid = match word {
            Some(Lifeline::Hello { key, address }) => self.words.learn(key, address),
            Some(Lifeline::Exposed { name, key, address, bytes }) => {
                self.writes.learn(name, key, address, bytes)
            }
            Some(Lifeline::WhereIs { name }) => {
                if self.is_open() && !self.writes.exposes(name) {
                    let what = format!("writes to memory {name}, which was not exposed to it");
                    self.break_by(Cause::Protocol(what));
                }
                true
            }
            Some(Lifeline::Bye { words }) => {
                self.peer_bye = Some(words);
                true
            }
            Some(Lifeline::ByeAck) => {
                if let Phase::Closing { bye_acked, .. } = &mut self.phase {
                    *bye_acked = true;
                }
                true
            }
            None => false,
        };
        if !is_valid {
            self.break_by(Cause::Protocol("sent an invalid word on the lifeline".into()));
        }
    }

    fn end(&mut self, round: &mut Round<'_>, now: Instant) -> Option<End> {
        if let Some(cause) = self.broken.take() {
            return Some(End::Broken(cause));
        }
        // The peer's last word was received, so the peer may stop waiting.
        let is_complete = self.peer_bye.is_some_and(|last| self.words.ring.consumed() >= last);
        match &mut self.phase {
            Phase::Closing { until, bye_sent, bye_acked } => {
                if !*bye_sent && self.is_up && self.words.ring.is_idle() {
                    *bye_sent = true;
                    round
                        .lifeline
                        .push((self.lifeline, Lifeline::Bye { words: self.words.ring.sent() }));
                }
                if is_complete {
                    self.peer_bye = None;
                    round.lifeline.push((self.lifeline, Lifeline::ByeAck));
                }
                (*bye_acked || now >= *until).then_some(End::Closed)
            }
            _ if is_complete => {
                round.lifeline.push((self.lifeline, Lifeline::ByeAck));
                Some(End::Broken(Cause::ClosedByPeer))
            }
            Phase::Connecting { until } if now >= *until => {
                let why = "the fabric's connection was not made in time: check that its network is \
                           up and lets this host through";
                Some(End::Broken(Cause::Lost(why.into())))
            }
            _ => None,
        }
    }

    /// Returns when [`Link::advance`] has to be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Connecting { until } | Phase::Closing { until, .. } => Some(until),
            Phase::Up => None,
        }
    }

    /// Breaks the link, unless it is closing or broken: the first cause is kept.
    pub fn break_by(&mut self, cause: Cause) {
        match &mut self.phase {
            // A failure during the close only shortens it.
            Phase::Closing { bye_acked, .. } => *bye_acked = true,
            _ => drop(self.broken.get_or_insert(cause)),
        }
    }

    /// Starts an ordered close: posts that the provider does not have yet are cancelled.
    pub fn close(&mut self, until: Instant, completed: &mut Vec<Completion>) {
        self.phase = Phase::Closing { until, bye_sent: false, bye_acked: false };
        self.cancel_waiting(completed);
    }

    fn cancel_waiting(&mut self, completed: &mut Vec<Completion>) {
        let endpoint = self.id;
        // Leases are dropped before their completions are reported.
        let cancelled = self.sends.cancel().chain(self.receives.cancel());
        let cancelled = cancelled.chain(self.writes.cancel());
        completed.extend(cancelled.map(|token| Completion::Cancelled { endpoint, token }));
    }

    /// Closes all endpoints, so that nothing accesses memory any more, and hands all memory back.
    pub fn tear_down(mut self, devices: &[Device], completed: &mut Vec<Completion>) {
        // The provider sockets closes the connection's descriptor at shutdown, and once more with
        // the endpoint, when the number may have been reused. Closing alone ends the connection,
        // too.
        let closes_twice = devices[0].info.provider == "sockets";
        self.paths.close(!closes_twice);
        self.cancel_waiting(completed);
        let endpoint = self.id;
        let blocks = self.sends.clear().into_iter().chain(self.receives.clear());
        let open = blocks.chain(self.ops.clear());
        completed.extend(open.map(|token| Completion::Cancelled { endpoint, token }));
    }
}
