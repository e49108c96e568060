//! Connections that have been accepted, and whose peers have not sent a whole hello: those that never do
//! cost neither a thread nor a key.

use std::{
    collections::BTreeMap,
    io,
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token, Waker, net};

use crate::line;

/// Connections that are pending at once. When one more comes, the oldest is closed.
const PENDING_MAX: usize = 128;
/// How long each may take to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a connection was closed for another: a flood gets no more of the processor than this
/// leaves.
const CROWDED_PAUSE: Duration = Duration::from_millis(1);
/// Connections that are accepted, and events that are looked at, in one go.
const BATCH: usize = 16;
const EVENTS: usize = 64;
/// Connections have other tokens: they are counted from zero.
const LISTENER: Token = Token(usize::MAX);
const STOP: Token = Token(usize::MAX - 1);

/// Accepts connections and greets their peers; belongs to the one thread that does so.
pub(crate) struct PendingConnections {
    poll: Poll,
    events: Events,
    listener: net::TcpListener,
    pending: BTreeMap<usize, Pending>,
    accepted: usize,
    /// The listener has reported connections, which it does once however many there are.
    can_accept: bool,
    /// Those whose peers have sent a hello.
    ready: Vec<TcpStream>,
}

struct Pending {
    stream: net::TcpStream,
    since: Instant,
}

impl PendingConnections {
    /// Errors: the system is out of descriptors.
    pub(crate) fn of(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (poll, mut listener) = (Poll::new()?, net::TcpListener::from_std(listener));
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            listener,
            pending: BTreeMap::new(),
            accepted: 0,
            can_accept: false,
            ready: Vec::new(),
        })
    }

    /// Makes [`PendingConnections::next`] return, from another thread. Errors: no descriptors.
    pub(crate) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), STOP)
    }

    /// Blocks until a peer has sent its hello, and gives its connection away: it has been greeted, the
    /// hello is still to be read, and reads and writes block.
    ///
    /// Errors: no descriptors, which passes; or [`PendingConnections::waker`] was woken.
    pub(crate) fn next(&mut self) -> io::Result<TcpStream> {
        loop {
            if let Some(stream) = self.ready.pop() {
                return Ok(stream);
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

    /// Accepts a batch, so that those that are pending already are looked at in between.
    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            match self.listener.accept() {
                Ok((stream, _)) => self.greet(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.can_accept = false;
                    return Ok(());
                }
                // The peer has closed it again.
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
        // The send buffer of a new connection takes a greeting; without one it could not go on.
        let greeted = line::greet_at_once(&mut stream);
        let interest = Interest::READABLE;
        let registered = self.poll.registry().register(&mut stream, Token(number), interest);
        if greeted && registered.is_ok() {
            self.pending.insert(number, Pending { stream, since: Instant::now() });
        }
    }

    /// Looks at what a peer has sent, without taking it.
    fn look_at(&mut self, number: usize) {
        let Some(connection) = self.pending.get(&number) else { return };
        let sent = line::sent_so_far(|into| connection.stream.peek(into));
        if sent == line::Sent::Invalid {
            self.pending.remove(&number);
        } else if sent == line::Sent::Hello
            && let Some(Pending { mut stream, .. }) = self.pending.remove(&number)
        {
            let gone = self.poll.registry().deregister(&mut stream);
            let stream = TcpStream::from(stream);
            if gone.and_then(|()| stream.set_nonblocking(false)).is_ok() {
                self.ready.push(stream);
            }
        }
    }

    /// Until something has to be done anyway.
    fn time_left(&self) -> Option<Duration> {
        if self.can_accept {
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
