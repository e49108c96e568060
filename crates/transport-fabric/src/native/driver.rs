//! The transport itself: its devices and links, and how it makes progress.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use transport::{
    CONTROL_BYTES_MAX, Cause, Completion, CutThroughSends, EndpointId, OneSidedWrites, PeerMemory,
    PostError, ReadLease, Region, Token, Transport, TriggeredSends, Waker, Watched, WriteLease,
};
use transport_tcp::TcpSettings;

use crate::{
    error::FabricError,
    native::{
        connecting::{Connecting, Links, SLICE},
        device::{self, Device},
        lifelines::{LifelineEvent, Lifelines},
        link::{Contents, End, Link, Round, Written, cuts_blocks},
        offer::{Book, FabricLink, Offers},
        offload::Offload,
        sys::{self, RawCompletion},
        waiting::Sleeper,
    },
    settings::FabricSettings,
};

mod cut_through;
#[cfg(test)]
mod tests;
mod triggered;

/// How often lifelines and connection events are polled while the fabric itself is polled.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// How often links are checked for missing acknowledgements of the network.
const ANSWERS_INTERVAL: Duration = Duration::from_secs(1);

/// [`Transport`] over libfabric. It has no thread of its own (a provider may have some): all work
/// is done in `poll`, by the thread that calls it.
///
/// Dropping it closes all endpoints at once, without waiting; peers report [`Cause::Lost`].
pub struct FabricTransport {
    // Declared before the devices: links are dropped before the devices that they use.
    links: Links,
    connecting: Connecting,
    /// Links that have work to do have to wait for the next poll.
    is_behind: bool,
    offload: Offload,
    devices: Vec<Device>,
    book: Arc<Book>,
    settings: FabricSettings,
    drain_timeout: Duration,
    lifelines: Lifelines,
    /// Links by the number by which peers identify them.
    by_number: HashMap<u32, EndpointId>,
    /// Links that may have work to do.
    busy: BTreeSet<EndpointId>,
    /// Links that wait for a deadline: see [`Link::deadline`].
    timed: BTreeSet<EndpointId>,
    /// Links with a send that waits for what arrives: see [`Link::follows`].
    following: BTreeSet<EndpointId>,
    completed: Vec<Completion>,
    origin: Instant,
    opened: u64,
    looked: Option<Instant>,
    answers_checked: Instant,
    sleeper: Sleeper,
}

