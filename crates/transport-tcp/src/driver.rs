//! The transport itself: all endpoints of a context, the event queue, and the ready list.

mod capabilities;

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;
use transport::{
    CONTROL_BYTES_MAX, Cause, Completion, CutThroughSends, EndpointId, OneSidedWrites, PostError,
    ReadLease, Token, Transport, Waker, WriteLease,
};

use crate::{
    channel::End,
    connection::{Connection, ONLY, streams_of},
    counters::TcpCounters,
    event_queue::{EventQueue, Waited},
    limit::{Direction, Limit},
    link::{ConnectionId, Kind, Sockets, TcpLink},
    settings::TcpSettings,
    shared::{Held, Sharing},
    stream::{Round, Stream},
};

/// How many consecutive polls may report completions of the ready list alone, without polling the
/// event queue for other endpoints.
const POLLS_WITHOUT_WAIT_MAX: u32 = 4;

/// With at most so many streams, polls that do not wait read from all of them: one system call where
/// the event queue and then a stream take two.
const STREAMS_READ_MAX: usize = 3;

/// How many such polls may follow each other without the event queue, which reports the waker.
const READS_WITHOUT_WAIT_MAX: u32 = 16;

/// Ticks in each heartbeat interval. A tick visits all endpoints, so that many idle ones with
/// different deadlines share one wake-up.
const TICKS_PER_INTERVAL: u32 = 8;

/// [`Transport`] over TCP: one event queue and no thread. All work is done in `poll`, by the thread
/// that calls it; the posting methods only queue.
///
/// Connections are served in turn, at most half a megabyte in each direction, so that none starves
/// another; also where [`TcpSettings::rate_max`] limits them together. Dropping the transport closes
/// all sockets at once, without an ordered close: peers report [`transport::Cause::Lost`].
pub struct TcpTransport {
    settings: TcpSettings,
    queue: EventQueue,
    origin: Instant,
    opened: u64,
    connected: u64,
    connections: FxHashMap<ConnectionId, Connection>,
    /// The connection of each endpoint, and its channel there.
    endpoints: FxHashMap<EndpointId, (ConnectionId, u32)>,
    sharing: Sharing,
    /// Connections that can move bytes now, each at most once.
    ready: VecDeque<ConnectionId>,
    /// Endpoints that send blocks which have not arrived as a whole.
    following: Vec<EndpointId>,
    sending: Limit,
    receiving: Limit,
    /// Completions that were not reported yet.
    completed: Vec<Completion>,
    /// The next time at which an endpoint has to be ticked; `None` if there is none.
    next_tick: Option<Instant>,
    polls_without_wait: u32,
    /// The waker has ended a wait since the last [`TcpTransport::take_woken`].
    woken: bool,
    counters: TcpCounters,
}

impl TcpTransport {
    /// Makes a transport with an event queue and no endpoints. Errors: a setting is out
    /// of range, or the process has no file descriptors left.
    pub fn new(settings: TcpSettings) -> io::Result<Self> {
        settings.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let queue = EventQueue::new()?;
        let (origin, rate_max) = (Instant::now(), settings.rate_max);
        Ok(Self {
            settings,
            queue,
            origin,
            opened: 0,
            connected: 0,
            connections: FxHashMap::default(),
            endpoints: FxHashMap::default(),
            sharing: Sharing::default(),
            ready: VecDeque::new(),
            following: Vec::new(),
            sending: Limit::new(rate_max, origin),
            receiving: Limit::new(rate_max, origin),
            completed: Vec::new(),
            next_tick: None,
            polls_without_wait: 0,
            woken: false,
            counters: TcpCounters::default(),
        })
    }

    /// Returns the totals so far.
    pub fn counters(&self) -> TcpCounters {
        self.counters
    }

