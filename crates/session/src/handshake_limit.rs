//! A limit on connections in their handshake that have not authenticated.

use std::{
    collections::BTreeMap,
    io,
    net::{Shutdown, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::Duration,
};

/// The most connections at once that have sent their hello and have not authenticated.
const HANDSHAKES_MAX: usize = 128;
/// The pause before each handshake while the limit is reached: it bounds the processor time that a
/// flood can use, and leaves each connection an eighth of a second to authenticate.
const CROWDED_PAUSE: Duration = Duration::from_millis(1);

/// The stack of a thread that serves one connection: enough for a handshake, and small enough that
/// the C library reuses the stacks of ended threads.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// Limits how many connections are in their handshake. Above the limit, the oldest is closed: a
/// flood of unauthenticated peers cannot keep members out, and uses no more than this number of
/// threads, descriptors and buffers. A member whose connection is closed in this way retries.
///
/// Each connection is served by a thread of its own, or by the server of another protocol, which the owner of the limit starts.
#[derive(Debug, Default)]
pub(crate) struct HandshakeLimit {
    open: Mutex<Open>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    connections: BTreeMap<u64, Connection>,
    started: u64,
    closed: bool,
}

#[derive(Debug)]
struct Connection {
    handle: TcpStream,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InHandshake,
    Authenticated,
    Evicted,
}

/// One connection that a listener tracks: until this is dropped, closing the listener shuts the
/// connection down and waits for it.
#[derive(Debug)]
pub struct Handshake {
    limit: Arc<HandshakeLimit>,
    number: u64,
}

impl HandshakeLimit {
    /// Tracks a connection. Blocks for a millisecond while the limit is reached.
    ///
    /// Errors: the limit is closed, or there is no descriptor left; the caller has to close the
    /// connection.
    pub(crate) fn start(self: &Arc<Self>, stream: &TcpStream) -> io::Result<Handshake> {
        let handle = stream.try_clone()?;
        let mut open = self.open();
        if open.closed {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let in_handshake = open.in_handshake().count();
        if in_handshake >= HANDSHAKES_MAX
            && let Some(oldest) = open.in_handshake().next()
        {
            oldest.state = State::Evicted;
            let _ = oldest.handle.shutdown(Shutdown::Both);
        }
        let number = open.started;
        open.started += 1;
        open.connections.insert(number, Connection { handle, state: State::InHandshake });
        drop(open);
        if in_handshake >= HANDSHAKES_MAX {
            std::thread::sleep(CROWDED_PAUSE);
        }
        Ok(Handshake { limit: Arc::clone(self), number })
    }

    /// Tracks no more connections, shuts down all that are tracked, and waits at most `timeout`
    /// until their guards are dropped. Returns whether they are.
    pub(crate) fn close(&self, timeout: Duration) -> bool {
        let mut open = self.open();
        open.closed = true;
        for connection in open.connections.values() {
            let _ = connection.handle.shutdown(Shutdown::Both);
        }
        let open = self
            .left
            .wait_timeout_while(open, timeout, |open| !open.connections.is_empty())
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .0;
        open.connections.is_empty()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Open {
    /// Returns the connections that have not authenticated, the oldest first.
    fn in_handshake(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.connections.values_mut().filter(|connection| connection.state == State::InHandshake)
    }
}

impl Handshake {
    /// Records that the peer has authenticated and, where it has to, asked for something: the connection no longer counts against the
    /// limit.
    pub fn served(&self) {
        if let Some(connection) = self.limit.open().connections.get_mut(&self.number) {
            connection.state = State::Authenticated;
        }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.limit.open().connections.remove(&self.number);
        self.limit.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener};

    use super::*;

    #[test]
    fn the_oldest_handshake_is_closed_for_another_and_authenticated_connections_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let limit = Arc::new(HandshakeLimit::default());
        let mut callers: Vec<(TcpStream, Handshake)> = (0..HANDSHAKES_MAX)
            .map(|_| {
                let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                caller.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                let handshake = limit.start(&listener.accept().unwrap().0).unwrap();
                (caller, handshake)
            })
            .collect();
        callers[0].1.served();
        let more = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let late = [0, 1].map(|_| limit.start(&more).unwrap());
        let mut is_over = |index: usize| matches!(callers[index].0.read(&mut [0]), Ok(0));
        assert_eq!([0, 1, 2].map(&mut is_over), [false, true, false]);
        assert_eq!(limit.open().connections.len(), HANDSHAKES_MAX + 2);
        drop((callers, late));
        assert!(limit.close(Duration::from_secs(5)));
        assert!(limit.open().connections.is_empty() && limit.start(&more).is_err());
    }
}
