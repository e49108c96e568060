//! The transport itself: sockets, the event queue and the clock, around the connections.

mod capabilities;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use mio::net::TcpStream;
use transport::{
    Cause, Completion, CutThroughSends, EndpointId, OneSidedWrites, PostError, ReadLease, Token,
    Transport, Waker, Watched, WriteLease,
};

use crate::{
    byte_stream::Readiness,
    connections::{BLOCK_BYTES_MAX, Connections},
    counters::TcpCounters,
    event_queue::{EventQueue, Waited},
    link::{ConnectionId, Kind, StreamKeys, TcpLink},
    settings::TcpSettings,
    socket::Socket,
    stream::NewStream,
};

/// How many consecutive polls may report completions of the ready list alone, without polling the
/// event queue for other endpoints.
const POLLS_WITHOUT_WAIT_MAX: u32 = 4;

/// With at most this many streams, polls that do not wait read from all of them: one system call where
/// the event queue and then a stream take two.
const STREAMS_READ_MAX: usize = 3;

/// How many such polls may follow each other without the event queue, which reports the waker.
const READS_WITHOUT_WAIT_MAX: u32 = 16;

/// [`Transport`] over TCP: one event queue and no thread. All work is done in `poll`, by the thread
/// that calls it; the posting methods only queue.
///
/// Connections are served in turn, at most half a megabyte in each direction, so that none starves
/// another; also where [`TcpSettings::rate_max`] limits them together. Timers are handled in every poll. Dropping the
/// transport closes all sockets at once, without an ordered close: peers report [`transport::Cause::Lost`].
pub struct TcpTransport {
    queue: EventQueue,
    connections: Connections<Socket>,
    /// Those through shared memory, with some that have ended.
    in_memory: Vec<ConnectionId>,
    origin: Instant,
    polls_without_wait: u32,
    /// The waker has ended a wait since the last [`TcpTransport::take_woken`].
    woken: bool,
    /// The event queue's descriptor is waited for elsewhere.
    is_watched: bool,
}

impl TcpTransport {
    /// Makes a transport with an event queue and no endpoints. Errors: a setting is out
    /// of range, the system refuses an option, or the process has no file descriptors left.
    pub fn new(settings: TcpSettings) -> io::Result<Self> {
        settings.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        settings.try_options()?;
        Ok(Self {
            queue: EventQueue::new()?,
            connections: Connections::new(settings),
            in_memory: Vec::new(),
            origin: Instant::now(),
            polls_without_wait: 0,
            woken: false,
            is_watched: false,
        })
    }

    /// Returns the totals so far.
    pub fn counters(&self) -> TcpCounters {
        self.connections.counters()
    }

