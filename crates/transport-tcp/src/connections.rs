//! All connections of a transport, over streams of bytes of any kind: frames, records, channels, limits and timers. It
//! makes no system call, and time is an argument.

use std::{collections::VecDeque, time::Duration};

use rustc_hash::FxHashMap;
use transport::{
    ArrivingRead, CONTROL_BYTES_MAX, Cause, Completion, EndpointId, PeerMemory, PostError,
    ReadLease, Token, WriteLease,
};

use crate::{
    byte_stream::{ByteStream, Readiness},
    channel::End,
    connection::{Connection, ONLY},
    counters::TcpCounters,
    limit::{Direction, Limit},
    link::ConnectionId,
    messages::MESSAGE_BYTES_MAX,
    posted_send::To,
    reports::{Report, Reports},
    settings::TcpSettings,
    shared::SharedEvent,
    stream::{NewStream, Round, Stream},
};

/// The longest block: 4 GiB - 1. Frames could carry more, segment by segment; the limit is that of RDMA verbs, so that both
/// networks accept the same blocks.
pub(crate) const BLOCK_BYTES_MAX: u64 = u32::MAX as u64;

/// Ticks in each heartbeat interval. A tick visits all endpoints, so that many idle ones with
/// different deadlines share one wake-up.
const TICKS_PER_INTERVAL: u32 = 8;

/// Streams of a new connection.
#[derive(Debug)]
pub enum Streams<S> {
    /// All that it has.
    All(Vec<NewStream<S>>),
    /// Others are served elsewhere.
    Part(Vec<NewStream<S>>),
}

impl<S> Streams<S> {
    /// Returns them, and whether there are others elsewhere.
    fn split(self) -> (Vec<NewStream<S>>, bool) {
        match self {
            Self::All(streams) => (streams, false),
            Self::Part(streams) => (streams, true),
        }
    }
}

/// All connections of one transport. Its owner tells which streams may move bytes ([`Connections::on_ready`]), lets
/// them ([`Connections::serve`]), and has timers handled ([`Connections::handle_timeout`]) by the time that
/// [`Connections::poll_timeout`] names.
///
/// Time is counted from any origin, and never goes back. Posting only queues. Blocks are read into posted memory and
/// written from leased memory by the calls of [`ByteStream`]. Connections are served in turn, at most half a megabyte in each
/// direction.
pub struct Connections<S> {
    settings: TcpSettings,
    all: FxHashMap<ConnectionId, Connection<S>>,
    /// The connection of each endpoint, and its channel there.
    endpoints: FxHashMap<EndpointId, (ConnectionId, u32)>,
    /// Connections that can move bytes now, each at most once.
    ready: VecDeque<ConnectionId>,
    /// Endpoints that send blocks which have not arrived as a whole.
    following: Vec<EndpointId>,
    sending: Limit,
    receiving: Limit,
    reports: Reports<S>,
    /// The next time at which an endpoint has to be ticked; `None` if there is none.
    next_tick: Option<Duration>,
    /// How often commands were taken from another thread; `None` if its own thread posts.
    commands_taken: Option<u64>,
    pub(crate) counters: TcpCounters,
}

impl<S: ByteStream> Connections<S> {
    /// Begins without connections. The settings have been checked.
    pub fn new(settings: TcpSettings) -> Self {
        let limit = || Limit::new(settings.rate_max);
        Self {
            all: FxHashMap::default(),
            endpoints: FxHashMap::default(),
            ready: VecDeque::new(),
            following: Vec::new(),
            sending: limit(),
            receiving: limit(),
            reports: Reports::new(),
            next_tick: None,
            commands_taken: None,
            counters: TcpCounters::default(),
            settings,
        }
    }

    /// As [`Connections::new`], for streams of connections that have others elsewhere. What peers send is looked at once commands
    /// were taken after it was read ([`Connections::took_commands`]): then all is known that they may answer to.
    pub fn elsewhere(settings: TcpSettings) -> Self {
        // Whether a connection is idle is known to its owner.
        let mut connections = Self::new(settings.idle_timeout(Duration::MAX));
        connections.commands_taken = Some(0);
        connections
    }

    pub(crate) fn settings(&self) -> &TcpSettings {
        &self.settings
    }

    /// Returns the totals so far.
    pub fn counters(&self) -> TcpCounters {
        self.counters
    }

    /// Makes a connection of one endpoint; both are new.
    pub fn open(
        &mut self,
        id: ConnectionId,
        endpoint: EndpointId,
        streams: Streams<S>,
        now: Duration,
    ) {
        self.endpoints.insert(endpoint, (id, ONLY));
        let (streams, is_part) = streams.split();
        let connection = Connection::of_one(id, streams, endpoint, &self.settings, now);
        self.insert(id, connection, is_part, now);
    }

