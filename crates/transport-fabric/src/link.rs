//! One link: its endpoints, what waits to be posted on them, and what is posted.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use transport::{Cause, Completion, EndpointId, ReadLease, Region, Token, WriteLease};

use crate::{
    buffer::Buffer,
    device::Device,
    lifeline::Lifeline,
    offer::{Cookie, Ends, Role},
    ring::{LENGTHS_MAX, Note, Receives, Ring, SLOT_BYTES, SLOTS, Slot},
    sys::{self, Access, Errno, Object, RawCompletion, Registration, Span, Way},
};

/// Sends of one rail that the provider has at a time: the next is there when one ends, and those
/// that wait can be overtaken by control words and taken back by a close.
const SENDS_POSTED_MAX: usize = 4;
/// Receives of one rail that the provider has at a time.
const RECEIVES_POSTED_MAX: usize = 64;
/// Receives of the peer's that one link remembers.
const PEER_LENGTHS_MAX: usize = 4096;
/// Memory regions that one link may expose.
const EXPOSED_MAX: usize = 64;

/// What tags of datagrams say, beside the link's number.
const DATA_TAG: u64 = 1;
const CONTROL_TAG: u64 = 2;
/// Any peer: whoever knows the endpoint's address and the link's number.
const ANYBODY: u64 = u64::MAX;

/// What libfabric's verbs provider calls a block that is longer than the memory
/// (`IBV_WC_LOC_LEN_ERR`).
const VERBS_LENGTH_ERROR: i32 = 1;

/// How far a link is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Not all endpoints are connected, or the peer has not said hello.
    Connecting {
        until: Instant,
    },
    Up,
    /// Asked to close; over when the peer has heard of it.
    Closing {
        until: Instant,
        said_bye: bool,
        heard: bool,
    },
}

/// How a link ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Closed,
    Broken(Cause),
}

/// One endpoint of libfabric's.
pub struct Path {
    pub endpoint: Arc<Object>,
    /// At a datagram endpoint, what its address vector calls the peer.
    peer: Option<u64>,
    pub is_connected: bool,
}