    /// Returns a descriptor for waiting for this transport among others: readable when
    /// [`Transport::poll`] would report something or could move bytes, or when the waker was used. With links through memory
    /// ([`TcpLink::through_memory`]) that needs [`TcpTransport::prepare_wait`].
    pub fn event_queue(&self) -> BorrowedFd<'_> {
        self.queue.descriptor()
    }

    /// Before each wait for [`TcpTransport::event_queue`]: has peers that share memory wake this end. [`Watched::next_tick`] is to be
    /// asked afterwards.
    pub fn prepare_wait(&mut self) {
        self.look(Socket::doze);
    }

    /// Returns whether a poll has consumed a use of the waker since the last call; for a transport
    /// that waits for this one among others, and polls it without waiting.
    pub fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken)
    }

    /// Writes a heartbeat to an endpoint's peer now, which its system acknowledges even if its process does not run.
    /// Returns the socket; `None` if the endpoint closes or has ended.
    pub fn probe(&mut self, endpoint: EndpointId) -> Option<BorrowedFd<'_>> {
        self.connections.push_heartbeat(endpoint);
        self.flush();
        Some(self.connections.first_stream(endpoint)?.as_fd())
    }

    /// Ends an endpoint whose peer has failed, with all others of the same connection, which report this cause.
    pub fn break_off(&mut self, endpoint: EndpointId, cause: Cause) {
        self.connections.break_off(endpoint, cause);
        self.close_ended();
    }

    /// Prepares the sockets of a connection, and adds them to the event queue.
    ///
    /// Errors: the system refuses a socket option (which is named), or cannot poll one more socket.
    fn streams_of(
        &mut self,
        kind: Kind,
    ) -> Result<(ConnectionId, Vec<NewStream<Socket>>), PostError> {
        let id = self.connections.next_connection();
        let streams: Vec<_> = match kind {
            Kind::Streams(sockets) => sockets
                .into_iter()
                .map(|(socket, keys)| self.stream(socket, keys, Socket::Tcp))
                .collect::<Result<_, _>>()?,
            Kind::Memory(socket, pipe) => {
                self.in_memory.push(id);
                let memory = |connection| Socket::Memory(pipe, connection);
                vec![self.stream(socket, None, memory)?]
            }
            Kind::Reserved(..) => return Err(PostError::System("it is shared already".into())),
        };
        for (index, stream) in streams.iter().enumerate() {
            let added = self.queue.add(stream.bytes.signal(), id, index);
            added.map_err(|error| PostError::System(error.to_string()))?;
        }
        Ok((id, streams))
    }

    /// Errors: the system refuses a socket option, which is named.
    fn stream(
        &self,
        socket: std::net::TcpStream,
        keys: Option<StreamKeys>,
        through: impl FnOnce(TcpStream) -> Socket,
    ) -> Result<NewStream<Socket>, PostError> {
        let settings = self.connections.settings();
        settings.prepare(&socket).map_err(|error| PostError::System(error.to_string()))?;
        let copies_directly = settings.copies_directly(&socket);
        Ok(NewStream { bytes: through(TcpStream::from_std(socket)), keys, copies_directly })
    }

    /// Notes what is found for streams through shared memory.
    fn look(&mut self, look: impl Fn(&mut Socket, bool) -> Readiness) {
        let connections = &mut self.connections;
        self.in_memory.retain(|&id| connections.look(id, &look));
    }

    /// Closes the sockets of connections that have ended.
    fn close_ended(&mut self) {
        for socket in self.connections.take_closed() {
            self.connections.settings().bound_unsent(&socket);
            self.queue.remove(socket.signal());
        }
    }

    fn serve(&mut self, now: Duration) {
        self.connections.serve(now);
        self.close_ended();
    }

    /// Reads from every stream, if there are few. Returns whether it did; sometimes it does not, so
    /// that the event queue has its turn.
    fn read_all(&mut self, now: Duration) -> bool {
        if self.is_watched || self.polls_without_wait >= READS_WITHOUT_WAIT_MAX {
            return false;
        }
        self.polls_without_wait += 1;
        // Others wait for an event.
        let reads = self.connections.retry_reads(STREAMS_READ_MAX);
        if reads {
            self.serve(now);
        }
        reads
    }

    /// Polls the event queue, waiting up to `timeout`. Returns whether the waker was used.
    fn wait(&mut self, mut timeout: Option<Duration>) -> bool {
        self.polls_without_wait = 0;
        if timeout != Some(Duration::ZERO) && !self.in_memory.is_empty() {
            self.look(Socket::doze);
            if self.connections.is_ready() {
                timeout = Some(Duration::ZERO);
            }
        }
        let connections = &mut self.connections;
        let waited = self.queue.wait(timeout, |id, stream, readiness| {
            connections.on_ready(id, stream, readiness);
        });
        let waited = waited.unwrap_or_else(|error| {
            // The queue is open, so this should not happen. If it does, no event would ever be reported again, so all
            // endpoints are ended.
            self.connections.break_all(&format!("the event queue failed: {error}"));
            Waited::default()
        });
        self.connections.counters.waits += waited.calls;
        self.connections.counters.wakeups += u64::from(waited.is_woken);
        self.woken |= waited.is_woken;
        self.look(Socket::wake);
        waited.is_woken
    }

    /// Returns how long the next wait may be; `None` without limit.
    fn timeout(&mut self, now: Duration, until: Option<Duration>) -> Option<Duration> {
        if self.connections.is_ready() || self.connections.has_news(now) {
            return Some(Duration::ZERO);
        }
        let when = until.into_iter().chain(self.connections.poll_timeout()).min()?;
        Some(when.saturating_sub(now))
    }

    /// Polls, without preparing for a caller that waits on the event queue itself.
    fn make_progress(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        let mut now = self.now();
        let until = now.checked_add(wait);
        // Posts are written first; if that completes something, the event queue need not be polled.
        self.serve(now);
        let may_return = !self.connections.is_tick_due(now);
        if may_return && wait.is_zero() && self.read_all(now) {
            self.connections.hand_out(completions);
            return;
        }
        if may_return
            && self.connections.has_news(now)
            && self.polls_without_wait < POLLS_WITHOUT_WAIT_MAX
        {
            self.polls_without_wait += 1;
            self.connections.hand_out(completions);
            return;
        }
        loop {
            let timeout = self.timeout(now, until);
            let mut woken = self.wait(timeout);
            if !wait.is_zero() {
                now = self.now();
                if self.connections.is_tick_due(now) {
                    // This thread may not have run since the wait, and what came meanwhile is no silence.
                    woken |= self.wait(Some(Duration::ZERO));
                }
            }
            self.connections.serve(now);
            self.connections.handle_timeout(now);
            self.close_ended();
            let over = until.is_some_and(|until| now >= until);
            if woken || over || self.connections.has_news(now) {
                self.connections.hand_out(completions);
                return;
            }
        }
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        let settings = self.connections.settings();
        self.connections.streams().for_each(|socket| settings.bound_unsent(socket));
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
        BLOCK_BYTES_MAX
    }

    /// Makes an endpoint. Errors: the system refuses a socket option (which is named), or cannot
    /// poll one more socket.
    fn open(&mut self, link: TcpLink) -> Result<EndpointId, PostError> {
        let peer = link.peer();
        if let Kind::Reserved(endpoint, _) = link.kind {
            return self.connections.open_reserved(endpoint);
        }
        let (connection, streams) = self.streams_of(link.kind)?;
        let (count, now) = (streams.len(), self.now());
        let endpoint = self.connections.open(connection, streams, now);
        tracing::debug!(endpoint = endpoint.0, streams = count, ?peer, "opened");
        Ok(endpoint)
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        self.connections.post_receive(endpoint, into, token)
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        self.connections.post_send(endpoint, from, immediate, token)
    }

    /// Also refuses an empty word, and, after some megabytes, words for a peer that does not read.
    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        self.connections.write_control(endpoint, word)
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }

    fn cut_through(&mut self) -> Option<&mut dyn CutThroughSends> {
        Some(self)
    }

    fn close(&mut self, endpoint: EndpointId) {
        let now = self.now();
        self.connections.close(endpoint, now);
    }

    /// Waits in steps of a millisecond, rounded up: the event queue has no finer resolution.
    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        self.connections.counters.polls += 1;
        if !self.is_watched {
            self.look(Socket::look);
        }
        self.make_progress(completions, wait);
        if self.is_watched {
            self.look(Socket::doze);
        }
    }

    fn flush(&mut self) {
        if self.connections.is_ready() {
            let now = self.now();
            self.serve(now);
        }
    }

    fn waker(&self) -> Waker {
        self.queue.waker()
    }
}

impl Watched for TcpTransport {
    /// Returns the descriptor of [`TcpTransport::event_queue`].
    fn watch(&mut self) -> io::Result<OwnedFd> {
        self.is_watched = true;
        self.look(Socket::doze);
        self.queue.descriptor().try_clone_to_owned()
    }

    fn next_tick(&self) -> Option<Instant> {
        if self.connections.is_ready() || self.connections.may_have_news() {
            return Some(self.origin);
        }
        self.origin.checked_add(self.connections.poll_timeout()?)
    }
}