    /// Makes a connection that endpoints share.
    pub fn share(&mut self, id: ConnectionId, streams: Streams<S>, now: Duration) {
        let (streams, is_part) = streams.split();
        let connection = Connection::shared(id, streams, &self.settings, now);
        self.insert(id, connection, is_part, now);
    }

    fn insert(
        &mut self,
        id: ConnectionId,
        mut connection: Connection<S>,
        is_part: bool,
        now: Duration,
    ) {
        connection.is_part = is_part;
        if self.commands_taken.is_some() {
            connection.refuse_words();
        }
        self.all.insert(id, connection);
        self.tick_by(now + self.settings.heartbeat_interval());
        self.enqueue(id);
    }

    /// As [`crate::SharedConnections::reserve`], for a new endpoint.
    pub fn reserve(
        &mut self,
        connection: ConnectionId,
        channel: u32,
        endpoint: EndpointId,
    ) -> Result<(), PostError> {
        self.shared(connection)?.add(channel, endpoint)?;
        self.endpoints.insert(endpoint, (connection, channel));
        self.reports.reserve(endpoint);
        Ok(())
    }

    fn shared(&mut self, id: ConnectionId) -> Result<&mut Connection<S>, PostError> {
        let connection = self.all.get_mut(&id).filter(|connection| connection.is_shared);
        connection.ok_or_else(|| PostError::System("the connection is lost".into()))
    }

    /// Opens a channel that was reserved.
    pub fn open_reserved(&mut self, endpoint: EndpointId) -> Result<(), PostError> {
        if !self.reports.open(endpoint) {
            return Err(PostError::EndpointGone(endpoint));
        }
        if let Some(&(connection, number)) = self.endpoints.get(&endpoint)
            && let Some(shared) = self.all.get_mut(&connection)
        {
            shared.introduce(number);
            self.enqueue(connection);
        }
        Ok(())
    }

    /// As [`crate::SharedConnections::is_wanted`], for a reserved endpoint.
    pub fn is_wanted(&mut self, endpoint: EndpointId) -> bool {
        !self.reports.was_given_back(endpoint)
    }

    /// As [`crate::SharedConnections::release`].
    pub fn release(&mut self, endpoint: EndpointId, now: Duration) {
        let Some(&(connection, number)) = self.endpoints.get(&endpoint) else {
            self.reports.forget(endpoint);
            return;
        };
        self.reports.release(endpoint);
        // Nothing was posted on it, so there is nothing to wait for.
        let of_endpoint = self.all.get_mut(&connection);
        let ended = of_endpoint
            .and_then(|it| it.end(number, End::Closed, now, &mut self.reports.completed));
        self.report(ended);
        self.enqueue(connection);
    }

    /// Returns the connection of an endpoint that still accepts posts, and its channel there.
    fn open_endpoint(&mut self, id: EndpointId) -> Result<(&mut Connection<S>, u32), PostError> {
        let &(connection, number) = self.endpoints.get(&id).ok_or(PostError::EndpointGone(id))?;
        self.all
            .get_mut(&connection)
            .filter(|connection| connection.is_open(number))
            .map(|connection| (connection, number))
            .ok_or(PostError::EndpointGone(id))
    }

