//! The transport itself: its links, and how it makes progress and waits.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use transport::{
    CONTROL_BYTES_MAX, Completion, EndpointId, FileAccess, OneSidedWrites, PeerMemory, PostError,
    ReadLease, Token, Transport, Visibility, Waker, WriteLease,
};

use crate::{error::ShmError, link::Link, offer::ShmLink, settings::ShmSettings, sleeper::Sleeper};

/// How often sockets, heartbeats and deadlines are looked at while the rings are polled.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// The most that one post can carry: that of other transports, so that all accept the same blocks.
const BLOCK_BYTES_MAX: u64 = u32::MAX as u64;

/// The first identifier of an endpoint: below are those of a transport beside this one.
pub(crate) const FIRST_ID: u64 = 1 << 63;

/// [`Transport`] over shared memory, without a thread: bytes move in `poll`, and within the calls that post.
///
/// Dropping it closes all sockets at once; peers report [`transport::Cause::Lost`], and can no longer write into memory
/// that was exposed to them.
pub struct ShmTransport {
    settings: ShmSettings,
    links: FxHashMap<EndpointId, Link>,
    completed: Vec<Completion>,
    sleeper: Sleeper,
    origin: Instant,
    /// The identifier of the next endpoint.
    next_id: u64,
    looked: Instant,
    /// The last heartbeat, and when it was stored.
    beat: u64,
    beaten: Instant,
    /// Peers know that this end is about to sleep, and the caller has looked at its memory since, or does next.
    is_dozing: bool,
}

impl ShmTransport {
    /// Makes a transport without endpoints. Errors: a setting is out of range; the process has no file descriptors left, or the
    /// system has no memory that can be passed on.
    pub fn new(settings: ShmSettings) -> Result<Self, ShmError> {
        let segment = PeerMemory::zeroed(1).share(FileAccess::Read);
        segment.map_err(ShmError::at("making shared memory"))?;
        let now = Instant::now();
        Ok(Self {
            settings: settings.checked()?,
            links: FxHashMap::default(),
            completed: Vec::new(),
            sleeper: Sleeper::new().map_err(ShmError::at("making an event queue"))?,
            origin: now,
            next_id: FIRST_ID,
            looked: now,
            beat: 0,
            beaten: now,
            is_dozing: false,
        })
    }

    fn open_link(&mut self, id: EndpointId) -> Result<&mut Link, PostError> {
        let link = self.links.get_mut(&id).filter(|link| link.is_open());
        link.ok_or(PostError::EndpointGone(id))
    }

    /// Writes what was just posted: the peer need not wait for the next poll.
    fn write(&mut self, id: EndpointId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.write(false, &mut self.completed);
        }
    }

    /// How long a wait polls before it sleeps.
    pub(crate) fn spin(&self) -> Duration {
        self.settings.spin
    }

    pub(crate) fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }

    /// Does everything that can be done without waiting. Returns whether that was anything.
    pub(crate) fn progress(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.looked) >= LOOK_INTERVAL {
            self.look(now, Some(Duration::ZERO));
        }
        let (mut has_ended, mut has_moved) = (false, false);
        for link in self.links.values_mut() {
            has_moved |= link.advance(&mut self.completed);
            has_ended |= link.has_ended();
        }
        if has_ended {
            self.end_links();
        }
        if has_moved && std::mem::take(&mut self.is_dozing) {
            self.links.values_mut().for_each(Link::wake);
        }
        has_moved
    }

    fn end_links(&mut self) {
        for (_, link) in self.links.extract_if(|_, link| link.has_ended()) {
            self.sleeper.remove(link.socket());
            link.tear_down(&mut self.completed);
        }
    }

    /// Waits for sockets, then handles their messages, heartbeats and deadlines.
    fn look(&mut self, now: Instant, timeout: Option<Duration>) {
        for id in self.sleeper.wait(timeout) {
            if let Some(link) = self.links.get_mut(&id) {
                link.read_messages();
            }
        }
        let now = if timeout == Some(Duration::ZERO) { now } else { Instant::now() };
        self.looked = now;
        if now.saturating_duration_since(self.beaten) >= self.beat_interval() {
            (self.beat, self.beaten) = (self.beat + 1, now);
            self.links.values_mut().for_each(|link| link.store_beat(self.beat));
        }
        for link in self.links.values_mut() {
            link.look(now, self.settings.silence_timeout);
        }
    }

    /// Appends what has completed to `completions`.
    pub(crate) fn hand_out(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completed);
    }

    fn beat_interval(&self) -> Duration {
        self.settings.silence_timeout / 4
    }

    /// Sleeps until there is news, or until a time (`None`: without limit). Returns whether the caller of `poll` has to look: the waker
    /// was used, or it has exposed memory, into which peers may have written. Where it has, the first call only tells peers that this
    /// end sleeps: what they have written before, the caller sees, and what they write later wakes this end.
    pub(crate) fn sleep(&mut self, now: Instant, until: Option<Instant>) -> bool {
        self.links.values_mut().for_each(Link::doze);
        let is_exposed = self.links.values().any(Link::exposes);
        if !std::mem::replace(&mut self.is_dozing, true) && is_exposed {
            return true;
        }
        if !self.links.values().any(Link::has_news) {
            let beat = (!self.links.is_empty()).then_some(self.beaten + self.beat_interval());
            let deadlines = self.links.values().filter_map(Link::deadline);
            let soonest = deadlines.chain(beat).chain(until).min();
            self.look(now, soonest.map(|soonest| soonest.saturating_duration_since(now)));
        }
        self.links.values_mut().for_each(Link::wake);
        self.is_dozing = false;
        self.sleeper.take_woken() || is_exposed
    }
}

