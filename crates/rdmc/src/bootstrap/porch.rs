//! Where callers wait until they have said hello: strangers who do not get that far cost no thread
//! and no key.

use std::{
    collections::BTreeMap,
    io,
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token, net};

use super::line;

/// Callers that wait here at once. When one more comes, who has waited longest goes.
const WAITING_MAX: usize = 128;
/// How long each may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after somebody had to go for another: a flood gets no more of the processor than this
/// leaves.
const CROWDED_PAUSE: Duration = Duration::from_millis(1);
/// Callers that are let in, and events that are looked at, in one go.
const BATCH: usize = 16;
const EVENTS: usize = 64;
/// All callers have other tokens: they are counted from zero.
const DOOR: Token = Token(usize::MAX);

/// Accepts callers and greets them; belongs to the one thread that does so.
pub(super) struct Porch {
    poll: Poll,
    events: Events,
    listener: net::TcpListener,
    waiting: BTreeMap<usize, Caller>,
    came: usize,
    /// The listener says so once, however many there are.
    is_somebody_there: bool,
    /// Those who have said hello.
    ready: Vec<TcpStream>,
}

struct Caller {
    stream: net::TcpStream,
    since: Instant,
}

impl Porch {
    /// Errors: the system is out of descriptors.
    pub(super) fn of(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (poll, mut listener) = (Poll::new()?, net::TcpListener::from_std(listener));
        poll.registry().register(&mut listener, DOOR, Interest::READABLE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            listener,
            waiting: BTreeMap::new(),
            came: 0,
            is_somebody_there: false,
            ready: Vec::new(),
        })
    }

    /// Blocks until a caller has said hello, and gives its connection away: it has been greeted, what
    /// it said is still to be read, and it blocks.
    ///
    /// Errors: no descriptors, which passes; or the listener has been shut down.
    pub(super) fn next(&mut self) -> io::Result<TcpStream> {
        loop {
            if let Some(stream) = self.ready.pop() {
                return Ok(stream);
            }
            if self.is_somebody_there {
                self.let_in()?;
            }
            self.send_away_who_is_late();
            let left = self.time_left();
            match self.poll.poll(&mut self.events, left) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            let tokens: Vec<Token> = self.events.iter().map(|event| event.token()).collect();
            for token in tokens {
                match token {
                    DOOR => self.is_somebody_there = true,
                    Token(number) => self.listen_to(number),
                }
            }
        }
    }

    /// Lets some in, so that those who are here already are heard in between.
    fn let_in(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            match self.listener.accept() {
                Ok((stream, _)) => self.greet(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_somebody_there = false;
                    return Ok(());
                }
                // Who is gone again is nobody's trouble.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn greet(&mut self, mut stream: net::TcpStream) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_first();
            thread::sleep(CROWDED_PAUSE);
        }
        let _ = stream.set_nodelay(true);
        let number = self.came;
        self.came += 1;
        // An empty connection has room for a greeting; without one the caller could not go on.
        let greeted = line::greet_at_once(&mut stream);
        let interest = Interest::READABLE;
        let registered = self.poll.registry().register(&mut stream, Token(number), interest);
        if greeted && registered.is_ok() {
            self.waiting.insert(number, Caller { stream, since: Instant::now() });
        }
    }

    /// Looks at what somebody has said, without taking it.
    fn listen_to(&mut self, number: usize) {
        let Some(caller) = self.waiting.get(&number) else { return };
        let said = line::said_so_far(|into| caller.stream.peek(into));
        if said == line::Said::Nonsense {
            self.waiting.remove(&number);
        } else if said == line::Said::Hello
            && let Some(Caller { mut stream, .. }) = self.waiting.remove(&number)
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
        if self.is_somebody_there {
            return Some(Duration::ZERO);
        }
        let oldest = self.waiting.values().next();
        oldest.map(|caller| PATIENCE.saturating_sub(caller.since.elapsed()))
    }

    fn send_away_who_is_late(&mut self) {
        while let Some(oldest) = self.waiting.first_entry()
            && oldest.get().since.elapsed() >= PATIENCE
        {
            oldest.remove();
        }
    }
}
