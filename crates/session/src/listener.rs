//! A listener for authenticated connections that bounds what unauthenticated peers cost.

use std::{
    fmt::Display,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use mio::Waker;

use crate::{
    channel::Channel,
    credentials::Credentials,
    deadline::Deadline,
    error::Error,
    handshake_limit::{Handshake, HandshakeLimit, STACK_BYTES},
    line::{Opening, peer_error},
    peers::Peers,
    pending::{Accepted, PendingConnections},
    threads::Threads,
};

/// How long a connection may take to authenticate.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the system had no descriptor or thread left.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until it is closed or dropped, each authenticated on a thread of its own, or by
/// the server of another protocol ([`Listener::before_tls`]).
///
/// Unauthenticated peers cost at most 128 connections that have not sent a hello, 10 seconds each,
/// and as many handshakes on threads, 10 more seconds each; the memory that they use does not grow
/// with what they send. Dropping the listener closes those connections and waits for one thread, 10
/// seconds at most; channels that it has passed on stay open.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    /// `None` once closed. There may be other handles of the same socket.
    socket: Option<TcpListener>,
    shared: Arc<Shared>,
    stop: Waker,
    threads: Threads,
}

#[derive(Debug, Default)]
struct Shared {
    closed: AtomicBool,
    handshakes: Arc<HandshakeLimit>,
}