impl FabricTransport {
    /// Opens the devices, and listens on those with message endpoints.
    ///
    /// Errors: see [`FabricError`]; each names its remedy.
    pub fn start(settings: FabricSettings, tcp: TcpSettings) -> Result<Self, FabricError> {
        sys::load().map_err(FabricError::NoLibrary)?;
        let infos = device::choose(&settings)?;
        let open = |info| Device::open(info, &settings);
        let devices = infos.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let addresses: Result<Vec<_>, _> = devices.iter().map(Device::address).collect();
        let addresses = addresses?.into_iter().flatten().collect();
        let datagrams = devices.iter().filter_map(Device::datagrams).collect();
        let book = Book::new(settings.provider.clone(), addresses, datagrams);
        let drain_timeout = tcp.drain_timeout.min(Duration::from_secs(3_600));
        let lifelines =
            Lifelines::new(tcp).map_err(|error| FabricError::call("starting TCP", error))?;
        let sleeper = Sleeper::new()
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
            connecting: Connecting::new(settings.connect_timeout),
            is_behind: false,
            offload: Offload::default(),
            devices,
            book,
            settings,
            drain_timeout,
            lifelines,
            by_number: HashMap::new(),
            busy: BTreeSet::new(),
            timed: BTreeSet::new(),
            following: BTreeSet::new(),
            completed: Vec::new(),
            origin: Instant::now(),
            opened: 0,
            looked: None,
            answers_checked: Instant::now(),
            sleeper,
        })
    }

    /// Returns the maker of offers for new links, for any thread.
    pub fn offers(&self) -> Offers {
        Offers::new(Arc::clone(&self.book))
    }

    /// Returns the names of the devices in use, one for each rail.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|device| device.info.domain.as_str())
    }

    fn open_link(&mut self, id: EndpointId) -> Result<&mut Link, PostError> {
        let link = self.links.get_mut(&id).filter(|link| link.is_open());
        self.busy.insert(id);
        link.ok_or(PostError::EndpointGone(id))
    }

    /// Posts at once what was just queued, so that a control word that follows can announce it.
    fn advance_one(&mut self, id: EndpointId) {
        let mut round = Round {
            devices: &self.devices,
            completed: &mut self.completed,
            lifeline: &mut self.lifelines.words,
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

    /// Passes operations that were just posted to the provider, since the next poll may be late.
    fn start_offloaded(&mut self, endpoint: EndpointId) {
        if let Some(link) = self.links.get_mut(&endpoint) {
            self.offload.start(link, &self.devices[0]);
        }
    }

    fn check_length(&self, bytes: usize) -> Result<(), PostError> {
        PostError::check_length(bytes, self.block_bytes_max())
    }

    /// Does everything that can be done without waiting.
    fn progress(&mut self) {
        let now = Instant::now();
        if self.looked.is_none_or(|looked| now >= looked + LOOK_INTERVAL) {
            self.look(now);
        }
        self.is_behind = false;
        self.busy.extend(self.connecting.open_endpoints(&mut self.links, &self.devices));
        self.read_completions();
        self.check_answers(now);
        self.offload.advance(&mut self.completed);
        self.advance(now);
        if !self.lifelines.words.is_empty() {
            self.write_words();
        }
    }

    /// Breaks links over which no post completes although the peer is alive: some adapters
    /// retransmit for ever.
    fn check_answers(&mut self, now: Instant) {
        if now < self.answers_checked + ANSWERS_INTERVAL {
            return;
        }
        self.answers_checked = now;
        for (&id, link) in &mut self.links {
            if link.check_answers(now, self.settings.answer_timeout) {
                self.busy.insert(id);
            }
        }
    }

    /// Sleeps until an event or the given time. Returns whether the waker was used.
    fn sleep(&mut self, until: Option<Instant>, now: Instant) -> bool {
        let deadlines = self.timed.iter().filter_map(|id| self.links.get(id)?.deadline());
        let soonest = deadlines.chain(until).chain(self.lifelines.tcp.next_tick()).min();
        let mut timeout = soonest.map(|soonest| soonest.saturating_duration_since(now));
        if self.offload.is_busy() || !self.busy.is_empty() {
            // Neither counters nor space in a queue end a wait.
            timeout = Some(timeout.map_or(LOOK_INTERVAL, |timeout| timeout.min(LOOK_INTERVAL)));
        }
        if self.is_behind || self.connecting.is_busy() {
            timeout = Some(Duration::ZERO);
        }
        let has_links = !self.links.is_empty();
        let woken = self.sleeper.sleep(&self.devices, &self.lifelines.tcp, has_links, timeout);
        if woken.has_slept {
            self.looked = None;
        }
        woken.by_waker
    }

    /// Polls lifelines, connection events, and links whose deadline has passed.
    fn look(&mut self, now: Instant) {
        self.looked = Some(now);
        for (id, event) in self.lifelines.poll() {
            let Some(link) = self.links.get_mut(&id) else { continue };
            match event {
                LifelineEvent::Word(word) => link.receive_word(word),
                LifelineEvent::Ended(cause) => link.break_by(cause),
            }
            self.busy.insert(id);
        }
        let (links, devices) = (&mut self.links, &self.devices);
        match self.connecting.take_events(links, devices, &self.book, now) {
            Ok(changed) => self.busy.extend(changed),
            Err(why) => self.break_all(&why),
        }
        let due = |id: &&EndpointId| {
            let deadline = self.links.get(id).and_then(Link::deadline);
            deadline.is_some_and(|deadline| now >= deadline)
        };
        let due: Vec<EndpointId> = self.timed.iter().filter(due).copied().collect();
        self.busy.extend(due);
        self.connecting.expire(now, &self.devices);
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
                if count > 0 {
                    self.busy.extend(&self.following);
                }
                // An entry with an error is returned alone, and others may follow.
                if count == 0 {
                    break;
                }
                self.sleeper.note_completion();
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
        let consumes = self.devices[0].info.writes_consume_receives;
        let mut round = Round {
            devices: &self.devices,
            completed: &mut self.completed,
            lifeline: &mut self.lifelines.words,
        };
        // The link's number is in the data of a peer's write, unless that has consumed a receive,
        // and in the context of this end's post.
        if raw.kind == sys::WRITTEN && raw.error == 0 && !consumes {
            let (number, written) = Written::of_link(raw.data);
            let Some(&id) = self.by_number.get(&number) else { return };
            let Some(link) = self.links.get_mut(&id) else { return };
            link.take(Some(written), &mut round);
            self.busy.insert(id);
            return;
        }
        let id = EndpointId(raw.context >> 32);
        if let Some(link) = self.links.get_mut(&id) {
            link.complete(raw, &mut round);
            self.busy.insert(id);
        }
    }

    /// Serves links that have work to do. Closing endpoints takes time, too: what exceeds the slice
    /// is left for the next call.
    fn advance(&mut self, now: Instant) {
        let mut busy = std::mem::take(&mut self.busy).into_iter();
        while let Some(id) = busy.next() {
            let Some(link) = self.links.get_mut(&id) else { continue };
            link.rise();
            // Must precede the words of the link, which announce receives.
            let has_started = self.offload.start(link, &self.devices[0]);
            let mut round = Round {
                devices: &self.devices,
                completed: &mut self.completed,
                lifeline: &mut self.lifelines.words,
            };
            let end = link.advance(&mut round, now);
            set(&mut self.timed, id, link.deadline().is_some());
            set(&mut self.following, id, link.follows());
            if link.has_to_retry() || !has_started {
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

    /// Writes the queued words of links to their lifelines.
    fn write_words(&mut self) {
        for (id, error) in self.lifelines.write_words() {
            if let Some(link) = self.links.get_mut(&id) {
                link.break_by(Cause::Lost(error.to_string()));
                self.busy.insert(id);
            }
        }
        // Polls the lifelines now, not at the next interval.
        self.looked = None;
    }

    fn end(&mut self, id: EndpointId, end: End) {
        let Some(link) = self.links.remove(&id) else { return };
        self.write_words();
        self.connecting.remove(&link);
        self.by_number.remove(&link.number());
        self.timed.remove(&id);
        self.following.remove(&id);
        self.lifelines.remove(link.lifeline);
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

    /// Closes the endpoints after no operation can start on them any more, then hands memory back.
    fn end_links(&mut self) {
        self.offload.disarm_all();
        self.connecting.turn_all_away(&self.devices);
        self.links.drain().for_each(|(_, link)| self.connecting.remove(&link));
    }

    fn break_all(&mut self, why: &str) {
        for (&id, link) in &mut self.links {
            link.break_by(Cause::Lost(why.to_owned()));
            self.busy.insert(id);
        }
    }
}

fn set(ids: &mut BTreeSet<EndpointId>, id: EndpointId, is_member: bool) {
    if is_member {
        ids.insert(id);
    } else {
        ids.remove(&id);
    }
}

impl Drop for FabricTransport {
    /// Does not wait, unlike [`Transport::finish`].
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

    /// Starts to connect without waiting for it: posts made meanwhile are queued.
    fn open(&mut self, link: FabricLink) -> Result<EndpointId, PostError> {
        let id = EndpointId(self.opened);
        self.opened += 1;
        let FabricLink { lifeline, ends } = link;
        let lifeline = self.lifelines.open(lifeline)?;
        let until = Instant::now() + self.settings.connect_timeout;
        let opened = Link::new(id, lifeline, ends, &self.devices, until);
        let mut link = opened.map_err(|error| {
            self.lifelines.tcp.close(lifeline);
            PostError::System(crate::native::registration::explain(error, 0))
        })?;
        if !self.devices[0].info.is_message_endpoint {
            if let Err(error) = link.join_datagrams(&self.devices) {
                link.break_by(Cause::Lost(error));
            }
        } else {
            self.connecting.add(&link);
        }
        self.lifelines.words.push((lifeline, link.hello(&self.devices)));
        self.lifelines.assign(lifeline, id);
        self.by_number.insert(link.number(), id);
        self.timed.insert(id);
        self.busy.insert(id);
        self.links.insert(id, link);
        self.write_words();
        Ok(id)
    }

    fn register(&mut self, region: &Region) -> Result<(), PostError> {
        let register = |device: &Device| device.registrar.register(region);
        self.devices.iter().try_for_each(register).map_err(PostError::System)
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
        self.open_link(endpoint)?.post_send(Contents::Whole(from), immediate, token);
        Ok(())
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        PostError::check_length(word.len(), CONTROL_BYTES_MAX as u64)?;
        if word.is_empty() {
            return Err(PostError::System("an empty control word".into()));
        }
        if !self.open_link(endpoint)?.write_word(word) {
            return Err(PostError::System("megabytes of control words wait for the peer".into()));
        }
        Ok(())
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        if self.devices[0].info.immediates.is_some() { Some(self) } else { None }
    }

    fn cut_through(&mut self) -> Option<&mut dyn CutThroughSends> {
        if cuts_blocks(&self.devices[0].info) { Some(self) } else { None }
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

    fn flush(&mut self) {
        if !self.busy.is_empty() {
            self.advance(Instant::now());
        }
        if !self.lifelines.words.is_empty() {
            self.write_words();
        }
        self.lifelines.tcp.flush();
    }

    fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    /// Waits 200 ms at most for requests that may still arrive for links that have ended while
    /// connecting, and rejects them; each could otherwise keep a socket of this process open.
    fn finish(&mut self) {
        self.end_links();
        self.connecting.last_call(&self.devices);
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
        self.lifelines.words.push((link.lifeline, word));
        self.write_words();
        Ok(())
    }

    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) -> Result<(), PostError> {
        if self.one_sided().is_none() {
            return Err(PostError::Unsupported("one-sided writes"));
        }
        self.check_length(from.bytes())?;
        self.open_link(endpoint)?.post_write(from, key, offset, immediate, token);
        self.advance_one(endpoint);
        Ok(())
    }
}
