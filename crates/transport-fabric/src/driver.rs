//! The transport itself: devices, links, and how they are moved on.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use transport::{
    CONTROL_BYTES_MAX, Cause, Completion, EndpointId, FutureRead, OneSidedWrites, PeerMemory,
    PostError, ReadLease, Token, Transport, TriggeredSends, Waker, WriteLease,
};
use transport_tcp::{TcpConfig, TcpTransport};

use crate::{
    FabricError, FabricLink, FabricSettings, Offers,
    connecting::{Opening, Requests, SLICE},
    device::{self, Device},
    lifeline::Lifeline,
    link::{End, Link, Round},
    offer::{Book, Role},
    offload::Offload,
    ring::SLOTS,
    sys::{self, RawCompletion},
};

/// Lifelines and connection events are looked at this often while the fabric itself is polled.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Where a device cannot wake a sleeper: so many polls at once, then naps between them.
pub(crate) const EAGER_POLLS: u32 = 200;
pub(crate) const NAP: Duration = Duration::from_micros(100);

/// [`Transport`] over libfabric. No thread of its own (a provider may have some): all work is done
/// in `poll`, by the thread that calls it.
///
/// Dropping it closes all endpoints at once, without waiting; peers see [`Cause::Lost`].
pub struct FabricTransport {
    // Links go before the devices that they are open on.
    pub(crate) links: HashMap<EndpointId, Link>,
    pub(crate) requests: Requests,
    pub(crate) openings: VecDeque<Opening>,
    /// Links that have something to do have to wait for the next look.
    pub(crate) is_behind: bool,
    pub(crate) offload: Offload,
    pub(crate) devices: Vec<Device>,
    pub(crate) book: Arc<Book>,
    pub(crate) settings: FabricSettings,
    drain_timeout: Duration,
    pub(crate) lifelines: TcpTransport,
    /// Which link a lifeline belongs to.
    by_lifeline: HashMap<EndpointId, EndpointId>,
    /// Links by the number that peers call them.
    by_number: HashMap<u32, EndpointId>,
    /// Links by the addresses of their endpoints.
    pub(crate) by_endpoint: HashMap<usize, EndpointId>,
    /// Links that may have something to do.
    pub(crate) busy: BTreeSet<EndpointId>,
    /// Links that wait for a time: see [`Link::deadline`].
    pub(crate) timed: BTreeSet<EndpointId>,
    completed: Vec<Completion>,
    words: Vec<(EndpointId, Lifeline)>,
    origin: Instant,
    opened: u64,
    pub(crate) looked: Option<Instant>,
    pub(crate) answers_checked: Instant,
    pub(crate) waker: Arc<OwnedFd>,
    pub(crate) idle_polls: u32,
}