impl Listener {
    /// Starts to accept. `admit` gets each authenticated connection on a thread of its own (with 256 KiB of stack), or the
    /// reason why a peer was refused: one that sent a hello on such a thread, too, one that is not allowed on the thread that
    /// accepts. It may block for a connection, and must not for a reason.
    ///
    /// Errors: no thread or descriptor is left.
    pub fn open(
        socket: TcpListener,
        credentials: impl Into<Credentials>,
        admit: impl Fn(Result<Channel, Error>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::open_to(None, socket, credentials, admit)
    }

    /// As [`Listener::open`], for these peers only: connections of all others are closed at once, and reported to `admit`.
    ///
    /// Errors: no thread or descriptor is left.
    pub fn open_to(
        peers: Option<Peers>,
        socket: TcpListener,
        credentials: impl Into<Credentials>,
        admit: impl Fn(Result<Channel, Error>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::authenticating(peers, socket, credentials.into(), move |shared, authenticated| {
            let channel = authenticated.map(|(channel, _)| channel);
            if !shared.closed.load(Ordering::Acquire) {
                admit(channel);
            }
        })
    }

    /// Starts to accept for a server of another protocol over TLS, which authenticates by itself. `serve`
    /// gets each connection on which a whole TLS hello has come, which is unread; reads and writes block,
    /// and there is no greeting. It must not block: it runs on the one thread that accepts.
    ///
    /// The server drops the [`Handshake`] when the peer has authenticated or is refused, and has to set a
    /// deadline for that. Until then the connection counts as a handshake, of which at most 128 are open: for
    /// one more, the oldest is shut down.
    ///
    /// Errors: no thread or descriptor is left.
    pub fn before_tls(
        socket: TcpListener,
        serve: impl Fn(TcpStream, Handshake) + Send + 'static,
    ) -> io::Result<Self> {
        Self::start(None, socket, Opening::Tls, move |shared, accepted| {
            // All peers are allowed.
            if let Accepted::Greeted(stream) = accepted {
                let handshake = shared.handshakes.start(&stream)?;
                serve(stream, handshake);
            }
            Ok(())
        })
    }

    /// Starts to accept from these peers, or from all, for a listener that is done with each connection when `answer` returns.
    /// `answer` gets each authenticated connection on its own thread (with 256 KiB of stack), and
    /// may block. Until it calls [`Handshake::served`] the connection counts as a handshake: those that have authenticated and ask for
    /// nothing cost as much. As long as it keeps the [`Handshake`], [`Listener::close`] shuts the connection
    /// down and waits for it. Errors are logged; `refused` gets those of peers that have not authenticated, and must not block.
    ///
    /// Errors: no thread or descriptor is left.
    pub fn answering<E: Display>(
        peers: Option<Peers>,
        socket: TcpListener,
        credentials: impl Into<Credentials>,
        answer: impl Fn(Channel, Handshake) -> Result<(), E> + Send + Sync + 'static,
        refused: impl Fn(&Error) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let log = |error: &dyn Display| tracing::debug!(target: "rdmc::session", %error, "refused a connection");
        Self::authenticating(peers, socket, credentials.into(), move |_, authenticated| {
            match authenticated {
                Ok((channel, handshake)) => {
                    let _ = answer(channel, handshake).inspect_err(|error| log(error));
                }
                Err(error) => {
                    log(&error);
                    refused(&error);
                }
            }
        })
    }

    /// Each connection is authenticated on a thread of its own.
    fn authenticating<S>(
        peers: Option<Peers>,
        socket: TcpListener,
        credentials: Credentials,
        serve: S,
    ) -> io::Result<Self>
    where
        S: Fn(&Shared, Result<(Channel, Handshake), Error>) + Send + Sync + 'static,
    {
        let serve = Arc::new((credentials, serve));
        Self::start(peers, socket, Opening::Greeting, move |shared, accepted| {
            let stream = match accepted {
                Accepted::Greeted(stream) => stream,
                Accepted::NotAllowed(address) => {
                    let cause = "its address is not one of the allowed peers".to_owned();
                    (serve.1)(shared, Err(peer_error(address, cause)));
                    return Ok(());
                }
            };
            let handshake = shared.handshakes.start(&stream)?;
            let (shared, serve) = (Arc::clone(shared), Arc::clone(&serve));
            let authenticate = move || {
                let (credentials, serve) = &*serve;
                let deadline = Deadline::after(AUTHENTICATION_TIMEOUT);
                let channel = Channel::accept_greeted(stream, || credentials.listener(), deadline);
                serve(&shared, channel.map(|channel| (channel, handshake)));
            };
            let thread = thread::Builder::new().name("rdmc-handshake".into());
            thread.stack_size(STACK_BYTES).spawn(authenticate).map(drop)
        })
    }

    /// `serve` gets each connection whose peer has sent a hello or is not allowed, on the thread that accepts.
    fn start<S>(
        peers: Option<Peers>,
        socket: TcpListener,
        opening: Opening,
        serve: S,
    ) -> io::Result<Self>
    where
        S: Fn(&Arc<Shared>, Accepted) -> io::Result<()> + Send + 'static,
    {
        let address = socket.local_addr()?;
        let shared = Arc::<Shared>::default();
        let pending = PendingConnections::of(socket.try_clone()?, opening, peers)?;
        let stop = pending.waker()?;
        let accepting = Arc::clone(&shared);
        let threads = Threads::default();
        let what = format!("the listener at {address}");
        threads.spawn("rdmc-accept", what, move || accept(pending, &accepting, &serve))?;
        Ok(Self { address, socket: Some(socket), shared, stop, threads })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, shuts down connections that are in their handshake or whose [`Handshake`]
    /// is kept, and waits for them. Returns descriptions of those that have not ended by the
    /// deadline; a second call returns none.
    pub fn close(&mut self, deadline: Deadline) -> Vec<String> {
        if self.shared.closed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut late = self.stop(deadline);
        // Their reads and writes fail at once; the bound is for an overloaded machine.
        let timeout = deadline.left().min(AUTHENTICATION_TIMEOUT);
        if !self.shared.handshakes.close(timeout) {
            late.push(format!("a handshake with a peer that connected to {}", self.address));
        }
        late
    }

    fn stop(&mut self, deadline: Deadline) -> Vec<String> {
        self.shared.closed.store(true, Ordering::Release);
        // The thread checks `closed` after each wake-up and before each wait.
        let _ = self.stop.wake();
        let late = self.threads.join(deadline);
        self.socket = None;
        late
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop(Deadline::after(AUTHENTICATION_TIMEOUT));
        self.shared.handshakes.close(Duration::ZERO);
    }
}

fn accept<S>(mut pending: PendingConnections, shared: &Arc<Shared>, serve: &S)
where
    S: Fn(&Arc<Shared>, Accepted) -> io::Result<()>,
{
    loop {
        let accepted = pending.next();
        if shared.closed.load(Ordering::Acquire) {
            return;
        }
        // No descriptor or thread is left: the connection is closed, and the peer may retry.
        if accepted.and_then(|accepted| serve(shared, accepted)).is_err() {
            thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, time::Instant};

    use super::*;
    use crate::secret::Secret;

    const PATIENCE: Duration = Duration::from_secs(50);

    fn secret() -> Secret {
        Secret::from_bytes([3; 32])
    }

    fn bind() -> (TcpListener, SocketAddr) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    #[test]
    fn closing_ends_connections_that_are_being_answered() {
        let (socket, address) = bind();
        let (answering, answered) = channel();
        let answer = move |mut channel: Channel, _handshake: Handshake| {
            answering.send(()).unwrap();
            channel.receive::<u8>(Deadline::after(PATIENCE)).map(drop)
        };
        let mut listener = Listener::answering(None, socket, secret(), answer, |_| ()).unwrap();
        let _peer = Channel::connect(address, &secret(), Deadline::after(PATIENCE)).unwrap();
        answered.recv_timeout(PATIENCE).unwrap();
        let started = Instant::now();
        assert!(listener.close(Deadline::after(PATIENCE)).is_empty());
        assert!(started.elapsed() < PATIENCE, "it waited for the receive instead of ending it");
        assert!(TcpStream::connect(address).is_err(), "the socket is still listening");
        assert!(listener.close(Deadline::after(PATIENCE)).is_empty());
    }

    #[test]
    fn peers_that_are_not_allowed_get_no_greeting() {
        let (socket, address) = bind();
        let peers = Some("10.0.0.0/8".parse().unwrap());
        let (telling, told) = channel();
        let admit = move |admitted: Result<Channel, Error>| telling.send(admitted).unwrap();
        let _listener = Listener::open_to(peers, socket, secret(), admit).unwrap();
        let mut caller = TcpStream::connect(address).unwrap();
        caller.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(io::Read::read(&mut caller, &mut [0]), Ok(0) | Err(_)));
        let refused = told.recv_timeout(PATIENCE).unwrap().unwrap_err().to_string();
        let own = caller.local_addr().unwrap();
        assert_eq!(refused, format!("{own}: its address is not one of the allowed peers"));
        let (socket, address) = bind();
        let peers = Some("127.0.0.1".parse().unwrap());
        let _listener = Listener::open_to(peers, socket, secret(), drop).unwrap();
        Channel::connect(address, &secret(), Deadline::after(PATIENCE)).unwrap();
    }

    #[test]
    fn another_handle_of_the_socket_goes_on_listening() {
        let (socket, address) = bind();
        let other = socket.try_clone().unwrap();
        drop(Listener::open(socket, secret(), drop).unwrap());
        let _caller = TcpStream::connect(address).unwrap();
        other.set_nonblocking(false).unwrap();
        other.accept().unwrap();
    }
}
