//! The event queue of a transport: which sockets can be read or written, and the waker.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use mio::{Interest, unix::SourceFd};
use transport::Waker;

use crate::{
    byte_stream::Readiness,
    link::{ConnectionId, STREAMS_MAX},
};

/// Events that one system call reports at most.
const EVENTS_MAX: usize = 256;

const WAKER: mio::Token = mio::Token(usize::MAX);

/// The sockets of a transport, whose events are edge-triggered.
pub(crate) struct EventQueue {
    queue: mio::Poll,
    events: mio::Events,
    waker: Arc<mio::Waker>,
    sockets: usize,
}

/// The outcome of a wait.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Waited {
    /// The waker was used.
    pub(crate) is_woken: bool,
    /// How many system calls it took.
    pub(crate) calls: u64,
}

impl EventQueue {
    /// Errors: the process has no file descriptors left.
    pub(crate) fn new() -> io::Result<Self> {
        let queue = mio::Poll::new()?;
        let waker = Arc::new(mio::Waker::new(queue.registry(), WAKER)?);
        Ok(Self { queue, events: mio::Events::with_capacity(EVENTS_MAX), waker, sockets: 0 })
    }

    /// Returns the descriptor that is readable when there are events.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.registry().as_fd()
    }

    pub(crate) fn waker(&self) -> Waker {
        let waker = Arc::clone(&self.waker);
        // This fails only when the event queue is closed, and then there is no wait to end.
        Arc::new(move || drop(waker.wake()))
    }

    /// Adds the socket of a stream. Errors: the system cannot poll one more socket.
    pub(crate) fn add(
        &mut self,
        socket: BorrowedFd<'_>,
        connection: ConnectionId,
        stream: usize,
    ) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        let descriptor = socket.as_raw_fd();
        let mut socket = SourceFd(&descriptor);
        self.queue.registry().register(&mut socket, join(connection, stream), interests)?;
        self.sockets += 1;
        Ok(())
    }

    /// Removes a socket that is closed next: closing the descriptor removes it only if it has no duplicate.
    pub(crate) fn remove(&mut self, socket: BorrowedFd<'_>) {
        let _ = self.queue.registry().deregister(&mut SourceFd(&socket.as_raw_fd()));
        self.sockets = self.sockets.saturating_sub(1);
    }

    /// Waits up to `timeout` for an event, and calls `mark` with all that were queued at that time: a peer whose event
    /// is still there would seem silent. Some may be of streams that were removed.
    ///
    /// Errors: the queue failed, and reports nothing any more.
    pub(crate) fn wait(
        &mut self,
        mut timeout: Option<Duration>,
        mut mark: impl FnMut(ConnectionId, usize, Readiness),
    ) -> io::Result<Waited> {
        let (mut waited, mut batches) = (Waited::default(), 0);
        loop {
            waited.calls += 1;
            match self.queue.poll(&mut self.events, timeout) {
                Ok(()) => {
                    let events = self.take_batch(&mut waited, &mut mark);
                    batches += 1;
                    // The queue is in order, and has at most one event for each socket and the waker.
                    if events < EVENTS_MAX || batches * EVENTS_MAX > self.sockets {
                        return Ok(waited);
                    }
                }
                // Not at the second try, which does not wait.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            timeout = Some(Duration::ZERO);
        }
    }

    /// Returns how many events there were.
    fn take_batch(
        &self,
        waited: &mut Waited,
        mark: &mut impl FnMut(ConnectionId, usize, Readiness),
    ) -> usize {
        let mut count = 0;
        for event in &self.events {
            count += 1;
            if event.token() == WAKER {
                waited.is_woken = true;
                continue;
            }
            let is_read_closed = event.is_read_closed() || event.is_error();
            let can_read = is_read_closed || event.is_readable();
            let readiness = Readiness { can_read, can_write: event.is_writable(), is_read_closed };
            let (connection, stream) = split(event.token());
            mark(connection, stream, readiness);
        }
        count
    }
}

/// Returns the token of a stream in the event queue.
fn join(id: ConnectionId, stream: usize) -> mio::Token {
    mio::Token(id.0 as usize * STREAMS_MAX + stream)
}

/// Returns the connection of a token, and the index of its stream.
fn split(token: mio::Token) -> (ConnectionId, usize) {
    (ConnectionId((token.0 / STREAMS_MAX) as u64), token.0 % STREAMS_MAX)
}