impl FabricTransport {
    /// Opens the devices, and listens on those with message endpoints.
    ///
    /// Errors: see [`FabricError`]; each says what helps.
    pub fn start(settings: FabricSettings, tcp: TcpConfig) -> Result<Self, FabricError> {
        sys::load().map_err(FabricError::NoLibrary)?;
        let infos = device::choose(&settings)?;
        let open = |info| Device::open(info, settings.copies);
        let devices = infos.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let addresses: Result<Vec<_>, _> = devices.iter().map(Device::address).collect();
        let addresses = addresses?.into_iter().flatten().collect();
        let datagrams = devices.iter().filter_map(Device::datagrams).collect();
        let book = Book::new(settings.provider.clone(), addresses, datagrams);
        let drain_timeout = Duration::from_millis(tcp.drain_timeout_ms.min(3_600_000));
        let lifelines =
            TcpTransport::new(tcp).map_err(|error| FabricError::call("starting TCP", error))?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| FabricError::call("making an event descriptor", error))?;
        for device in &devices {
            tracing::debug!(
                provider = settings.provider,
                device = device.info.domain,
                waits = device.waitable().is_some(),
                "opened a device"
            );
        }
        Ok(Self {
            links: HashMap::new(),
            requests: Requests::new(settings.connect_timeout),
            openings: VecDeque::new(),
            is_behind: false,
            offload: Offload::default(),
            devices,
            book,
            settings,
            drain_timeout,
            lifelines,
            by_lifeline: HashMap::new(),
            by_number: HashMap::new(),
            by_endpoint: HashMap::new(),
            busy: BTreeSet::new(),
            timed: BTreeSet::new(),
            completed: Vec::new(),
            words: Vec::new(),
            origin: Instant::now(),
            opened: 0,
            looked: None,
            answers_checked: Instant::now(),
            waker: Arc::new(waker),
            idle_polls: 0,
        })
    }

    /// What makes offers for new links, on any thread.
    pub fn offers(&self) -> Offers {
        Offers::new(Arc::clone(&self.book))
    }

    /// The names of the devices in use, one for each rail.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|device| device.info.domain.as_str())
    }

    fn open_link(&mut self, id: EndpointId) -> Result<&mut Link, PostError> {
        let link = self.links.get_mut(&id).filter(|link| link.is_open());
        self.busy.insert(id);
        link.ok_or(PostError::EndpointGone(id))
    }

    /// Posts what was just asked for at once, so that a control word that follows can tell of it.
    fn advance_one(&mut self, id: EndpointId) {
        let mut round = Round {
            devices: &self.devices,
            completed: &mut self.completed,
            lifeline: &mut self.words,
        };
        if let Some(link) = self.links.get_mut(&id) {
            link.post_now(&mut round);
        }
    }

    fn check_offload(&mut self, endpoint: EndpointId, bytes: usize) -> Result<(), PostError> {
        if self.triggered().is_none() {
            return Err(PostError::Unsupported("offload"));
        }
        self.check_length(bytes)?;
        self.open_link(endpoint).map(drop)
    }

    /// Gives the provider what was just posted: nobody may poll for long.
    fn start_offloaded(&mut self, endpoint: EndpointId) {
        if let Some(link) = self.links.get_mut(&endpoint) {
            self.offload.start(link, &self.devices[0]);
        }
    }

    fn check_length(&self, bytes: usize) -> Result<(), PostError> {
        let (bytes, bytes_max) = (bytes as u64, self.block_bytes_max());
        if bytes > bytes_max { Err(PostError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
    }

    /// Everything that can be done without waiting.
    fn progress(&mut self) {
        let now = Instant::now();
        if self.looked.is_none_or(|looked| now >= looked + LOOK_INTERVAL) {
            self.look(now);
        }
        self.is_behind = false;
        self.open_endpoints();
        self.read_completions();
        self.check_answers(now);
        self.offload.advance(&mut self.completed);
        self.advance(now);
        if !self.words.is_empty() {
            self.speak();
        }
    }

    /// Looks at lifelines and connection events, and at links whose time has come.
    fn look(&mut self, now: Instant) {
        self.looked = Some(now);
        let mut heard = Vec::new();
        self.lifelines.poll(&mut heard, Duration::ZERO);
        heard.into_iter().for_each(|completion| self.hear(completion));
        self.take_events(now);
        let due = |id: &&EndpointId| {
            let deadline = self.links.get(id).and_then(Link::deadline);
            deadline.is_some_and(|deadline| now >= deadline)
        };
        let due: Vec<EndpointId> = self.timed.iter().filter(due).copied().collect();
        self.busy.extend(due);
        self.requests.expire(now, &self.devices);
    }

    fn hear(&mut self, completion: Completion) {
        let (lifeline, cause) = match completion {
            Completion::Control { endpoint, word } => {
                if let Some(&id) = self.by_lifeline.get(&endpoint)
                    && let Some(link) = self.links.get_mut(&id)
                {
                    link.hear(Lifeline::decode(&word));
                    self.busy.insert(id);
                }
                return;
            }
            Completion::Broken { endpoint, cause: Cause::ClosedByPeer } => {
                (endpoint, Cause::Lost("the peer gave the connection up".into()))
            }
            Completion::Broken { endpoint, cause } => (endpoint, cause),
            _ => return,
        };
        if let Some(id) = self.by_lifeline.remove(&lifeline)
            && let Some(link) = self.links.get_mut(&id)
        {
            link.break_by(cause);
            self.busy.insert(id);
        }
    }

    fn read_completions(&mut self) {
        let mut raw = [RawCompletion::default(); 64];
        for device in 0..self.devices.len() {
            loop {
                let count = self.devices[device].read_completions(&mut raw);
                let count = match count {
                    Ok(count) => count,
                    Err(error) => {
                        self.break_all(&format!("the completion queue failed: {}", error.text()));
                        return;
                    }
                };
                for completion in &raw[..count] {
                    self.route(completion);
                }
                // An entry with an error comes alone, and others may follow.
                if count == 0 {
                    break;
                }
                self.idle_polls = 0;
            }
        }
    }

    fn route(&mut self, raw: &RawCompletion) {
        if raw.error != 0
            && let Some((id, is_receive)) = self.offload.failed(raw.context)
        {
            if let Some(link) = self.links.get_mut(&id) {
                link.note_error(raw, is_receive, &self.devices);
                self.busy.insert(id);
            }
            return;
        }
        let datagrams = !self.devices[0].info.is_message_endpoint;
        let consumes = self.devices[0].info.writes_consume_receives;
        let mut round = Round {
            devices: &self.devices,
            completed: &mut self.completed,
            lifeline: &mut self.words,
        };
        // A write tells by its data which link it is for, a post by its context.
        let written = raw.kind == sys::WRITTEN && raw.error == 0 && !datagrams;
        if written && !consumes {
            let slot = raw.data & 0xff;
            let Some(&id) = self.by_number.get(&((raw.data >> 8) as u32)) else { return };
            let Some(link) = self.links.get_mut(&id) else { return };
            link.read_slot(slot % SLOTS, &mut round);
            self.busy.insert(id);
            return;
        }
        let id = EndpointId(raw.context >> 32);
        if let Some(link) = self.links.get_mut(&id) {
            link.complete(raw, &mut round);
            self.busy.insert(id);
        }
    }

    /// Closing endpoints takes its time as well: what is over the slice is done the next time.
    fn advance(&mut self, now: Instant) {
        let mut busy = std::mem::take(&mut self.busy).into_iter();
        while let Some(id) = busy.next() {
            let Some(link) = self.links.get_mut(&id) else { continue };
            link.rise();
            // Before the words of the link tell of receives.
            let has_room = self.offload.start(link, &self.devices[0]);
            let mut round = Round {
                devices: &self.devices,
                completed: &mut self.completed,
                lifeline: &mut self.words,
            };
            let end = link.advance(&mut round, now);
            if link.deadline().is_some() {
                self.timed.insert(id);
            } else {
                self.timed.remove(&id);
            }
            if link.has_to_retry() || !has_room {
                self.busy.insert(id);
            }
            if let Some(end) = end {
                self.end(id, end);
                if now.elapsed() > SLICE {
                    self.is_behind = busy.len() > 0;
                    self.busy.extend(busy);
                    return;
                }
            }
        }
    }

    /// Says on the lifelines what links have to say.
    fn speak(&mut self) {
        for (lifeline, word) in std::mem::take(&mut self.words) {
            match self.lifelines.write_control(lifeline, &word.encode()) {
                // A lifeline that is gone tells of itself.
                Ok(()) | Err(PostError::EndpointGone(_)) => {}
                // A word that is lost would leave the peer waiting.
                Err(error) => self.break_link_of(lifeline, &error),
            }
        }
        // Now, not at the next look.
        self.looked = None;
    }

    fn break_link_of(&mut self, lifeline: EndpointId, error: &PostError) {
        let Some(&id) = self.by_lifeline.get(&lifeline) else { return };
        if let Some(link) = self.links.get_mut(&id) {
            link.break_by(Cause::Lost(error.to_string()));
            self.busy.insert(id);
        }
    }

    fn end(&mut self, id: EndpointId, end: End) {
        let Some(link) = self.links.remove(&id) else { return };
        self.speak();
        if link.misses_requests() {
            self.requests.last_half_made = Some(Instant::now());
        }
        self.by_number.remove(&link.number());
        for endpoint in link.endpoints() {
            self.by_endpoint.remove(&endpoint);
        }
        self.timed.remove(&id);
        if self.by_lifeline.remove(&link.lifeline).is_some() {
            self.lifelines.close(link.lifeline);
        }
        self.offload.disarm(id);
        link.tear_down(&self.devices, &mut self.completed);
        self.offload.end(id, &mut self.completed);
        self.completed.push(match end {
            End::Closed => {
                tracing::debug!(endpoint = id.0, "closed");
                Completion::Closed { endpoint: id }
            }
            End::Broken(cause) => {
                tracing::debug!(endpoint = id.0, %cause, "broken");
                Completion::Broken { endpoint: id, cause }
            }
        });
    }

    /// Endpoints are closed while nothing can start on them any more, then memory is handed back.
    pub(crate) fn end_links(&mut self) {
        self.offload.disarm_all();
        self.turn_all_away();
        self.links.clear();
    }

    pub(crate) fn break_all(&mut self, why: &str) {
        for (&id, link) in &mut self.links {
            link.break_by(Cause::Lost(why.to_owned()));
            self.busy.insert(id);
        }
    }
}

impl Drop for FabricTransport {
    /// Does not wait; [`Transport::finish`] does.
    fn drop(&mut self) {
        self.end_links();
    }
}

impl Transport for FabricTransport {
    type Link = FabricLink;

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn block_bytes_max(&self) -> u64 {
        self.devices.iter().map(Device::block_bytes_max).min().unwrap_or(0)
    }

    /// Starts to connect, and does not wait for it: what is posted meanwhile waits.
    fn open(&mut self, link: FabricLink) -> Result<EndpointId, PostError> {
        let id = EndpointId(self.opened);
        self.opened += 1;
        let FabricLink { lifeline, ends } = link;
        let lifeline = self.lifelines.open(lifeline)?;
        let until = Instant::now() + self.settings.connect_timeout;
        let role = ends.role;
        let opened = Link::new(id, lifeline, ends, &self.devices, until);
        let mut link = opened.map_err(|error| {
            self.lifelines.close(lifeline);
            PostError::System(crate::registration::explain(error, 0))
        })?;
        if !self.devices[0].info.is_message_endpoint {
            if let Err(error) = link.join_datagrams(&self.devices) {
                link.break_by(Cause::Lost(error));
            }
        } else if role == Role::Connect {
            self.openings.push_back(Opening::Connect(id));
        } else {
            let requests = self.requests.take(&link.cookie()).into_iter();
            self.openings.extend(requests.map(|(path, info)| Opening::Accept(id, path, info)));
        }
        self.words.push((lifeline, link.hello(&self.devices)));
        self.by_lifeline.insert(lifeline, id);
        self.by_number.insert(link.number(), id);
        self.timed.insert(id);
        self.busy.insert(id);
        self.links.insert(id, link);
        self.speak();
        Ok(id)
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        self.check_length(into.bytes())?;
        self.open_link(endpoint)?.post_receive(into, token);
        self.advance_one(endpoint);
        Ok(())
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        self.check_length(from.bytes())?;
        self.open_link(endpoint)?.post_send(from, immediate, token);
        Ok(())
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        let (bytes, bytes_max) = (word.len() as u64, CONTROL_BYTES_MAX as u64);
        if bytes > bytes_max {
            return Err(PostError::TooLarge { bytes, bytes_max });
        }
        if word.is_empty() {
            return Err(PostError::System("an empty control word".into()));
        }
        if !self.open_link(endpoint)?.write_word(word) {
            return Err(PostError::System("megabytes of control words wait for the peer".into()));
        }
        Ok(())
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        if self.devices[0].info.is_message_endpoint { Some(self) } else { None }
    }

    fn triggered(&mut self) -> Option<&mut dyn TriggeredSends> {
        if self.devices[0].info.has_triggers { Some(self) } else { None }
    }

    fn close(&mut self, endpoint: EndpointId) {
        let until = Instant::now() + self.drain_timeout;
        let mut completed = Vec::new();
        if let Ok(link) = self.open_link(endpoint) {
            tracing::debug!(endpoint = endpoint.0, "closing");
            link.close(until, &mut completed);
        }
        self.completed.append(&mut completed);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        let until = Instant::now().checked_add(wait);
        self.offload.note_poll();
        loop {
            self.progress();
            let now = Instant::now();
            let over = until.is_some_and(|until| now >= until);
            let woken = self.completed.is_empty() && !over && self.sleep(until, now);
            if woken || over || !self.completed.is_empty() {
                completions.append(&mut self.completed);
                self.offload.note_report();
                return;
            }
        }
    }

    fn waker(&self) -> Waker {
        let waker = Arc::clone(&self.waker);
        // A full counter wakes as well.
        Arc::new(move || {
            let _ = rustix::io::write(&*waker, &1_u64.to_ne_bytes());
        })
    }

    /// Waits for requests that may still come in for links that have ended half made, 200 ms at most,
    /// and turns them away; each might otherwise keep a socket of this process.
    fn finish(&mut self) {
        if self.links.values().any(Link::misses_requests) {
            self.requests.last_half_made = Some(Instant::now());
        }
        self.end_links();
        self.requests.last_call(&self.devices);
    }
}

impl OneSidedWrites for FabricTransport {
    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        if self.one_sided().is_none() {
            return Err(PostError::Unsupported("one-sided writes"));
        }
        self.open_link(endpoint)?;
        let Some(link) = self.links.get_mut(&endpoint) else {
            return Err(PostError::EndpointGone(endpoint));
        };
        let word = link.expose(key, memory, &self.devices).map_err(PostError::System)?;
        self.words.push((link.lifeline, word));
        self.speak();
        Ok(())
    }

    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        if self.one_sided().is_none() {
            return Err(PostError::Unsupported("one-sided writes"));
        }
        self.check_length(from.bytes())?;
        self.open_link(endpoint)?.post_write(from, key, offset, immediate, token);
        Ok(())
    }
}

impl TriggeredSends for FabricTransport {
    fn post_offloaded_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        self.check_offload(endpoint, into.bytes())?;
        self.offload.post_receive(&self.devices[0], (endpoint, token), into, immediate)?;
        self.start_offloaded(endpoint);
        Ok(())
    }

    fn post_offloaded_send(
        &mut self,
        endpoint: EndpointId,
        from: FutureRead,
        immediate: u32,
        token: Token,
        after: &[(EndpointId, Token)],
    ) -> Result<(), PostError> {
        self.check_offload(endpoint, from.bytes())?;
        let (device, completed) = (&self.devices[0], &mut self.completed);
        let name = (endpoint, token);
        self.offload.post_send(device, name, from, immediate, after, completed)?;
        self.start_offloaded(endpoint);
        Ok(())
    }
}
