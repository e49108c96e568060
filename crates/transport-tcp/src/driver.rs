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
    connections::{BLOCK_BYTES_MAX, Connections},
    counters::TcpCounters,
    event_queue::{EventQueue, Waited},
    link::{ConnectionId, Kind, Sockets, TcpLink},
    settings::TcpSettings,
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
    connections: Connections<TcpStream>,
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
    /// [`Transport::poll`] would report something or could move bytes, or when the waker was used.
    pub fn event_queue(&self) -> BorrowedFd<'_> {
        self.queue.descriptor()
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
        sockets: Sockets,
    ) -> Result<(ConnectionId, Vec<NewStream<TcpStream>>), PostError> {
        let system = |error: io::Error| PostError::System(error.to_string());
        let id = self.connections.next_connection();
        for (socket, _) in &sockets {
            self.connections.settings().prepare(socket).map_err(system)?;
        }
        let mut streams = Vec::with_capacity(sockets.len());
        for (index, (socket, keys)) in sockets.into_iter().enumerate() {
            let copies_directly = self.connections.settings().copies_directly(&socket);
            let mut bytes = TcpStream::from_std(socket);
            self.queue.add(&mut bytes, id, index).map_err(system)?;
            streams.push(NewStream { bytes, keys, copies_directly });
        }
        Ok((id, streams))
    }

    /// Closes the sockets of connections that have ended.
    fn close_ended(&mut self) {
        for mut socket in self.connections.take_closed() {
            self.connections.settings().bound_unsent(&socket);
            self.queue.remove(&mut socket);
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
    fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.polls_without_wait = 0;
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
        let sockets = match link.kind {
            Kind::Streams(sockets) => sockets,
            Kind::Reserved(endpoint) => return self.connections.open_reserved(endpoint),
        };
        let (connection, streams) = self.streams_of(sockets)?;
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
        self.queue.descriptor().try_clone_to_owned()
    }

    fn next_tick(&self) -> Option<Instant> {
        if self.connections.is_ready() || self.connections.may_have_news() {
            return Some(self.origin);
        }
        self.origin.checked_add(self.connections.poll_timeout()?)
    }
}