    /// Returns a descriptor for waiting for this transport among others: readable when
    /// [`Transport::poll`] would report something or could move bytes, or when the waker was used.
    pub fn event_queue(&self) -> BorrowedFd<'_> {
        self.queue.descriptor()
    }

    /// Returns when [`Transport::poll`] has to be called at the latest: at once if it can move
    /// bytes.
    pub fn next_tick(&self) -> Option<Instant> {
        if self.ready.is_empty() && self.completed.is_empty() && self.sharing.events.is_empty() {
            self.next_time()
        } else {
            Some(self.origin)
        }
    }

    /// Returns when the next tick or the next turn of an endpoint that waits for a limit is due.
    fn next_time(&self) -> Option<Instant> {
        let turns = [self.sending.next_turn_at(), self.receiving.next_turn_at()];
        turns.into_iter().chain([self.next_tick]).flatten().min()
    }

    /// Returns whether a poll has consumed a use of the waker since the last call; for a transport
    /// that waits for this one among others, and polls it without waiting.
    pub fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken)
    }

    /// Writes a heartbeat to an endpoint's peer now, which its system acknowledges even if its process does not run.
    /// Returns the socket; `None` if the endpoint closes or has ended.
    pub fn probe(&mut self, endpoint: EndpointId) -> Option<BorrowedFd<'_>> {
        self.open_endpoint(endpoint).ok()?.0.streams[0].outgoing.push_heartbeat();
        self.enqueue_endpoint(endpoint);
        self.flush();
        Some(self.open_endpoint(endpoint).ok()?.0.streams[0].socket.as_fd())
    }

    /// Ends an endpoint whose peer has failed, with all others of the same connection, which report this cause.
    pub fn break_off(&mut self, endpoint: EndpointId, cause: Cause) {
        if let Some(&(connection, _)) = self.endpoints.get(&endpoint) {
            self.end(connection, End::Broken(cause));
        }
    }

    /// Returns the connection of an endpoint that still accepts posts, and its channel there.
    fn open_endpoint(&mut self, id: EndpointId) -> Result<(&mut Connection, u32), PostError> {
        let &(connection, number) = self.endpoints.get(&id).ok_or(PostError::EndpointGone(id))?;
        self.connections
            .get_mut(&connection)
            .filter(|connection| connection.is_open(number))
            .map(|connection| (connection, number))
            .ok_or(PostError::EndpointGone(id))
    }

    fn enqueue_endpoint(&mut self, id: EndpointId) {
        if let Some(&(connection, _)) = self.endpoints.get(&id) {
            self.enqueue(connection);
        }
    }

    /// Puts the connection into the ready list if it can move bytes or has ended.
    fn enqueue(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.queued
            && connection.is_ready()
        {
            connection.queued = true;
            self.ready.push_back(id);
        }
    }

    fn new_endpoint(&mut self, connection: ConnectionId, channel: u32) -> EndpointId {
        let id = EndpointId(self.opened);
        self.opened += 1;
        self.endpoints.insert(id, (connection, channel));
        id
    }

    /// Makes the streams of a new connection. Errors: as [`streams_of`].
    fn connect(
        &mut self,
        sockets: Sockets,
        endpoint: Option<EndpointId>,
    ) -> Result<(ConnectionId, Vec<Stream>), PostError> {
        let id = ConnectionId(self.connected);
        self.connected += 1;
        let streams = streams_of(sockets, id, endpoint, &self.settings, &mut self.queue)?;
        self.tick_by(Instant::now() + self.settings.heartbeat_interval());
        Ok((id, streams))
    }

    fn tick_by(&mut self, when: Instant) {
        self.next_tick = Some(self.next_tick.map_or(when, |next| next.min(when)));
    }

    /// Serves each connection that is ready now once, and those that have waited for a limit as far
    /// as it lets them.
    fn serve_ready(&mut self, now: Instant) {
        let bytes_in = self.counters.bytes_arrived();
        for _ in 0..self.sending.waiting() {
            let Some(id) = self.sending.next_turn(now) else { break };
            self.serve(id, Some(Direction::Send), now);
        }
        for _ in 0..self.receiving.waiting() {
            let Some(id) = self.receiving.next_turn(now) else { break };
            self.serve(id, Some(Direction::Receive), now);
        }
        self.serve_queued(now);
        if self.follow(bytes_in) {
            let bytes_in = self.counters.bytes_arrived();
            self.serve_queued(now);
            self.follow(bytes_in);
        }
    }

    fn serve_queued(&mut self, now: Instant) {
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { return };
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.queued = false;
                self.serve(id, None, now);
            }
        }
    }

    /// Lets endpoints send on what has arrived since this many bytes had. Returns whether it did.
    fn follow(&mut self, bytes_in: u64) -> bool {
        if bytes_in == self.counters.bytes_arrived() || self.following.is_empty() {
            return false;
        }
        let mut following = std::mem::take(&mut self.following);
        following.retain(|&id| {
            let Some(&(connection, number)) = self.endpoints.get(&id) else { return false };
            let of_endpoint = self.connections.get_mut(&connection);
            let goes_on = of_endpoint.is_some_and(|connection| connection.follow(number));
            self.enqueue(connection);
            goes_on
        });
        self.following = following;
        true
    }

    /// Serves a connection once, if it has not ended; `turn` is the limit that it has waited for.
    fn serve(&mut self, id: ConnectionId, turn: Option<Direction>, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut round = Round {
            now,
            completed: &mut self.completed,
            counters: &mut self.counters,
            sending: &mut self.sending,
            receiving: &mut self.receiving,
            turn,
        };
        let end = connection.serve(&mut round);
        if connection.is_shared {
            self.sharing.take_messages(id, connection);
            let ended = connection.take_ended(&mut self.completed);
            self.report(ended);
        }
        match end {
            Some(end) => self.end(id, end),
            None => self.enqueue(id),
        }
    }

    /// Reads from every stream, if there are few. Returns whether it did; sometimes it does not, so
    /// that the event queue has its turn.
    fn read_all(&mut self, now: Instant) -> bool {
        let streams: usize =
            self.connections.values().map(|connection| connection.streams.len()).sum();
        if streams > STREAMS_READ_MAX || self.polls_without_wait >= READS_WITHOUT_WAIT_MAX {
            return false;
        }
        self.polls_without_wait += 1;
        for (&id, connection) in &mut self.connections {
            // Others wait for an event.
            if connection.streams.iter().any(Stream::waits_to_write) {
                return false;
            }
            connection.streams.iter_mut().for_each(Stream::retry_read);
            if !connection.queued && connection.is_ready() {
                connection.queued = true;
                self.ready.push_back(id);
            }
        }
        self.serve_ready(now);
        true
    }

    /// Polls the event queue, waiting up to `timeout`. Returns whether the waker was used.
    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.polls_without_wait = 0;
        let (connections, ready) = (&mut self.connections, &mut self.ready);
        let waited = self.queue.wait(timeout, |id, stream, readiness| {
            // Events of a connection that has just ended may still be in the queue.
            let Some(connection) = connections.get_mut(&id) else { return };
            let Some(stream) = connection.streams.get_mut(stream) else { return };
            stream.on_event(readiness);
            if !connection.queued && stream.is_ready() {
                connection.queued = true;
                ready.push_back(id);
            }
        });
        let waited = waited.unwrap_or_else(|error| {
            // The queue is open, so this should not happen. If it does, no event would ever be reported again, so all
            // endpoints are ended.
            self.break_all(&format!("the event queue failed: {error}"));
            Waited::default()
        });
        self.counters.waits += waited.calls;
        self.counters.wakeups += u64::from(waited.is_woken);
        self.woken |= waited.is_woken;
        waited.is_woken
    }

    fn is_tick_due(&self, now: Instant) -> bool {
        self.next_tick.is_some_and(|next| now >= next)
    }

    /// Ticks every connection, if a tick is due. All events up to `now` must have been taken.
    fn tick(&mut self, now: Instant) {
        if !self.is_tick_due(now) {
            return;
        }
        self.next_tick = None;
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            match connection.tick(now, &self.settings, &mut self.counters) {
                Ok(mut when) => {
                    let ended = connection.tick_closing(now, &mut when, &mut self.completed);
                    self.report(ended);
                    self.enqueue(id);
                    self.tick_by(when);
                }
                Err(end) => self.end(id, end),
            }
        }
        let soonest = now + self.settings.heartbeat_interval() / TICKS_PER_INTERVAL;
        self.next_tick = self.next_tick.map(|next| next.max(soonest));
    }

    fn break_all(&mut self, why: &str) {
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            self.end(id, End::Broken(Cause::Lost(why.to_owned())));
        }
    }

    /// Cancels the posts of all endpoints on a connection, closes the sockets, and reports the ends last.
    fn end(&mut self, id: ConnectionId, end: End) {
        let Some(connection) = self.connections.remove(&id) else { return };
        if connection.is_shared {
            self.sharing.end(id, &end);
        }
        let (mut streams, ended) = connection.into_ends(&end, &mut self.completed);
        for stream in &mut streams {
            self.settings.bound_unsent(&stream.socket);
            self.queue.remove(&mut stream.socket);
        }
        self.report(ended);
    }

    /// Reports endpoints that have ended, whose posts were cancelled.
    fn report(&mut self, ended: Vec<(EndpointId, End)>) {
        for (id, end) in ended {
            self.endpoints.remove(&id);
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
    }

    fn drop_reserved(&mut self, endpoint: EndpointId) {
        let Some(&(connection, number)) = self.endpoints.get(&endpoint) else {
            self.sharing.held.remove(&endpoint);
            return;
        };
        self.sharing.held.insert(endpoint, Held::Released);
        // Nothing was posted on it, so there is nothing to wait for.
        let of_endpoint = self.connections.get_mut(&connection);
        let ended = of_endpoint.and_then(|it| it.end(number, End::Closed, &mut self.completed));
        self.report(ended.into_iter().collect());
        self.enqueue(connection);
    }

    fn open_reserved(&mut self, endpoint: EndpointId) -> Result<EndpointId, PostError> {
        self.sharing.hold_back(&mut self.completed);
        let Some(Held::Waiting(held)) = self.sharing.held.get_mut(&endpoint) else {
            return Err(PostError::EndpointGone(endpoint));
        };
        let held = std::mem::take(held);
        self.sharing.held.remove(&endpoint);
        if let Some(&(connection, number)) = self.endpoints.get(&endpoint)
            && let Some(shared) = self.connections.get_mut(&connection)
        {
            shared.introduce(number);
            self.enqueue(connection);
        }
        self.completed.extend(held);
        Ok(endpoint)
    }

    /// Returns whether there is something to report.
    fn has_news(&mut self) -> bool {
        self.sharing.hold_back(&mut self.completed);
        for endpoint in self.sharing.crowded() {
            self.drop_reserved(endpoint);
        }
        !self.completed.is_empty() || !self.sharing.events.is_empty()
    }

    fn hand_out(&mut self, completions: &mut Vec<Completion>) {
        self.sharing.hold_back(&mut self.completed);
        completions.append(&mut self.completed);
    }

    /// Returns how long the next wait may be; `None` without limit.
    fn timeout(&mut self, now: Instant, until: Option<Instant>) -> Option<Duration> {
        if !self.ready.is_empty() || self.has_news() {
            return Some(Duration::ZERO);
        }
        let when = until.into_iter().chain(self.next_time()).min()?;
        Some(when.saturating_duration_since(now))
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        let streams = self.connections.values().flat_map(|connection| &connection.streams);
        streams.for_each(|stream| self.settings.bound_unsent(&stream.socket));
    }
}

