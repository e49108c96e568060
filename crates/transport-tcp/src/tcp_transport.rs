//! The transport itself: one driver for the thread that polls, and perhaps others with threads of their own.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use transport::{
    Cause, Completion, CutThroughSends, EndpointId, OneSidedWrites, PostError, ReadLease, Token,
    Transport, Waker, Watched, WriteLease,
};

use crate::{
    command::Outbound,
    connections::{BLOCK_BYTES_MAX, Connections},
    counters::TcpCounters,
    driver::Driver,
    link::{ConnectionId, Kind, TcpLink},
    reports::Report,
    settings::TcpSettings,
    shared::SharedEvent,
    socket::Socket,
    spread::{Dealt, Spread},
    threads::Threads,
};

/// [`Transport`] over TCP. All work is done in `poll`, by the thread that calls it, with one event queue; the posting methods only
/// queue. With more [`TcpSettings::threads`] others serve some of the streams of links that have several.
///
/// Connections are served in turn, at most half a megabyte in each direction, so that none starves
/// another; also where [`TcpSettings::rate_max`] limits them together. Timers are handled in every poll, and by each other thread for its streams. Dropping the
/// transport closes all sockets at once, without an ordered close: peers report [`transport::Cause::Lost`].
pub struct TcpTransport {
    pub(crate) local: Driver,
    pub(crate) spread: Spread<Socket>,
    /// `None` if the thread that polls does everything.
    threads: Option<Threads>,
    /// What other threads have reported, and was not taken yet.
    completed: Vec<Completion>,
    events: Vec<SharedEvent>,
}

impl TcpTransport {
    /// Makes a transport without endpoints. Errors: a setting is out of range, the system refuses an option or a thread, or the process
    /// has no file descriptors left.
    pub fn new(settings: TcpSettings) -> io::Result<Self> {
        settings.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        settings.try_options()?;
        let (count, origin) = (settings.threads_used(), Instant::now());
        let mut local = Driver::new(Connections::new(settings.clone()), origin)?;
        let threads = if count > 1 {
            Some(Threads::start(count, &settings, origin, &mut local)?)
        } else {
            None
        };
        Ok(Self {
            local,
            spread: Spread::new(count),
            threads,
            completed: Vec::new(),
            events: Vec::new(),
        })
    }

    /// Returns the totals so far; of other threads at their last turns.
    pub fn counters(&self) -> TcpCounters {
        let local = self.local.connections.counters();
        self.threads.iter().flat_map(Threads::counters).fold(local, |sum, it| sum + it)
    }