/// Something that the provider has.
enum Op {
    Send(ReadLease, Token, #[allow(dead_code, reason = "keeps it")] Option<Arc<Registration>>),
    Receive(WriteLease, Token, #[allow(dead_code, reason = "keeps it")] Option<Arc<Registration>>),
    Write(ReadLease, Token, #[allow(dead_code, reason = "keeps it")] Option<Arc<Registration>>),
    /// A control word on its way out; its staging slot is ours again once the peer has read it.
    Word,
    /// Where a control word may come in: nothing but a place in the receive queue, or a slot.
    Place,
}

struct Send {
    from: ReadLease,
    immediate: u32,
    token: Token,
}

struct Write {
    from: ReadLease,
    name: u32,
    offset: u64,
    immediate: u32,
    token: Token,
}

/// Memory of the peer's that we may write.
struct Exposed {
    key: u64,
    address: u64,
    bytes: u64,
}

pub struct Link {
    // Endpoints are closed before what they use goes: fields are dropped in this order.
    /// The control path first, then the rails; `None` until connected or accepted.
    paths: Vec<Option<Path>>,
    exposed_here: HashMap<u32, (Registration, Region)>,
    slots: Buffer,
    staging: Buffer,
    pub id: EndpointId,
    pub lifeline: EndpointId,
    pub phase: Phase,
    /// All paths are connected, and the peer has said hello.
    is_up: bool,
    pub role: Role,
    /// Keeps the cookie alive, and the endpoints that were made with the offer.
    offer: crate::offer::Offer,
    theirs: crate::offer::Terms,
    ring: Ring,
    /// Where the peer's slots are, once it has said so.
    peer_slots: Option<(u64, u64)>,
    exposed_there: HashMap<u32, Exposed>,
    ops: HashMap<u32, Op>,
    next_op: u32,
    sends: VecDeque<Send>,
    receives: VecDeque<(WriteLease, Token)>,
    writes: VecDeque<Write>,
    sends_posted: usize,
    receives_open: usize,
    sends_started: u64,
    receives_posted: u64,
    /// Lengths of receives that are posted or wait to be: the last of them, from this index on.
    lengths: VecDeque<u32>,
    lengths_first: u64,
    /// Lengths of the peer's receives that we know of, by index.
    peer_lengths: BTreeMap<u64, u32>,
    /// The peer waits for a receive of this index.
    peer_wants: Option<u64>,
    asked_for: Option<u64>,
    peer_bye: Option<u64>,
    retry: bool,
    /// What broke it, to be reported by the driver.
    pub broken: Option<Cause>,
}

/// What a link works with.
pub struct Round<'a> {
    pub devices: &'a [Device],
    pub completed: &'a mut Vec<Completion>,
    /// Words for the lifeline, in order.
    pub lifeline: &'a mut Vec<(EndpointId, Lifeline)>,
}

impl Link {
    /// A link that is not connected. Errors: memory for control slots cannot be registered.
    pub fn new(
        id: EndpointId,
        lifeline: EndpointId,
        ends: Ends,
        devices: &[Device],
        until: Instant,
    ) -> Result<Self, Errno> {
        let Ends { role, ours, theirs } = ends;
        let rails = devices.len().min(theirs.addresses.len());
        let info = &devices[0].info;
        let ring_bytes = SLOTS as usize * SLOT_BYTES;
        let buffer = |peer_key| {
            Buffer::new(ring_bytes, &devices[0].domain, info.needs_local_registration, peer_key)
        };
        // Keys that the provider does not choose: the ring's, and the names of exposed memory.
        let ring_key = info.is_message_endpoint.then(|| wanted_key(ours.terms.number, u32::MAX));
        Ok(Self {
            paths: (0..=rails).map(|_| None).collect(),
            exposed_here: HashMap::new(),
            slots: buffer(ring_key)?,
            staging: buffer(None)?,
            id,
            lifeline,
            phase: Phase::Connecting { until },
            is_up: false,
            role,
            offer: ours,
            theirs,
            ring: Ring::default(),
            peer_slots: None,
            exposed_there: HashMap::new(),
            ops: HashMap::new(),
            next_op: 0,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            writes: VecDeque::new(),
            sends_posted: 0,
            receives_open: 0,
            sends_started: 0,
            receives_posted: 0,
            lengths: VecDeque::new(),
            lengths_first: 0,
            peer_lengths: BTreeMap::new(),
            peer_wants: None,
            asked_for: None,
            peer_bye: None,
            retry: false,
            broken: None,
        })
    }

    /// The device of a path: the control path shares the first rail's.
    fn device_of(path: usize) -> usize {
        path.saturating_sub(1)
    }

    /// By which the peer names this link.
    pub fn number(&self) -> u32 {
        self.offer.terms.number
    }

    pub fn cookie(&self) -> Cookie {
        self.offer.terms.cookie
    }

    fn rails(&self) -> usize {
        self.paths.len() - 1
    }

    pub fn is_open(&self) -> bool {
        self.broken.is_none() && !matches!(self.phase, Phase::Closing { .. })
    }

    /// The first words: where our control slots are.
    pub fn hello(&self, devices: &[Device]) -> Lifeline {
        let (key, address) = self.slots.for_peer(devices[0].info.virtual_addresses);
        Lifeline::Hello { key, address }
    }

    /// Opens and connects all paths, from the end that connects. Errors: what failed.
    pub fn connect(&mut self, devices: &[Device]) -> Result<Vec<usize>, String> {
        let mut endpoints = Vec::new();
        for path in 0..self.paths.len() {
            let device = &devices[Self::device_of(path)];
            let failed = |error: Errno| format!("opening an endpoint: {}", error.text());
            let endpoint = device.open_endpoint(None).map_err(failed)?;
            endpoints.push(endpoint.address());
            self.adopt(path, Arc::clone(&endpoint), None, devices)?;
            let address = &self.theirs.addresses[Self::device_of(path)];
            let parameter = [&self.theirs.cookie[..], &[path as u8]].concat();
            sys::connect(&endpoint, address, &parameter)
                .map_err(|error| format!("connecting: {}", error.text()))?;
        }
        Ok(endpoints)
    }

    /// Takes the datagram endpoints that were made with the offer into use: nothing is to be
    /// connected. Errors: the peer's address is no address.
    pub fn join_datagrams(&mut self, devices: &[Device]) -> Result<(), String> {
        let endpoints = std::mem::take(&mut self.offer.endpoints);
        for (rail, (endpoint, vector)) in endpoints.into_iter().enumerate().take(self.rails()) {
            let peer = sys::insert_address(&vector, &self.theirs.addresses[rail])
                .map_err(|error| format!("the peer's address: {}", error.text()))?;
            if rail == 0 {
                self.adopt(0, Arc::clone(&endpoint), Some(peer), devices)?;
            }
            self.adopt(rail + 1, endpoint, Some(peer), devices)?;
        }
        self.paths.iter_mut().flatten().for_each(|path| path.is_connected = true);
        Ok(())
    }

    /// Accepts one of the peer's connection requests. Errors: a path that was asked for already or
    /// does not exist, or what failed.
    pub fn accept(
        &mut self,
        path: usize,
        request: &sys::Info,
        devices: &[Device],
    ) -> Result<usize, String> {
        if self.role == Role::Connect || !matches!(self.paths.get(path), Some(None)) {
            return Err(format!("path {path} was not to be connected"));
        }
        let endpoint = devices[Self::device_of(path)]
            .open_endpoint(Some(request))
            .map_err(|error| format!("opening an endpoint: {}", error.text()))?;
        self.adopt(path, Arc::clone(&endpoint), None, devices)?;
        sys::accept(&endpoint).map_err(|error| format!("accepting: {}", error.text()))?;
        Ok(endpoint.address())
    }

    /// Takes an endpoint into use. Places for control words are there before the peer can write.
    fn adopt(
        &mut self,
        path: usize,
        endpoint: Arc<Object>,
        peer: Option<u64>,
        devices: &[Device],
    ) -> Result<(), String> {
        self.paths[path] = Some(Path { endpoint, peer, is_connected: false });
        let places = peer.is_some() || devices[0].info.writes_consume_receives;
        if path == 0 && places {
            for slot in 0..SLOTS {
                self.post_place(slot)
                    .map_err(|error| format!("posting a receive: {}", error.text()))?;
            }
        }
        Ok(())
    }

    /// A connection stands; all of them, perhaps.
    pub fn connected(&mut self, endpoint: usize) {
        let mut paths = self.paths.iter_mut().flatten();
        if let Some(path) = paths.find(|path| path.endpoint.address() == endpoint) {
            path.is_connected = true;
        }
    }

    /// Up, if everything for it has happened.
    fn rise(&mut self) {
        let all = self.paths.iter().all(|path| path.as_ref().is_some_and(|path| path.is_connected));
        self.is_up |= all && self.peer_slots.is_some();
        if self.is_up && matches!(self.phase, Phase::Connecting { .. }) {
            self.phase = Phase::Up;
        }
    }

    fn context(&mut self, op: Op) -> u64 {
        // Round and round; with few open at a time the next is free.
        while self.ops.contains_key(&self.next_op) {
            self.next_op = self.next_op.wrapping_add(1);
        }
        let number = self.next_op;
        self.next_op = number.wrapping_add(1);
        self.ops.insert(number, op);
        self.id.0 << 32 | u64::from(number)
    }

    fn forget(&mut self, context: u64) -> Option<Op> {
        self.ops.remove(&(context as u32))
    }

    fn way(&self, path: usize, tag: u64, receiving: bool) -> Way {
        match self.paths[path].as_ref().and_then(|path| path.peer) {
            None => Way::Connected,
            Some(_) if receiving => {
                Way::Tagged { peer: ANYBODY, tag: u64::from(self.number()) << 8 | tag }
            }
            Some(peer) => Way::Tagged { peer, tag: u64::from(self.theirs.number) << 8 | tag },
        }
    }

    fn endpoint(&self, path: usize) -> Option<Arc<Object>> {
        self.paths[path].as_ref().map(|path| Arc::clone(&path.endpoint))
    }

    /// Where a control word may come in.
    fn post_place(&mut self, slot: u64) -> Result<(), Errno> {
        let Some(endpoint) = self.endpoint(0) else { return Ok(()) };
        let way = self.way(0, CONTROL_TAG, true);
        let context = self.context(Op::Place);
        let span = match way {
            Way::Connected => Span::EMPTY,
            Way::Tagged { .. } => self.slots.span(slot_range(slot)),
        };
        // SAFETY: our own buffer, which outlives the endpoint; a slot is read only between its
        // completion and the next post.
        let posted = unsafe { sys::post_receive(&endpoint, way, span, context) };
        if posted.is_err() {
            self.forget(context);
        }
        posted
    }

    pub fn post_receive(&mut self, into: WriteLease, token: Token) {
        // Checked to be at most 2^32 - 1.
        self.lengths.push_back(into.bytes() as u32);
        self.receives.push_back((into, token));
    }

    pub fn post_send(&mut self, from: ReadLease, immediate: u32, token: Token) {
        self.sends.push_back(Send { from, immediate, token });
    }

    pub fn post_write(
        &mut self,
        from: ReadLease,
        name: u32,
        offset: u64,
        immediate: u32,
        token: Token,
    ) {
        self.writes.push_back(Write { from, name, offset, immediate, token });
    }

    /// False if the peer has not read for megabytes.
    pub fn write_word(&mut self, word: &[u8]) -> bool {
        self.ring.push(Note::Word(word.to_vec()))
    }

    /// Lets the peer write into a region. Errors: in words.
    pub fn expose(
        &mut self,
        name: u32,
        region: Region,
        devices: &[Device],
    ) -> Result<Lifeline, String> {
        if self.exposed_here.contains_key(&name) || self.exposed_here.len() >= EXPOSED_MAX {
            return Err(format!("memory is exposed as {name} already, or in too many pieces"));
        }
        let (device, bytes) = (&devices[0], region.len());
        let access = Access::Peers { key: wanted_key(self.number(), name) };
        let lease = region.write(0..bytes).map_err(|error| error.to_string())?;
        let start = lease.memory().start();
        drop(lease);
        // SAFETY: the region is kept beside the registration and dropped after it.
        let registration = unsafe { sys::register(&device.domain, start, bytes, access) }
            .map_err(|error| crate::registration::explain(error, bytes))?;
        let address = if device.info.virtual_addresses { start as u64 } else { 0 };
        let (key, bytes) = (registration.key, bytes as u64);
        self.exposed_here.insert(name, (registration, region));
        Ok(Lifeline::Exposed { name, key, address, bytes })
    }

    /// Posts what can be posted, and ends if it is time.
    pub fn advance(&mut self, round: &mut Round<'_>, now: Instant) -> Option<End> {
        self.rise();
        self.retry = false;
        if self.is_up && self.broken.is_none() {
            self.advance_receives(round);
            self.advance_sends(round);
            self.advance_writes(round);
            self.advance_words();
        }
        self.end(round, now)
    }

    /// Posts what can be posted now, and ends nothing.
    pub fn post_now(&mut self, round: &mut Round<'_>) {
        if self.is_up && self.broken.is_none() {
            self.advance_receives(round);
        }
    }

    /// Something waits for room in the provider's queues, which tells nobody when there is some.
    pub fn has_to_retry(&self) -> bool {
        self.retry
    }

    /// The connection broke. The lifeline may know better why, so it gets a moment to say so.
    pub fn lose(&mut self, cause: Cause, _now: Instant) {
        self.break_by(cause);
    }

    fn end(&mut self, round: &mut Round<'_>, now: Instant) -> Option<End> {
        if let Some(cause) = self.broken.take() {
            return Some(End::Broken(cause));
        }
        // The peer's last words are here: it need not wait for us any more.
        let all_heard = self.peer_bye.is_some_and(|words| self.ring.consumed() >= words);
        match &mut self.phase {
            Phase::Closing { until, said_bye, heard } => {
                if !*said_bye && self.is_up && self.ring.is_idle() {
                    *said_bye = true;
                    round.lifeline.push((self.lifeline, Lifeline::Bye { words: self.ring.sent() }));
                }
                if all_heard {
                    self.peer_bye = None;
                    round.lifeline.push((self.lifeline, Lifeline::ByeHeard));
                }
                (*heard || now >= *until).then_some(End::Closed)
            }
            _ if all_heard => {
                round.lifeline.push((self.lifeline, Lifeline::ByeHeard));
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

    /// When [`Link::advance`] has to be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Connecting { until } | Phase::Closing { until, .. } => Some(until),
            Phase::Up => None,
        }
    }

    fn advance_receives(&mut self, round: &mut Round<'_>) {
        let most = RECEIVES_POSTED_MAX.min(round.devices[0].info.receives_max) * self.rails();
        while self.receives_open < most && self.broken.is_none() {
            let Some((mut into, token)) = self.receives.pop_front() else { return };
            let path = 1 + (self.receives_posted % self.rails() as u64) as usize;
            let Some(endpoint) = self.endpoint(path) else { return };
            let (start, bytes) = (into.as_mut_ptr(), into.bytes());
            let registrar = &round.devices[Self::device_of(path)].registrar;
            let registration = match registrar.cover(&into.memory(), start, bytes) {
                Ok(registration) => registration,
                Err(error) => {
                    self.receives.push_front((into, token));
                    return self.fail_memory(error);
                }
            };
            let way = self.way(path, DATA_TAG, true);
            let context = self.context(Op::Receive(into, token, registration.clone()));
            let span = Span { start, bytes, registration: registration.as_deref() };
            // SAFETY: the op holds the write lease until the receive completes, or its endpoint is
            // closed (`take_ops`).
            if let Err(error) = unsafe { sys::post_receive(&endpoint, way, span, context) } {
                if let Some(Op::Receive(into, token, _)) = self.forget(context) {
                    self.receives.push_front((into, token));
                }
                return self.refused(error);
            }
            self.receives_open += 1;
            self.receives_posted += 1;
            if self.peer_wants.is_some_and(|wanted| wanted < self.receives_posted) {
                self.ring.push(Note::Consumed);
            }
        }
    }

    fn advance_sends(&mut self, round: &mut Round<'_>) {
        while self.sends_posted < SENDS_POSTED_MAX * self.rails() && self.broken.is_none() {
            let Some(bytes) = self.sends.front().map(|send| send.from.bytes() as u64) else {
                return;
            };
            let index = self.sends_started;
            let room = self.peer_lengths.get(&index).copied().map(u64::from);
            if room.is_none_or(|room| room < bytes) {
                // The layer above says that there is a receive, and the word that told it so told
                // us as well. Otherwise the peer tells, or ends the link.
                if self.asked_for != Some(index) {
                    self.asked_for = Some(index);
                    self.ring.push(Note::Wants { index, bytes });
                }
                return;
            }
            let Some(Send { from, immediate, token }) = self.sends.pop_front() else { return };
            let path = 1 + (self.sends_started % self.rails() as u64) as usize;
            let Some(endpoint) = self.endpoint(path) else { return };
            let (start, bytes) = (from.as_ptr().cast_mut(), from.bytes());
            let registrar = &round.devices[Self::device_of(path)].registrar;
            let registration = match registrar.cover(&from.memory(), start, bytes) {
                Ok(registration) => registration,
                Err(error) => {
                    self.sends.push_front(Send { from, immediate, token });
                    return self.fail_memory(error);
                }
            };
            let way = self.way(path, DATA_TAG, false);
            let context = self.context(Op::Send(from, token, registration.clone()));
            let span = Span { start, bytes, registration: registration.as_deref() };
            // SAFETY: the op holds the read lease until the send completes, or its endpoint is
            // closed (`take_ops`).
            if let Err(error) = unsafe { sys::post_send(&endpoint, way, span, immediate, context) }
            {
                if let Some(Op::Send(from, token, _)) = self.forget(context) {
                    self.sends.push_front(Send { from, immediate, token });
                }
                return self.refused(error);
            }
            self.peer_lengths.remove(&index);
            self.sends_posted += 1;
            self.sends_started += 1;
        }
    }

    fn advance_writes(&mut self, round: &mut Round<'_>) {
        while let Some(Write { from, name, offset, immediate, token }) = self.writes.pop_front() {
            let again = |from| Write { from, name, offset, immediate, token };
            let Some(exposed) = self.exposed_there.get(&name) else {
                // Its announcement, on the lifeline, may still be on its way.
                return self.writes.push_front(again(from));
            };
            let (start, bytes) = (from.as_ptr().cast_mut(), from.bytes());
            let end = offset.checked_add(bytes as u64);
            if end.is_none_or(|end| end > exposed.bytes) {
                self.writes.push_front(again(from));
                let what = format!("exposed {} bytes; a write ends beyond", exposed.bytes);
                return self.break_by(Cause::Protocol(what));
            }
            let (address, key) = (exposed.address + offset, exposed.key);
            let Some(endpoint) = self.endpoint(0) else { return };
            let registration = match round.devices[0].registrar.cover(&from.memory(), start, bytes)
            {
                Ok(registration) => registration,
                Err(error) => {
                    self.writes.push_front(again(from));
                    return self.fail_memory(error);
                }
            };
            let context = self.context(Op::Write(from, token, registration.clone()));
            let span = Span { start, bytes, registration: registration.as_deref() };
            // SAFETY: as for a send.
            let posted = unsafe { sys::post_write(&endpoint, span, None, address, key, context) };
            if let Err(error) = posted {
                if let Some(Op::Write(from, ..)) = self.forget(context) {
                    self.writes.push_front(again(from));
                }
                return self.refused(error);
            }
            // On the same endpoint behind the write itself: writes arrive in order.
            self.ring.push(Note::Written(immediate));
        }
    }

    fn advance_words(&mut self) {
        let Some((peer_key, peer_address)) = self.peer_slots else { return };
        while let Some((slot, bytes)) = self.ring.next(self.receives_to_tell()) {
            let Some(endpoint) = self.endpoint(0) else { return };
            let range = slot_range(slot);
            self.staging.copy_in(range.start, &bytes);
            let way = self.way(0, CONTROL_TAG, false);
            let data = self.theirs.number << 8 | slot as u32;
            let address = peer_address + range.start as u64;
            let context = self.context(Op::Word);
            let span = self.staging.span(range);
            // SAFETY: our own buffer, which outlives the endpoint, and whose slot nobody changes
            // before the peer has read it.
            let posted = unsafe {
                match way {
                    Way::Connected => {
                        sys::post_write(&endpoint, span, Some(data), address, peer_key, context)
                    }
                    Way::Tagged { .. } => sys::post_send(&endpoint, way, span, data, context),
                }
            };
            if let Err(error) = posted {
                self.forget(context);
                return self.refused(error);
            }
            if self.peer_wants.is_some_and(|wanted| wanted < self.receives_posted) {
                self.peer_wants = None;
            }
            self.ring.wrote();
        }
    }

    /// The receives that the peer should know of: from the one that it has asked for, or the last.
    fn receives_to_tell(&self) -> Receives {
        let last = self.receives_posted.saturating_sub(LENGTHS_MAX as u64);
        let wanted = self.peer_wants.filter(|&wanted| wanted < self.receives_posted);
        let first = wanted.unwrap_or(last).max(self.lengths_first);
        let skip = (first - self.lengths_first) as usize;
        let count = LENGTHS_MAX.min(self.receives_posted.saturating_sub(first) as usize);
        Receives { first, lengths: self.lengths.iter().skip(skip).take(count).copied().collect() }
    }

    /// A post was refused: for now, or for good.
    fn refused(&mut self, error: Errno) {
        if error == Errno::AGAIN {
            self.retry = true;
        } else {
            self.break_by(Cause::Lost(format!("posting failed: {}", error.text())));
        }
    }

    fn fail_memory(&mut self, error: String) {
        self.break_by(Cause::Memory { access: "registered", error });
    }

    /// Breaks the link, unless it is closing or broken: the first cause stays.
    pub fn break_by(&mut self, cause: Cause) {
        match &mut self.phase {
            // What fails now would have been cut off anyway.
            Phase::Closing { heard, .. } => *heard = true,
            _ => drop(self.broken.get_or_insert(cause)),
        }
    }

    /// Something that the provider had is done, or failed.
    pub fn complete(&mut self, raw: &RawCompletion, round: &mut Round<'_>) {
        let Some(op) = self.forget(raw.context) else { return };
        let endpoint = self.id;
        let failed = raw.error != 0;
        if failed {
            self.note_error(raw, matches!(op, Op::Receive(..)), round.devices);
        }
        match op {
            Op::Send(lease, token, _) => {
                self.sends_posted -= 1;
                drop(lease);
                round.completed.push(if failed {
                    Completion::Cancelled { endpoint, token }
                } else {
                    Completion::Sent { endpoint, token }
                });
            }
            Op::Write(lease, token, ..) => {
                drop(lease);
                round.completed.push(if failed {
                    Completion::Cancelled { endpoint, token }
                } else {
                    Completion::Sent { endpoint, token }
                });
            }
            Op::Receive(lease, token, _) => {
                self.receives_open -= 1;
                // Rails may be ahead of one another, by as much as they have posted.
                let keep = 2 * (self.receives_open + self.receives.len()) + LENGTHS_MAX;
                while self.lengths.len() > keep {
                    self.lengths.pop_front();
                    self.lengths_first += 1;
                }
                drop(lease);
                let (bytes, immediate) = (raw.bytes, raw.data as u32);
                round.completed.push(if failed {
                    Completion::Cancelled { endpoint, token }
                } else {
                    Completion::Received { endpoint, token, bytes, immediate }
                });
            }
            Op::Word => {}
            Op::Place if failed => {}
            Op::Place => {
                let slot = self.ring.next_slot();
                self.read_slot(slot, round);
                if let Err(error) = self.post_place(slot) {
                    self.refused(error);
                }
            }
        }
    }

    fn note_error(&mut self, raw: &RawCompletion, receiving: bool, devices: &[Device]) {
        let error = Errno(raw.error);
        let verbs = devices[0].info.provider == "verbs";
        let too_long =
            error == Errno::TRUNCATED || (verbs && raw.provider_error == VERBS_LENGTH_ERROR);
        self.break_by(if receiving && too_long {
            Cause::Protocol("sent a block that is longer than the memory for it".into())
        } else {
            Cause::Lost(format!("{} ({})", error.text(), raw.provider_error))
        });
    }

    /// The peer has written this slot.
    pub fn read_slot(&mut self, slot: u64, round: &mut Round<'_>) {
        let bytes = self.slots.copy_out::<SLOT_BYTES>(slot_range(slot % SLOTS).start);
        match self.ring.read(slot, &bytes) {
            Ok(read) => self.take_note(read, round),
            Err(what) => self.break_by(Cause::Protocol(what.into())),
        }
    }

    fn take_note(&mut self, slot: Slot, round: &mut Round<'_>) {
        let endpoint = self.id;
        for (index, length) in (slot.receives.first..).zip(slot.receives.lengths) {
            if index >= self.sends_started && self.peer_lengths.len() < PEER_LENGTHS_MAX {
                self.peer_lengths.insert(index, length);
            }
        }
        match slot.note {
            _ if !self.is_open() => {}
            Note::Word(word) => round.completed.push(Completion::Control { endpoint, word }),
            Note::Written(immediate) => {
                round.completed.push(Completion::Written { endpoint, immediate });
            }
            Note::Consumed => {}
            Note::Wants { index, bytes } => self.answer(index, bytes),
        }
    }

    /// The peer has a block and does not know that it fits.
    fn answer(&mut self, index: u64, bytes: u64) {
        let known = index.checked_sub(self.lengths_first).and_then(|at| usize::try_from(at).ok());
        match known.and_then(|at| self.lengths.get(at)) {
            None => {
                let what = "sent a block that nobody asked for";
                self.break_by(Cause::Protocol(what.into()));
            }
            Some(&length) if bytes > u64::from(length) => {
                let what = format!(
                    "sent a block of {bytes} bytes, longer than the memory of {length} for it"
                );
                self.break_by(Cause::Protocol(what));
            }
            Some(_) => {
                // Told as soon as it is posted; see `receives_to_tell`.
                self.peer_wants = Some(index);
                if index < self.receives_posted {
                    self.ring.push(Note::Consumed);
                }
            }
        }
    }

    /// The peer says something over the lifeline. Words that come twice, or make no sense, break
    /// the link.
    pub fn hear(&mut self, word: Option<Lifeline>) {
        match word {
            Some(Lifeline::Hello { key, address }) if self.peer_slots.is_none() => {
                self.peer_slots = Some((key, address));
            }
            Some(Lifeline::Exposed { name, key, address, bytes })
                if self.exposed_there.len() < EXPOSED_MAX
                    && address.checked_add(bytes).is_some() =>
            {
                self.exposed_there.insert(name, Exposed { key, address, bytes });
            }
            Some(Lifeline::Bye { words }) => self.peer_bye = Some(words),
            Some(Lifeline::ByeHeard) => {
                if let Phase::Closing { heard, .. } = &mut self.phase {
                    *heard = true;
                }
            }
            _ => self.break_by(Cause::Protocol("said something wrong on the lifeline".into())),
        }
    }

    /// Starts an ordered close: what the provider does not have yet is cancelled.
    pub fn close(&mut self, until: Instant, completed: &mut Vec<Completion>) {
        self.phase = Phase::Closing { until, said_bye: false, heard: false };
        self.cancel_waiting(completed);
    }

    fn cancel_waiting(&mut self, completed: &mut Vec<Completion>) {
        let endpoint = self.id;
        // Leases are dropped before their completions can be seen.
        let sends = self.sends.drain(..).map(|send| send.token);
        let receives = self.receives.drain(..).map(|(_, token)| token);
        let writes = self.writes.drain(..).map(|write| write.token);
        let cancelled = sends.chain(receives).chain(writes);
        completed.extend(cancelled.map(|token| Completion::Cancelled { endpoint, token }));
    }

    /// Closes all endpoints; then nobody touches memory any more, and all of it is handed back.
    pub fn tear_down(mut self, completed: &mut Vec<Completion>) {
        for path in self.paths.iter().flatten() {
            if path.peer.is_none() {
                sys::shut_down(&path.endpoint);
            }
        }
        self.paths.clear();
        self.cancel_waiting(completed);
        let endpoint = self.id;
        for op in std::mem::take(&mut self.ops).into_values() {
            if let Op::Send(_, token, _) | Op::Receive(_, token, _) | Op::Write(_, token, ..) = op {
                completed.push(Completion::Cancelled { endpoint, token });
            }
        }
    }

    /// The endpoints' addresses, by which events name them.
    pub fn endpoints(&self) -> impl Iterator<Item = usize> + '_ {
        self.paths.iter().flatten().map(|path| path.endpoint.address())
    }
}

fn slot_range(slot: u64) -> std::ops::Range<usize> {
    let start = slot as usize * SLOT_BYTES;
    start..start + SLOT_BYTES
}

/// A key for memory of this link, where the provider does not choose.
fn wanted_key(number: u32, name: u32) -> u64 {
    u64::from(number) << 32 | u64::from(name)
}