    /// As [`transport::Transport::post_receive`].
    pub fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(into.bytes(), BLOCK_BYTES_MAX)?;
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.post_receive(channel, into, token);
        Ok(())
    }

    /// As [`transport::Transport::post_send`].
    pub fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), BLOCK_BYTES_MAX)?;
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.post_send(channel, from, immediate, token);
        self.enqueue_endpoint(endpoint);
        Ok(())
    }

    /// As [`transport::CutThroughSends::post_cut_through_send`].
    pub fn post_cut_through_send(
        &mut self,
        endpoint: EndpointId,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), BLOCK_BYTES_MAX)?;
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.post_cut_through_send(channel, from, immediate, token);
        if !self.following.contains(&endpoint) {
            self.following.push(endpoint);
        }
        self.enqueue_endpoint(endpoint);
        Ok(())
    }

    /// As [`transport::OneSidedWrites::expose`].
    pub fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.expose(channel, key, memory)
    }

    /// As [`transport::OneSidedWrites::post_write`].
    pub fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) -> Result<(), PostError> {
        PostError::check_length(from.bytes(), BLOCK_BYTES_MAX)?;
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.post_write(channel, from, To::Exposed { key, offset, immediate }, token);
        self.enqueue_endpoint(endpoint);
        Ok(())
    }

    /// As [`transport::Transport::write_control`].
    pub fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        PostError::check_length(word.len(), CONTROL_BYTES_MAX as u64)?;
        if word.is_empty() {
            return Err(PostError::System("an empty control word".into()));
        }
        let (connection, channel) = self.open_endpoint(endpoint)?;
        connection.write_control(channel, word)?;
        self.enqueue_endpoint(endpoint);
        Ok(())
    }

    /// As [`crate::SharedConnections::write_message`].
    pub fn write_message(
        &mut self,
        connection: ConnectionId,
        message: &[u8],
        now: Duration,
    ) -> Result<(), PostError> {
        if message.is_empty() || message.len() > MESSAGE_BYTES_MAX {
            return Err(PostError::System(format!("a message of {} bytes", message.len())));
        }
        self.shared(connection)?.write_message(message, now)?;
        self.enqueue(connection);
        Ok(())
    }

    /// As [`transport::Transport::close`].
    pub fn close(&mut self, endpoint: EndpointId, now: Duration) {
        let deadline = now + self.settings.drain_for();
        let Ok((connection, channel)) = self.open_endpoint(endpoint) else { return };
        tracing::debug!(endpoint = endpoint.0, "closing");
        let mut cancelled = Vec::new();
        connection.close(channel, deadline, &mut cancelled);
        self.reports.completed.append(&mut cancelled);
        self.enqueue_endpoint(endpoint);
        self.tick_by(deadline);
    }

    /// Queues a heartbeat to an endpoint's peer.
    pub(crate) fn push_heartbeat(&mut self, endpoint: EndpointId) {
        if let Ok((connection, _)) = self.open_endpoint(endpoint) {
            connection.streams[0].outgoing.push_heartbeat();
            self.enqueue_endpoint(endpoint);
        }
    }

    /// Returns the first stream of an endpoint; `None` if it closes or has ended.
    pub(crate) fn first_stream(&mut self, endpoint: EndpointId) -> Option<&S> {
        Some(self.open_endpoint(endpoint).ok()?.0.streams[0].bytes.stream())
    }

    /// Ends an endpoint whose peer has failed, with all others of the same connection, which report this cause.
    pub fn break_off(&mut self, endpoint: EndpointId, cause: Cause) {
        if let Some(&(connection, _)) = self.endpoints.get(&endpoint) {
            self.end(connection, End::Broken(cause));
        }
    }

    /// Ends one endpoint; the others on its connection stay.
    pub(crate) fn fail(&mut self, endpoint: EndpointId, cause: Cause, now: Duration) {
        let Some(&(id, number)) = self.endpoints.get(&endpoint) else { return };
        let Some(connection) = self.all.get_mut(&id).filter(|it| it.is_shared) else {
            return self.end(id, End::Broken(cause));
        };
        let ended = connection.end(number, End::Broken(cause), now, &mut self.reports.completed);
        self.report(ended);
        self.enqueue(id);
    }

    /// Ends a connection, with all of its endpoints; without a cause as one that was not used.
    pub(crate) fn end_connection(&mut self, id: ConnectionId, cause: Option<Cause>) {
        self.end(id, cause.map_or(End::Closed, End::Broken));
    }

    /// Ends all connections by a failure of this end.
    pub(crate) fn break_all(&mut self, why: &str) {
        let ids: Vec<ConnectionId> = self.all.keys().copied().collect();
        for id in ids {
            self.end(id, End::Broken(Cause::Lost(why.to_owned())));
        }
    }

    /// Notes what has changed for a stream, which may have ended.
    pub fn on_ready(&mut self, id: ConnectionId, stream: usize, readiness: Readiness) {
        let Some(connection) = self.all.get_mut(&id) else { return };
        let Some(stream) = connection.streams.get_mut(stream) else { return };
        stream.on_ready(readiness);
        if !connection.queued && stream.is_ready() {
            connection.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Notes what `look` finds for each stream of a connection, which is told whether the last write has filled it. Returns whether the connection exists.
    pub(crate) fn look(
        &mut self,
        id: ConnectionId,
        look: impl Fn(&mut S, bool) -> Readiness,
    ) -> bool {
        let Some(connection) = self.all.get_mut(&id) else { return false };
        for stream in &mut connection.streams {
            let is_full = stream.is_full();
            let readiness = look(stream.bytes.stream_mut(), is_full);
            stream.on_ready(readiness);
        }
        self.enqueue(id);
        true
    }

    fn enqueue_endpoint(&mut self, id: EndpointId) {
        if let Some(&(connection, _)) = self.endpoints.get(&id) {
            self.enqueue(connection);
        }
    }

    /// Puts the connection into the ready list if it can move bytes or has ended.
    fn enqueue(&mut self, id: ConnectionId) {
        if let Some(connection) = self.all.get_mut(&id)
            && !connection.queued
            && connection.is_ready()
        {
            connection.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Returns whether [`Connections::serve`] would move bytes, as far as is known, besides those that wait for a limit.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Lets every stream that needs events try to read, if there are at most this many and none of them waits until it can write.
    /// Returns whether it did.
    pub(crate) fn retry_reads(&mut self, streams_max: usize) -> bool {
        let streams = self.all.values().flat_map(|connection| &connection.streams);
        if streams.filter(|stream| stream.needs_events()).count() > streams_max {
            return false;
        }
        for (&id, connection) in &mut self.all {
            let mut streams = connection.streams.iter_mut().filter(|stream| stream.needs_events());
            if streams.any(|stream| stream.waits_to_write()) {
                return false;
            }
            let streams = connection.streams.iter_mut().filter(|stream| stream.needs_events());
            streams.for_each(Stream::retry_read);
            if !connection.queued && connection.is_ready() {
                connection.queued = true;
                self.ready.push_back(id);
            }
        }
        true
    }

    /// Serves each connection that is ready now once, and those that have waited for a limit as far
    /// as it lets them.
    pub fn serve(&mut self, now: Duration) {
        let arrivals = self.counters.arrivals();
        for _ in 0..self.sending.waiting() {
            let Some(id) = self.sending.next_turn(now) else { break };
            self.serve_one(id, Some(Direction::Send), now);
        }
        for _ in 0..self.receiving.waiting() {
            let Some(id) = self.receiving.next_turn(now) else { break };
            self.serve_one(id, Some(Direction::Receive), now);
        }
        self.serve_queued(now);
        if self.follow(arrivals) {
            let arrivals = self.counters.arrivals();
            self.serve_queued(now);
            self.follow(arrivals);
        }
    }

    fn serve_queued(&mut self, now: Duration) {
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { return };
            if let Some(connection) = self.all.get_mut(&id) {
                connection.queued = false;
                self.serve_one(id, None, now);
            }
        }
    }

    /// Lets endpoints send on what has arrived since [`TcpCounters::arrivals`] had this value. Returns whether it did.
    fn follow(&mut self, arrivals: u64) -> bool {
        let has_more = arrivals != self.counters.arrivals() && self.is_following();
        if has_more {
            self.look_for_arrived();
        }
        has_more
    }

    /// Returns whether there are sends of blocks which have not arrived as a whole.
    pub(crate) fn is_following(&self) -> bool {
        !self.following.is_empty()
    }

    /// Lets endpoints send on what has arrived, here or elsewhere.
    pub fn look_for_arrived(&mut self) {
        let mut following = std::mem::take(&mut self.following);
        following.retain(|&id| {
            let Some(&(connection, number)) = self.endpoints.get(&id) else { return false };
            let of_endpoint = self.all.get_mut(&connection);
            let goes_on = of_endpoint.is_some_and(|connection| connection.follow(number));
            self.enqueue(connection);
            goes_on
        });
        self.following = following;
    }

    /// Serves a connection once, if it has not ended; `turn` is the limit that it has waited for.
    fn serve_one(&mut self, id: ConnectionId, turn: Option<Direction>, now: Duration) {
        let Some(connection) = self.all.get_mut(&id) else { return };
        let mut round = Round {
            now,
            completed: &mut self.reports.completed,
            counters: &mut self.counters,
            sending: &mut self.sending,
            receiving: &mut self.receiving,
            turn,
            commands_taken: self.commands_taken,
        };
        let end = connection.serve(&mut round);
        self.reports.add_messages(id, connection.take_messages(now));
        let ended = connection.take_ended(now, &mut self.reports.completed);
        self.reports.closed_by_peer.append(&mut connection.take_closed_by_peer());
        let end = end.or(connection.is_over().then_some(End::Closed));
        self.report(ended);
        match end {
            Some(end) => self.end(id, end),
            None => self.enqueue(id),
        }
    }

    fn tick_by(&mut self, when: Duration) {
        self.next_tick = Some(self.next_tick.map_or(when, |next| next.min(when)));
    }

    /// Returns when [`Connections::serve`] and [`Connections::handle_timeout`] have something to do at the latest if no stream
    /// becomes ready before; `None` if they have not.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let turns = [self.sending.next_turn_at(), self.receiving.next_turn_at()];
        turns.into_iter().chain([self.next_tick]).flatten().min()
    }

    /// Returns whether a timer is due.
    pub(crate) fn is_tick_due(&self, now: Duration) -> bool {
        self.next_tick.is_some_and(|next| now >= next)
    }

    /// Handles all timers that are due. What was there to read by `now` must have been reported by
    /// [`Connections::on_ready`], or peers seem to be silent.
    pub fn handle_timeout(&mut self, now: Duration) {
        if !self.is_tick_due(now) {
            return;
        }
        self.next_tick = None;
        let ids: Vec<ConnectionId> = self.all.keys().copied().collect();
        for id in ids {
            let Some(connection) = self.all.get_mut(&id) else { continue };
            match connection.tick(now, &self.settings, &mut self.counters) {
                Ok(mut when) => {
                    let completed = &mut self.reports.completed;
                    let ended = connection.tick_closing(now, &mut when, completed);
                    let is_over = connection.is_over();
                    self.report(ended);
                    if is_over {
                        self.end(id, End::Closed);
                    } else {
                        self.enqueue(id);
                        self.tick_by(when);
                    }
                }
                Err(end) => self.end(id, end),
            }
        }
        let soonest = now + self.settings.heartbeat_interval() / TICKS_PER_INTERVAL;
        self.next_tick = self.next_tick.map(|next| next.max(soonest));
    }

    /// Cancels the posts of all endpoints on a connection, and reports the ends last.
    fn end(&mut self, id: ConnectionId, end: End) {
        let Some(connection) = self.all.remove(&id) else { return };
        if connection.is_shared {
            self.reports.end_shared(id, &end);
        }
        let (streams, ended) = connection.into_ends(&end, &mut self.reports.completed);
        self.reports.closed.extend(streams);
        self.report(ended);
    }

    fn report(&mut self, ended: impl IntoIterator<Item = (EndpointId, End)>) {
        for (id, end) in ended {
            self.endpoints.remove(&id);
            self.reports.end(id, end);
        }
    }

    /// Returns whether there is something to report.
    pub fn has_news(&mut self, now: Duration) -> bool {
        for endpoint in self.reports.crowded() {
            self.release(endpoint, now);
        }
        self.reports.has_news()
    }

    /// Returns whether there may be something to report.
    pub(crate) fn may_have_news(&self) -> bool {
        !self.reports.completed.is_empty()
            || !self.reports.events.is_empty()
            || !self.reports.closed_by_peer.is_empty()
    }

    /// Appends what has completed to `completions`.
    pub fn hand_out(&mut self, completions: &mut Vec<Completion>) {
        self.reports.hand_out(completions);
    }

    /// Returns what has happened on shared connections since the last call.
    pub fn take_events(&mut self) -> Vec<SharedEvent> {
        std::mem::take(&mut self.reports.events)
    }

    /// Returns the endpoints whose peer has closed all streams here, since the last call; only those with others elsewhere.
    pub(crate) fn take_closed_by_peer(&mut self) -> Vec<EndpointId> {
        std::mem::take(&mut self.reports.closed_by_peer)
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.reports.events.is_empty()
    }

    /// Notes that all commands were carried out that had been given.
    pub fn took_commands(&mut self) {
        if let Some(taken) = &mut self.commands_taken {
            *taken += 1;
        }
    }

    /// Takes what there is to report.
    pub fn take_report(&mut self) -> Report {
        self.reports.take()
    }

    /// Reports that a post was cancelled, whose endpoint has ended here.
    pub(crate) fn cancel(&mut self, endpoint: EndpointId, token: Token) {
        self.reports.completed.push(Completion::Cancelled { endpoint, token });
    }

    /// Reports the end of an endpoint that could not begin here.
    pub(crate) fn refuse_endpoint(&mut self, endpoint: EndpointId, why: &PostError) {
        let cause = Cause::Lost(why.to_string());
        self.reports.completed.push(Completion::Broken { endpoint, cause });
    }

    /// Reports the end of a shared connection that could not begin here.
    pub(crate) fn refuse_connection(&mut self, connection: ConnectionId, why: &PostError) {
        self.reports.end_shared(connection, &End::Broken(Cause::Lost(why.to_string())));
    }

    /// Returns the streams of connections that have ended since the last call, to be closed.
    pub fn take_closed(&mut self) -> Vec<S> {
        std::mem::take(&mut self.reports.closed)
    }

    /// Returns all streams.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &S> {
        let streams = self.all.values().flat_map(|connection| &connection.streams);
        streams.map(|stream| stream.bytes.stream())
    }
}