    /// Returns a descriptor for waiting for this transport among others: readable when
    /// [`Transport::poll`] would report something or could move bytes, or when the waker was used. With links through memory
    /// ([`TcpLink::through_memory`]) that needs [`TcpTransport::prepare_wait`].
    pub fn event_queue(&self) -> BorrowedFd<'_> {
        self.local.event_queue()
    }

    /// Before each wait for [`TcpTransport::event_queue`]: has peers that share memory wake this end. [`Watched::next_tick`] is to be
    /// asked afterwards.
    pub fn prepare_wait(&mut self) {
        self.wake_threads();
        self.local.doze();
    }

    /// Returns whether a poll has consumed a use of the waker since the last call; for a transport
    /// that waits for this one among others, and polls it without waiting.
    pub fn take_woken(&mut self) -> bool {
        self.local.take_woken()
    }

    /// Writes a heartbeat to an endpoint's peer now, which its system acknowledges even if its process does not run.
    /// Returns the socket; `None` if the endpoint closes or has ended.
    pub fn probe(&mut self, endpoint: EndpointId) -> Option<BorrowedFd<'_>> {
        self.local.connections.push_heartbeat(endpoint);
        self.flush();
        Some(self.local.connections.first_stream(endpoint)?.as_fd())
    }

    /// Ends an endpoint whose peer has failed, with all others of the same connection, which report this cause.
    pub fn break_off(&mut self, endpoint: EndpointId, cause: Cause) {
        self.spread.break_off(&mut self.local.connections, endpoint, &cause);
        self.give_commands();
        self.local.close_ended();
    }

    /// Prepares the sockets of a connection, deals them to the threads, and adds those of this one to its event queue.
    ///
    /// Errors: the system refuses a socket option (which is named), or cannot poll one more socket; a thread has failed.
    pub(crate) fn parts_of(
        &mut self,
        kind: Kind,
    ) -> Result<(ConnectionId, Dealt<Socket>), PostError> {
        if self.threads.as_ref().is_some_and(Threads::has_lost_one) {
            return Err(PostError::System("a thread of the transport has failed".into()));
        }
        let id = self.spread.next_connection();
        let streams: Vec<_> = match kind {
            Kind::Streams(sockets) => sockets
                .into_iter()
                .map(|(socket, keys)| self.local.stream(socket, keys, Socket::Tcp))
                .collect::<Result<_, _>>()?,
            Kind::Memory(socket, pipe) => {
                self.local.note_in_memory(id);
                let memory = |connection| Socket::Memory(pipe, connection);
                vec![self.local.stream(socket, None, memory)?]
            }
            Kind::Reserved(..) => return Err(PostError::System("it is shared already".into())),
        };
        let parts = self.spread.deal(streams);
        if let Some(streams) = parts.first() {
            self.local.watch_streams(id, streams)?;
        }
        Ok((id, parts))
    }

    /// Gives commands to other threads, which take them when they are woken at the latest.
    pub(crate) fn give_commands(&mut self) {
        if let Some(threads) = &mut self.threads {
            threads.command(self.spread.take_commands());
        }
    }

    fn wake_threads(&mut self) {
        if let Some(threads) = &mut self.threads {
            threads.wake();
        }
    }

    /// As [`Transport::post_send`], of whole or of arriving memory.
    pub(crate) fn post_outbound(
        &mut self,
        endpoint: EndpointId,
        from: Outbound,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let local = &mut self.local.connections;
        let posted = self.spread.post_send(local, endpoint, from, immediate, token);
        self.give_commands();
        // From now on what arrives by other threads wakes this one, also if it waits for the descriptor.
        self.local.look_for_arrived();
        posted
    }

    /// Takes what other threads have reported.
    fn hear(&mut self) {
        let Some(threads) = &mut self.threads else { return };
        let (now, local) = (self.local.now(), &mut self.local.connections);
        while let Some((part, report)) = threads.next_report() {
            let whole = match report {
                Some(report) => self.spread.on_report(local, part, report, now),
                None => self.spread.on_lost_part(local, part, now),
            };
            self.completed.extend(whole.completions);
            self.events.extend(whole.events);
        }
    }

    /// As [`Transport::poll`], with other threads.
    fn poll_all(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        self.hear();
        self.give_commands();
        self.wake_threads();
        let has_news = !self.completed.is_empty() || !self.events.is_empty();
        let mut report = Report::default();
        self.local.poll(&mut report.completions, if has_news { Duration::ZERO } else { wait });
        report.events = self.local.connections.take_events();
        report.closed_by_peer = self.local.connections.take_closed_by_peer();
        let (now, local) = (self.local.now(), &mut self.local.connections);
        let whole = self.spread.on_report(local, 0, report, now);
        self.completed.extend(whole.completions);
        self.events.extend(whole.events);
        self.hear();
        // What has ended elsewhere ends here, too, and the other way round.
        self.local.close_ended();
        self.give_commands();
        self.wake_threads();
        completions.append(&mut self.completed);
    }

    /// Returns whether [`TcpTransport::take_events`] would return something.
    pub(crate) fn has_events(&self) -> bool {
        match self.threads {
            Some(_) => !self.events.is_empty(),
            None => self.local.connections.has_events(),
        }
    }

    /// Returns what has happened on shared connections since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<SharedEvent> {
        if self.threads.is_none() {
            return self.local.connections.take_events();
        }
        std::mem::take(&mut self.events)
    }
}

impl Transport for TcpTransport {
    type Link = TcpLink;

    /// Returns the time since this transport was made.
    fn now(&self) -> Duration {
        self.local.now()
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
            let opened = self.spread.open_reserved(&mut self.local.connections, endpoint);
            self.give_commands();
            return opened.map(|()| endpoint);
        }
        let (connection, parts) = self.parts_of(link.kind)?;
        let (count, now) = (parts.iter().map(Vec::len).sum::<usize>(), self.now());
        let endpoint = self.spread.open(&mut self.local.connections, connection, parts, now);
        self.give_commands();
        tracing::debug!(endpoint = endpoint.0, streams = count, ?peer, "opened");
        Ok(endpoint)
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        let local = &mut self.local.connections;
        let posted = self.spread.post_receive(local, endpoint, into, token);
        self.give_commands();
        posted
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        self.post_outbound(endpoint, Outbound::Whole(from), immediate, token)
    }

    /// Also refuses an empty word, and, after some megabytes, words for a peer that does not read.
    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        self.local.connections.write_control(endpoint, word)
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }

    fn cut_through(&mut self) -> Option<&mut dyn CutThroughSends> {
        Some(self)
    }

    fn close(&mut self, endpoint: EndpointId) {
        let now = self.now();
        self.spread.close(&mut self.local.connections, endpoint, now);
        self.give_commands();
    }

    /// Waits in steps of a millisecond, rounded up: the event queue has no finer resolution.
    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        if self.threads.is_some() {
            self.poll_all(completions, wait);
        } else {
            self.local.poll(completions, wait);
        }
    }

    fn flush(&mut self) {
        self.wake_threads();
        self.local.flush();
    }

    fn waker(&self) -> Waker {
        self.local.waker()
    }
}

impl Watched for TcpTransport {
    /// Returns the descriptor of [`TcpTransport::event_queue`].
    fn watch(&mut self) -> io::Result<OwnedFd> {
        self.local.watch()
    }

    fn next_tick(&self) -> Option<Instant> {
        if self.threads.as_ref().is_some_and(Threads::have_commands) {
            return Some(Instant::now());
        }
        self.local.next_tick()
    }
}