impl Transport for ShmTransport {
    type Link = ShmLink;

    /// Returns the time since this transport was made.
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Returns 4 GiB - 1.
    fn block_bytes_max(&self) -> u64 {
        BLOCK_BYTES_MAX
    }

    /// Does not wait for the peer: posts made meanwhile are queued. Errors: the system has no memory or file descriptors.
    fn open(&mut self, link: ShmLink) -> Result<EndpointId, PostError> {
        let id = EndpointId(self.next_id);
        self.next_id += 1;
        let mut link = Link::open(id, link, &self.settings, Instant::now())?;
        link.store_beat(self.beat);
        self.sleeper
            .add(id, link.socket())
            .map_err(|error| PostError::System(format!("waiting for a socket: {error}")))?;
        self.links.insert(id, link);
        self.is_dozing = false;
        Ok(id)
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(into.bytes(), BLOCK_BYTES_MAX)?;
        self.open_link(endpoint)?.post_receive(into, token);
        Ok(())
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), BLOCK_BYTES_MAX)?;
        self.open_link(endpoint)?.post_send(from, immediate, token);
        self.write(endpoint);
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
        self.write(endpoint);
        Ok(())
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }

    fn close(&mut self, endpoint: EndpointId) {
        let until = Instant::now() + self.settings.drain_timeout;
        if let Ok(link) = self.open_link(endpoint) {
            tracing::debug!(endpoint = endpoint.0, "closing");
            link.close(until);
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        let mut now = Instant::now();
        let (until, mut moved) = (now.checked_add(wait), now);
        loop {
            if self.progress(now) {
                moved = now;
            }
            let is_over = wait.is_zero() || until.is_some_and(|until| now >= until);
            if is_over || !self.completed.is_empty() {
                self.hand_out(completions);
                return;
            }
            if now < moved + self.settings.spin {
                std::hint::spin_loop();
            } else if self.sleep(now, until) {
                self.progress(Instant::now());
                self.hand_out(completions);
                return;
            }
            now = Instant::now();
        }
    }

    fn flush(&mut self) {
        for link in self.links.values_mut() {
            link.write(false, &mut self.completed);
        }
    }

    fn waker(&self) -> Waker {
        self.sleeper.waker()
    }
}

impl OneSidedWrites for ShmTransport {
    /// Vouches for all: see [`PeerMemory::publish`].
    fn visibility(&self, _endpoint: EndpointId) -> Visibility {
        Visibility { in_order: true, whole_words: true, early: true }
    }

    /// A peer that writes into memory wakes this end.
    fn ends_waits(&self, _endpoint: EndpointId) -> bool {
        true
    }

    /// The peer maps the memory, if it was made by [`PeerMemory::zeroed`] and is exposed to no other peer at that time.
    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        self.open_link(endpoint)?.expose(key, memory)
    }

    /// Copies the bytes within the call, where the peer's memory is mapped.
    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), BLOCK_BYTES_MAX)?;
        let link = self.links.get_mut(&endpoint).filter(|link| link.is_open());
        let link = link.ok_or(PostError::EndpointGone(endpoint))?;
        // Before anything else, since the peer may look at the memory.
        let placed = link.place(key, offset, &from);
        link.post_write(from, key, offset, immediate, token, placed, &mut self.completed);
        Ok(())
    }
}
