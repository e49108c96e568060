//! What one thread serves: sockets, the event queue and the clock, around connections.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use mio::net::TcpStream;
use transport::{Completion, PostError, Waker};

use crate::{
    arrivals::OwnArrivals,
    byte_stream::Readiness,
    command::Command,
    connections::Connections,
    event_queue::{EventQueue, Waited},
    link::{ConnectionId, StreamKeys},
    reports::Report,
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

/// One event queue with its sockets. All work is done in the calls, by the thread that makes them.
pub(crate) struct Driver {
    queue: EventQueue,
    pub(crate) connections: Connections<Socket>,
    /// Those through shared memory, with some that have ended.
    in_memory: Vec<ConnectionId>,
    origin: Instant,
    polls_without_wait: u32,
    /// The waker has ended a wait since the last [`Driver::take_woken`].
    woken: bool,
    /// The event queue's descriptor is waited for elsewhere.
    is_watched: bool,
    /// What other threads of the transport have to know of blocks that arrive here; `None` if there are none.
    arrivals: Option<OwnArrivals>,
}

impl Driver {
    /// Makes an event queue without sockets. Times are counted from `origin`. Errors: the process has no file descriptors left.
    pub(crate) fn new(connections: Connections<Socket>, origin: Instant) -> io::Result<Self> {
        Ok(Self {
            queue: EventQueue::new()?,
            connections,
            in_memory: Vec::new(),
            origin,
            polls_without_wait: 0,
            woken: false,
            is_watched: false,
            arrivals: None,
        })
    }

    /// Shares what arrives with other threads.
    pub(crate) fn set_arrivals(&mut self, arrivals: OwnArrivals) {
        self.arrivals = Some(arrivals);
    }

    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.queue.waker()
    }

    /// Returns the descriptor that is readable when there are events.
    pub(crate) fn event_queue(&self) -> BorrowedFd<'_> {
        self.queue.descriptor()
    }

    /// As [`transport::Watched::watch`].
    pub(crate) fn watch(&mut self) -> io::Result<OwnedFd> {
        self.is_watched = true;
        self.doze();
        self.queue.descriptor().try_clone_to_owned()
    }

    /// As [`transport::Watched::next_tick`].
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        if self.connections.is_ready() || self.connections.may_have_news() {
            return Some(self.origin);
        }
        self.origin.checked_add(self.connections.poll_timeout()?)
    }

    /// Has peers that share memory wake this end.
    pub(crate) fn doze(&mut self) {
        self.look(Socket::doze);
    }

    /// Returns whether a poll has consumed a use of the waker since the last call.
    pub(crate) fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken)
    }

    /// Adds the streams of a new connection to the event queue.
    ///
    /// Errors: the system cannot poll one more socket.
    pub(crate) fn watch_streams(
        &mut self,
        id: ConnectionId,
        streams: &[NewStream<Socket>],
    ) -> Result<(), PostError> {
        for (index, stream) in streams.iter().enumerate() {
            let added = self.queue.add(stream.bytes.signal(), id, index);
            added.map_err(|error| PostError::System(error.to_string()))?;
        }
        Ok(())
    }

    /// Notes that a new connection goes through shared memory.
    pub(crate) fn note_in_memory(&mut self, id: ConnectionId) {
        self.in_memory.push(id);
    }

    /// Returns whether a connection goes through shared memory.
    pub(crate) fn is_in_memory(&self, id: ConnectionId) -> bool {
        self.in_memory.contains(&id)
    }

    /// Makes a stream of a socket.
    ///
    /// Errors: the system refuses a socket option, which is named.
    pub(crate) fn stream(
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
    pub(crate) fn close_ended(&mut self) {
        for socket in self.connections.take_closed() {
            self.connections.settings().bound_unsent(&socket);
            self.queue.remove(socket.signal());
        }
    }

    /// Lets endpoints send on what has arrived by other threads, and has these wake this one when more does.
    pub(crate) fn look_for_arrived(&mut self) {
        if let Some(arrivals) = &self.arrivals {
            arrivals.announce(self.connections.is_following());
            self.connections.look_for_arrived();
        }
    }

    fn serve(&mut self, now: Duration) {
        self.look_for_arrived();
        self.connections.serve(now);
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.notify(self.connections.counters.arrivals());
        }
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

    /// Moves bytes, then appends what has completed: as [`transport::Transport::poll`].
    pub(crate) fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        self.connections.counters.polls += 1;
        if !self.is_watched {
            self.look(Socket::look);
        }
        self.make_progress(completions, wait);
        if self.is_watched {
            self.look(Socket::doze);
        }
    }

    /// As [`transport::Transport::flush`].
    pub(crate) fn flush(&mut self) {
        if self.connections.is_ready() {
            self.serve(self.now());
        }
    }

    /// Waits until there is something to do, carries out the commands that `take` returns then, and moves bytes once. Returns what is
    /// there to report, if anything is.
    pub(crate) fn take_turn<C>(&mut self, take: impl FnOnce() -> C) -> Option<Report>
    where
        C: IntoIterator<Item = Command<Socket>>,
    {
        self.connections.counters.polls += 1;
        let timeout = self.timeout(self.now(), None);
        self.wait(timeout);
        let now = self.now();
        if self.connections.is_tick_due(now) {
            // This thread may not have run since the wait, and what came meanwhile is no silence.
            self.wait(Some(Duration::ZERO));
        }
        for command in take() {
            self.carry_out(command, now);
        }
        self.connections.took_commands();
        self.serve(now);
        self.connections.handle_timeout(now);
        self.close_ended();
        self.connections.has_news(now).then(|| self.connections.take_report())
    }

    fn carry_out(&mut self, command: Command<Socket>, now: Duration) {
        let mut watched = Ok(());
        if let Command::Open { connection, streams, .. } | Command::Share { connection, streams } =
            &command
        {
            watched = self.watch_streams(*connection, streams);
        }
        match (watched, &command) {
            (Err(error), &Command::Open { endpoint, .. }) => {
                self.connections.refuse_endpoint(endpoint, &error);
            }
            (Err(error), &Command::Share { connection, .. }) => {
                self.connections.refuse_connection(connection, &error);
            }
            _ => command.carry_out(&mut self.connections, now),
        }
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
            self.serve(now);
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

impl Drop for Driver {
    fn drop(&mut self) {
        let settings = self.connections.settings();
        self.connections.streams().for_each(|socket| settings.bound_unsent(socket));
    }
}
