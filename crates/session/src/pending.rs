//! Pending connections: accepted, but without a whole hello from the peer. They need neither a
//! thread nor a key.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token, Waker, net};

use crate::{
    line::{self, Opening},
    peers::Peers,
};

/// The most connections that are pending at once; for one more, the oldest is closed.
const PENDING_MAX: usize = 128;
/// The time in which each has to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after closing one connection for another: it bounds the processor time that a flood
/// can use.
const CROWDED_PAUSE: Duration = Duration::from_millis(1);
/// Connections accepted, and events fetched, at a time.
const BATCH: usize = 16;
const EVENTS: usize = 64;
/// Tokens of connections are numbers counted from zero.
const LISTENER: Token = Token(usize::MAX);
const STOP: Token = Token(usize::MAX - 1);

/// Accepts connections, and greets their peers where they expect that; belongs to the one thread that does so.
pub(crate) struct PendingConnections {
    poll: Poll,
    events: Events,
    listener: net::TcpListener,
    opening: Opening,
    /// From whom connections are accepted; `None` for all.
    peers: Option<Peers>,
    pending: BTreeMap<usize, Pending>,
    accepted: usize,
    /// The listener has reported connections, which it does only once, however many there are.
    can_accept: bool,
    ready: Vec<Accepted>,
}

/// A connection that is no longer pending.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// Its peer has sent a hello, which is unread; reads and writes block.
    Greeted(TcpStream),
    /// It was closed at once, as this peer is not one of the [`Peers`].
    NotAllowed(SocketAddr),
}

struct Pending {
    stream: net::TcpStream,
    since: Instant,
}

impl PendingConnections {
    /// Takes over a listening socket. Errors: no descriptor is left.
    pub(crate) fn of(
        listener: TcpListener,
        opening: Opening,
        peers: Option<Peers>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (poll, mut listener) = (Poll::new()?, net::TcpListener::from_std(listener));
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            listener,
            opening,
            peers,
            pending: BTreeMap::new(),
            accepted: 0,
            can_accept: false,
            ready: Vec::new(),
        })
    }

    /// Returns a waker that makes [`PendingConnections::next`] return, from another thread. Errors:
    /// no descriptor is left.
    pub(crate) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), STOP)
    }

    /// Blocks until a peer has sent its hello, after the greeting (with [`Opening::Greeting`]), or was refused.
    ///
    /// Errors: no descriptor is left, which may be temporary; or [`PendingConnections::waker`] was
    /// used.
    pub(crate) fn next(&mut self) -> io::Result<Accepted> {
        loop {
            if let Some(accepted) = self.ready.pop() {
                return Ok(accepted);
            }
            if self.can_accept {
                self.accept()?;
            }
            self.close_overdue();
            let left = self.time_left();
            match self.poll.poll(&mut self.events, left) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            let tokens: Vec<Token> = self.events.iter().map(|event| event.token()).collect();
            for token in tokens {
                match token {
                    LISTENER => self.can_accept = true,
                    STOP => return Err(io::ErrorKind::ConnectionAborted.into()),
                    Token(number) => self.look_at(number),
                }
            }
        }
    }

    /// Accepts a batch at most, so that connections that are pending already are served in between.
    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            match self.listener.accept() {
                Ok((_, peer)) if self.peers.as_ref().is_some_and(|all| !all.contain(peer.ip())) => {
                    self.ready.push(Accepted::NotAllowed(peer));
                }
                Ok((stream, _)) => self.greet(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.can_accept = false;
                    return Ok(());
                }
                // The peer has closed the connection already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn greet(&mut self, mut stream: net::TcpStream) {
        if self.pending.len() >= PENDING_MAX {
            self.pending.pop_first();
            thread::sleep(CROWDED_PAUSE);
        }
        let _ = stream.set_nodelay(true);
        let number = self.accepted;
        self.accepted += 1;
        // The send buffer of a new connection has space for a greeting; if the write fails, the
        // connection is dropped.
        let greeted = self.opening == Opening::Tls || line::greet_at_once(&mut stream);
        let interest = Interest::READABLE;
        let registered = self.poll.registry().register(&mut stream, Token(number), interest);
        if greeted && registered.is_ok() {
            self.pending.insert(number, Pending { stream, since: Instant::now() });
        }
    }

    /// Examines the bytes that a peer has sent, without consuming them.
    fn look_at(&mut self, number: usize) {
        let Some(connection) = self.pending.get(&number) else { return };
        let sent = line::sent_so_far(self.opening, |into| connection.stream.peek(into));
        if sent == line::Sent::Invalid {
            self.pending.remove(&number);
        } else if sent == line::Sent::Hello
            && let Some(Pending { mut stream, .. }) = self.pending.remove(&number)
        {
            let gone = self.poll.registry().deregister(&mut stream);
            let stream = TcpStream::from(stream);
            if gone.and_then(|()| stream.set_nonblocking(false)).is_ok() {
                self.ready.push(Accepted::Greeted(stream));
            }
        }
    }

    /// Returns the time until the oldest connection is overdue, or zero if there is something to do at once.
    fn time_left(&self) -> Option<Duration> {
        if self.can_accept || !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let oldest = self.pending.values().next();
        oldest.map(|connection| HELLO_TIMEOUT.saturating_sub(connection.since.elapsed()))
    }

    fn close_overdue(&mut self) {
        while let Some(oldest) = self.pending.first_entry()
            && oldest.get().since.elapsed() >= HELLO_TIMEOUT
        {
            oldest.remove();
        }
    }
}