impl Transport for TcpTransport {
    type Link = TcpLink;

    /// Returns the time since this transport was made.
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Returns 4 GiB - 1. Frames could carry more, segment by segment; the limit is that of RDMA
    /// verbs, so that both networks accept the same blocks.
    fn block_bytes_max(&self) -> u64 {
        u64::from(u32::MAX)
    }

    /// Makes an endpoint. Errors: the system refuses a socket option (which is named), or cannot
    /// poll one more socket.
    fn open(&mut self, link: TcpLink) -> Result<EndpointId, PostError> {
        let peer = link.peer();
        let sockets = match link.kind {
            Kind::Streams(sockets) => sockets,
            Kind::Reserved(endpoint) => return self.open_reserved(endpoint),
        };
        let (connection, endpoint) = (ConnectionId(self.connected), EndpointId(self.opened));
        let (_, streams) = self.connect(sockets, Some(endpoint))?;
        self.new_endpoint(connection, ONLY);
        tracing::debug!(endpoint = endpoint.0, streams = streams.len(), ?peer, "opened");
        self.connections.insert(connection, Connection::of_one(connection, streams, endpoint));
        self.enqueue(connection);
        Ok(endpoint)
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(into.bytes(), self.block_bytes_max())?;
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.post_receive(channel, into, token);
        Ok(())
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), self.block_bytes_max())?;
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.post_send(channel, from, immediate, token);
        self.enqueue_endpoint(endpoint);
        Ok(())
    }

    /// Also refuses an empty word, and, after some megabytes, words for a peer that does not read.
    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        PostError::check_length(word.len(), CONTROL_BYTES_MAX as u64)?;
        if word.is_empty() {
            return Err(PostError::System("an empty control word".into()));
        }
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.write_control(channel, word)?;
        self.enqueue_endpoint(endpoint);
        Ok(())
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }

    fn cut_through(&mut self) -> Option<&mut dyn CutThroughSends> {
        Some(self)
    }

    fn close(&mut self, endpoint: EndpointId) {
        let deadline = Instant::now() + self.settings.drain_for();
        let Ok((connection, channel)) = self.open_endpoint(endpoint) else { return };
        tracing::debug!(endpoint = endpoint.0, "closing");
        let mut cancelled = Vec::new();
        connection.close(channel, deadline, &mut cancelled);
        self.completed.append(&mut cancelled);
        self.enqueue_endpoint(endpoint);
        self.tick_by(deadline);
    }

    /// Waits in steps of a millisecond, rounded up: the event queue has no finer resolution.
    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        self.counters.polls += 1;
        let mut now = Instant::now();
        let until = now.checked_add(wait);
        // Posts are written first; if that completes something, the event queue need not be polled.
        self.serve_ready(now);
        let may_return = !self.is_tick_due(now);
        if may_return && wait.is_zero() && self.read_all(now) {
            self.hand_out(completions);
            return;
        }
        if may_return && self.has_news() && self.polls_without_wait < POLLS_WITHOUT_WAIT_MAX {
            self.polls_without_wait += 1;
            self.hand_out(completions);
            return;
        }
        loop {
            let timeout = self.timeout(now, until);
            let mut woken = self.wait(timeout);
            if !wait.is_zero() {
                now = Instant::now();
                if self.is_tick_due(now) {
                    // This thread may not have run since the wait, and what came meanwhile is no silence.
                    woken |= self.wait(Some(Duration::ZERO));
                }
            }
            self.serve_ready(now);
            self.tick(now);
            let over = until.is_some_and(|until| now >= until);
            if woken || over || self.has_news() {
                self.hand_out(completions);
                return;
            }
        }
    }

    fn flush(&mut self) {
        if !self.ready.is_empty() {
            self.serve_ready(Instant::now());
        }
    }

    fn waker(&self) -> Waker {
        self.queue.waker()
    }
}
