//! An authenticated, encrypted connection for small typed messages.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use rustls::Connection;
use serde::{Serialize, de::DeserializeOwned};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use zeroize::Zeroizing;

use crate::{
    credentials::Credentials,
    deadline::Deadline,
    error::{Error, PeerErrorKind},
    interruption::Interruption,
    line::{Line, lost, peer_error, peer_error_of},
    refusal,
    secret::Secret,
    tls,
    version::PROTOCOL_VERSION,
};

/// The longest message in bytes: a longer announced length is refused before memory is allocated.
pub const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// How many bytes of a message are encrypted at a time.
const PART_BYTES: usize = 16 << 10;

const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Attempts to connect to a listener that closes the connection.
const TRIES_MAX: u32 = 5;

/// A TCP connection that is authenticated in both directions and encrypted: TLS 1.3, in which both
/// ends are identified by the key pair that follows from a secret, or by their certificates.
///
/// Before the handshake each end sends a greeting in clear, with the version of the protocol. One
/// message is a length and a value in the postcard format.
#[derive(Debug)]
pub struct Channel {
    /// Shared by both handles.
    stream: Arc<TcpStream>,
    peer: SocketAddr,
    /// Shared by both handles; locked for computation only, never while waiting.
    tls: Arc<Mutex<Connection>>,
    /// The TLS record being read. Records are read one by one, so that no byte behind the last
    /// message is taken from the stream.
    record: Vec<u8>,
    connected_here: bool,
}

/// For options of the socket.
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Keys that the two ends share, for the data that follows on a connection.
pub struct SessionKeys {
    /// Protects what this end sends.
    pub sending: Zeroizing<[u8; 32]>,
    /// Protects what the other end sends.
    pub receiving: Zeroizing<[u8; 32]>,
}

impl Channel {
    /// Connects to a listener and authenticates.
    ///
    /// Errors: the address cannot be reached, the peer does not use rdmc's protocol, has another
    /// version or another secret, or the deadline has passed.
    pub fn connect(
        address: SocketAddr,
        secret: &Secret,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let never = Interruption::default();
        Self::dial(address, || tls::connector(secret, address.ip()), deadline, &never)
    }

    /// Connects to a listener of `host`, which was resolved to this address, and authenticates.
    /// With certificates, the listener's must be for `host`: the name or IP address that the user
    /// has given. The listener may refuse this end's certificate after this call has returned: the
    /// error of the first receive then has the reason.
    ///
    /// Errors: as [`Channel::connect`], with other credentials in place of another secret.
    pub fn connect_to(
        host: &str,
        address: SocketAddr,
        credentials: &Credentials,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let never = Interruption::default();
        Self::dial(address, || credentials.connector(host, address.ip()), deadline, &never)
    }

    fn dial(
        address: SocketAddr,
        tls: impl FnOnce() -> Result<Connection, rustls::Error>,
        deadline: Deadline,
        interruption: &Interruption,
    ) -> Result<Self, Error> {
        let left = deadline.left();
        if left.is_zero() {
            return Err(deadline.missed(format!("connecting to {address}")));
        }
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP));
        let socket = socket
            .map_err(|error| Error::System { what: format!("connecting to {address}"), error })?;
        let stream = Arc::new(TcpStream::from(socket));
        if !interruption.watch(&stream) {
            return Err(interrupted(address));
        }
        SockRef::from(&*stream).connect_timeout(&address.into(), left).map_err(|error| {
            let cause = format!("cannot connect: {error}");
            peer_error_of(PeerErrorKind::Unreachable, address, cause)
        })?;
        Line { stream: &stream, peer: address }.greet(deadline)?;
        let tls = tls().map_err(refused_by(address))?;
        Self::new(stream, address, tls).authenticate(Vec::new(), deadline)
    }

    /// As [`Channel::connect`], but retries while nothing listens at the address, and a few times
    /// if a listener at its limit closes the connection. Another thread can interrupt it, and also what follows on
    /// the channel until the next attempt with the same interruption.
    pub fn connect_patiently(
        address: SocketAddr,
        secret: &Secret,
        deadline: Deadline,
        interruption: &Interruption,
    ) -> Result<Self, Error> {
        let mut times_closed = 0;
        loop {
            let tls = || tls::connector(secret, address.ip());
            let error = match Self::dial(address, tls, deadline, interruption) {
                Err(error) => error,
                connected => return connected,
            };
            if interruption.is_interrupted() {
                return Err(interrupted(address));
            }
            let may_succeed = match &error {
                Error::Peer { kind: PeerErrorKind::Unreachable, .. } => true,
                // Perhaps by a listener at its limit, for a newer connection.
                Error::Peer { kind: PeerErrorKind::Closed | PeerErrorKind::HungUp, .. } => {
                    times_closed += 1;
                    times_closed < TRIES_MAX
                }
                _ => false,
            };
            if !may_succeed || deadline.left() <= RETRY_PAUSE {
                return Err(error);
            }
            thread::sleep(RETRY_PAUSE);
        }
    }

    /// Authenticates a connection that a listener has accepted. Until it is authenticated, the peer
    /// can make this process hold some 100 KiB, until the deadline.
    ///
    /// Errors: as [`Channel::connect`].
    pub fn accept(stream: TcpStream, secret: &Secret, deadline: Deadline) -> Result<Self, Error> {
        Self::admit(stream, || tls::listener(secret), deadline)
    }

    /// As [`Channel::accept`], with a secret or certificates.
    pub fn accept_from(
        stream: TcpStream,
        credentials: &Credentials,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        Self::admit(stream, || credentials.listener(), deadline)
    }

    fn admit(
        stream: TcpStream,
        tls: impl FnOnce() -> Result<Connection, rustls::Error>,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let address = stream
            .peer_addr()
            .map_err(|error| Error::System { what: "accepting a connection".into(), error })?;
        Line { stream: &stream, peer: address }.write_greeting(deadline)?;
        Self::accept_greeted(stream, tls, deadline)
    }

    /// As [`Channel::accept`], for a connection on which the greeting was sent while it was
    /// pending.
    pub(crate) fn accept_greeted(
        stream: TcpStream,
        tls: impl FnOnce() -> Result<Connection, rustls::Error>,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let address = stream
            .peer_addr()
            .map_err(|error| Error::System { what: "accepting a connection".into(), error })?;
        // No key is derived for a peer that sends no hello.
        let (line, mut hello) = (Line { stream: &stream, peer: address }, Vec::new());
        line.read_greeting(deadline)?;
        line.read_record(&mut hello, deadline, "handshake").map_err(ended_in_handshake)?;
        let tls = tls().map_err(refused_by(address))?;
        Self::new(Arc::new(stream), address, tls).authenticate(hello, deadline)
    }

    fn new(stream: Arc<TcpStream>, peer: SocketAddr, tls: Connection) -> Self {
        let connected_here = matches!(tls, Connection::Client(_));
        let tls = Arc::new(Mutex::new(tls));
        Self { stream, peer, tls, record: Vec::new(), connected_here }
    }

    /// Completes the handshake, given what the peer has sent so far.
    fn authenticate(mut self, sent: Vec<u8>, deadline: Deadline) -> Result<Self, Error> {
        if !sent.is_empty() {
            self.take(&sent, deadline, "handshake").map_err(ended_in_handshake)?;
        }
        loop {
            self.flush(deadline).map_err(ended_in_handshake)?;
            if !self.tls().is_handshaking() {
                return Ok(self);
            }
            self.take_record(deadline, "handshake").map_err(ended_in_handshake)?;
        }
    }

    /// Returns the peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the names of the peer's certificate (subjectAltName), which was verified; none where a secret authenticates.
    pub fn peer_names(&self) -> Vec<String> {
        let tls = self.tls();
        tls.peer_certificates()
            .and_then(|chain| chain.first())
            .map(crate::certificates::alternative_names)
            .unwrap_or_default()
    }

    /// Returns what the peer has authenticated by, encoded: its certificate or, where a secret authenticates, the public key that
    /// follows from it.
    pub fn peer_identity(&self) -> Vec<u8> {
        let tls = self.tls();
        let shown = tls.peer_certificates().and_then(|chain| chain.first());
        shown.map(|shown| shown.to_vec()).unwrap_or_default()
    }

    /// Returns whether the other end has not closed the connection, or has sent something before that is unread. Does not
    /// block; no other thread may use the channel meanwhile.
    pub fn is_open(&self) -> bool {
        let peeked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let restored = self.stream.set_nonblocking(false);
        restored.is_ok()
            && match peeked {
                Ok(count) => count > 0,
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            }
    }

    /// Returns this end's address.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Sends one message. Errors: the connection is lost, the deadline has passed, or the message
    /// is too long.
    pub fn send<M: Serialize>(&mut self, message: &M, deadline: Deadline) -> Result<(), Error> {
        self.send_by(message, &|| deadline)
    }

    /// As [`Channel::send`], for a long message or a slow peer: `timeout` applies to each 16 KiB
    /// of it.
    pub fn send_steadily<M: Serialize>(
        &mut self,
        message: &M,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.send_by(message, &|| Deadline::after(timeout))
    }

    fn send_by<M: Serialize>(
        &mut self,
        message: &M,
        deadline: &dyn Fn() -> Deadline,
    ) -> Result<(), Error> {
        let body = postcard::to_stdvec(message)
            .map_err(|error| peer_error(self.peer, format!("cannot encode: {error}")))?;
        if body.len() > MESSAGE_BYTES_MAX {
            let cause = format!("a message of {} bytes is too long to send", body.len());
            return Err(peer_error(self.peer, cause));
        }
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend(body);
        self.send_bytes(&frame, deadline)
    }

    fn send_bytes(&mut self, bytes: &[u8], deadline: &dyn Fn() -> Deadline) -> Result<(), Error> {
        for part in bytes.chunks(PART_BYTES) {
            let taken = self.tls().writer().write_all(part);
            taken.map_err(|error| lost(self.peer, &error))?;
            self.flush(deadline())?;
        }
        Ok(())
    }

    /// Receives one message. Errors: the connection is lost, the deadline has passed, or it is no
    /// message of this type.
    pub fn receive<M: DeserializeOwned>(&mut self, deadline: Deadline) -> Result<M, Error> {
        Ok(self.receive_by(&|| deadline)?.0)
    }

    /// As [`Channel::receive`], for a long message or a slow peer: `timeout` applies to each part
    /// of it, of 16 KiB at most.
    pub fn receive_steadily<M: DeserializeOwned>(&mut self, timeout: Duration) -> Result<M, Error> {
        Ok(self.receive_counted(timeout)?.0)
    }

    /// As [`Channel::receive_steadily`]; also returns how many bytes the message had.
    pub fn receive_counted<M: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> Result<(M, usize), Error> {
        self.receive_by(&|| Deadline::after(timeout))
    }

    fn receive_by<M: DeserializeOwned>(
        &mut self,
        deadline: &dyn Fn() -> Deadline,
    ) -> Result<(M, usize), Error> {
        let mut length = [0; 4];
        self.receive_bytes(&mut length, deadline)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(peer_error(self.peer, format!("announces a message of {length} bytes")));
        }
        // Grows with the bytes received, not with the announced length.
        let mut body = Vec::new();
        while body.len() < length {
            let start = body.len();
            body.resize(length.min(start + 64 * 1024), 0);
            self.receive_bytes(&mut body[start..], deadline)?;
        }
        let message = postcard::from_bytes(&body);
        message
            .map(|message| (message, length))
            .map_err(|error| peer_error(self.peer, format!("sent a malformed message: {error}")))
    }

    fn receive_bytes(
        &mut self,
        mut into: &mut [u8],
        deadline: &dyn Fn() -> Deadline,
    ) -> Result<(), Error> {
        while !into.is_empty() {
            let read = self.tls().reader().read(into);
            match read {
                Ok(count) if count > 0 => into = &mut into[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.take_record(deadline(), "message")?;
                }
                _ => {
                    let cause = "closed the connection instead of sending its message";
                    return Err(peer_error_of(PeerErrorKind::Closed, self.peer, cause.into()));
                }
            }
        }
        Ok(())
    }

    /// As [`Channel::into_stream`], also with keys for the data that follows on the connection, which both ends have to protect by
    /// themselves. Both have to name the same purpose, and with another one, or another version of the protocol, the keys are others.
    pub fn into_stream_with_keys(self, purpose: &str) -> Result<(TcpStream, SessionKeys), Error> {
        let to_listener = self.export("from the connector to the listener", purpose)?;
        let to_connector = self.export("from the listener to the connector", purpose)?;
        let (sending, receiving) = match self.connected_here {
            true => (to_listener, to_connector),
            false => (to_connector, to_listener),
        };
        Ok((self.into_stream()?, SessionKeys { sending, receiving }))
    }

    /// Returns the connection itself, still blocking, with no received bytes left unread.
    ///
    /// Errors: the peer has sent more than it should by now.
    pub fn into_stream(self) -> Result<TcpStream, Error> {
        let unread = self.tls().reader().read(&mut [0]);
        if unread.is_ok() {
            return Err(peer_error(self.peer, "sent more than was requested".into()));
        }
        let _ = self.stream.set_read_timeout(None);
        let _ = self.stream.set_write_timeout(None);
        let own = Arc::try_unwrap(self.stream).or_else(|shared| shared.try_clone());
        own.map_err(|error| lost(self.peer, &error))
    }

    /// Derives a key from this connection's handshake (RFC 8446, section 7.5).
    fn export(&self, direction: &str, purpose: &str) -> Result<Zeroizing<[u8; 32]>, Error> {
        let context = format!("version {PROTOCOL_VERSION}, {purpose}, {direction}");
        let mut key = Zeroizing::new([0; 32]);
        self.tls()
            .export_keying_material(&mut key[..], b"EXPORTER-rdmc-stream", Some(context.as_bytes()))
            .map_err(refused_by(self.peer))?;
        Ok(key)
    }

    /// Returns a second handle of the same connection and descriptor, for another thread: one may
    /// send while the other receives.
    pub fn second(&self) -> Self {
        Self {
            stream: Arc::clone(&self.stream),
            peer: self.peer,
            tls: Arc::clone(&self.tls),
            record: Vec::new(),
            connected_here: self.connected_here,
        }
    }

    /// Shuts the connection down for both handles; a pending receive returns with an error.
    pub fn shutdown(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    fn tls(&self) -> MutexGuard<'_, Connection> {
        self.tls.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Writes the bytes that TLS has to send.
    fn flush(&mut self, deadline: Deadline) -> Result<(), Error> {
        let mut bytes = Vec::new();
        {
            let mut tls = self.tls();
            while tls.wants_write() {
                // Writing to a vector cannot fail.
                let _ = tls.write_tls(&mut bytes);
            }
        }
        self.line().write(&bytes, deadline)
    }

    fn line(&self) -> Line<'_> {
        Line { stream: &self.stream, peer: self.peer }
    }

    /// Waits for the next TLS record of the peer and decrypts it; `what` names its expected
    /// contents in errors.
    fn take_record(&mut self, deadline: Deadline, what: &str) -> Result<(), Error> {
        let mut record = std::mem::take(&mut self.record);
        self.line().read_record(&mut record, deadline, what)?;
        let taken = self.take(&record, deadline, what);
        self.record = record;
        taken
    }

    fn take(&mut self, record: &[u8], deadline: Deadline, what: &str) -> Result<(), Error> {
        self.process(record).map_err(|error| {
            // Sends the alert for the peer, if TLS has one.
            let _ = self.flush(deadline);
            peer_error(self.peer, refusal::explain(&error, what))
        })
    }

    fn process(&self, mut record: &[u8]) -> Result<(), rustls::Error> {
        let mut tls = self.tls();
        while !record.is_empty() {
            // `read_tls` takes nothing while decrypted bytes are unread; here there are none.
            let taken = tls.read_tls(&mut record).unwrap_or(0);
            tls.process_new_packets()?;
            if taken == 0 {
                return Err(rustls::Error::General("a record that does not fit".into()));
            }
        }
        Ok(())
    }
}

fn interrupted(address: SocketAddr) -> Error {
    peer_error(address, "connecting was cancelled".into())
}

/// Replaces the cause of a connection that ended during its handshake by the probable reason.
fn ended_in_handshake(error: Error) -> Error {
    match error {
        Error::Peer { address, kind: PeerErrorKind::Closed, .. } => {
            let cause =
                format!("{}: does it have another secret or certificate?", refusal::HUNG_UP);
            peer_error_of(PeerErrorKind::HungUp, address, cause)
        }
        other => other,
    }
}

/// Converts an error of TLS settings or of exporting keys; neither is expected.
fn refused_by(address: SocketAddr) -> impl Fn(rustls::Error) -> Error {
    move |error| peer_error(address, format!("cannot authenticate: {error}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (secret, deadline) =
            (Secret::from_bytes([1; 32]), Deadline::after(Duration::from_secs(20)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let connected = scope.spawn(|| Channel::connect(address, &secret, deadline).unwrap());
            let accepted = Channel::accept(listener.accept().unwrap().0, &secret, deadline);
            (accepted.unwrap(), connected.join().unwrap())
        })
    }

    #[test]
    fn a_message_announced_too_long_is_refused() {
        let deadline = Deadline::after(Duration::from_secs(20));
        let (mut one, mut other) = pair();
        other.send_bytes(&(MESSAGE_BYTES_MAX as u32 + 1).to_le_bytes(), &|| deadline).unwrap();
        let error = one.receive::<Vec<u8>>(deadline).unwrap_err();
        assert!(error.to_string().contains("announces a message of"), "{error}");
    }

    #[test]
    fn a_long_message_may_take_longer_than_a_peer_may_be_silent() {
        const PATIENCE: Duration = Duration::from_secs(2);
        let (mut one, mut other) = pair();
        let body = postcard::to_stdvec(&vec![7_u8; 100]).unwrap();
        let frame = [&(body.len() as u32).to_le_bytes()[..], &body].concat();
        thread::scope(|scope| {
            scope.spawn(|| {
                for part in frame.chunks(frame.len().div_ceil(6)) {
                    other.send_bytes(part, &|| Deadline::after(PATIENCE)).unwrap();
                    thread::sleep(PATIENCE / 4);
                }
            });
            let started = std::time::Instant::now();
            assert_eq!(one.receive_steadily::<Vec<u8>>(PATIENCE).unwrap(), [7; 100]);
            assert!(started.elapsed() > PATIENCE);
        });
        assert!(matches!(one.receive_steadily::<u8>(PATIENCE / 20), Err(Error::Timeout { .. })));
    }

    #[test]
    fn both_ends_have_the_same_keys_for_what_follows() {
        let deadline = Deadline::after(Duration::from_secs(20));
        let (mut one, mut other) = pair();
        // The bytes behind the last message stay in the stream.
        other.send(&"last", deadline).unwrap();
        let (mut raw, keys) = other.into_stream_with_keys("stream 0").unwrap();
        raw.write_all(b"raw").unwrap();
        assert_eq!(one.receive::<String>(deadline).unwrap(), "last");
        let (mut stream, mirrored) = one.into_stream_with_keys("stream 0").unwrap();
        let mut bytes = [0; 3];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"raw");
        assert_eq!((&keys.sending, &keys.receiving), (&mirrored.receiving, &mirrored.sending));
        assert_ne!(keys.sending, keys.receiving);
        let (again, _) = pair();
        assert_ne!(again.into_stream_with_keys("stream 0").unwrap().1.sending, keys.receiving);
    }

    #[test]
    fn ends_with_other_purposes_have_other_keys() {
        let (one, other) = pair();
        let (_, keys) = one.into_stream_with_keys("stream 0").unwrap();
        let (_, others) = other.into_stream_with_keys("stream 1").unwrap();
        assert_ne!(keys.sending, others.receiving);
        assert_ne!(keys.receiving, others.sending);
    }

    #[test]
    fn bytes_after_the_last_message_are_an_error() {
        let deadline = Deadline::after(Duration::from_secs(20));
        let (mut one, mut other) = pair();
        other.send_bytes(&[1, 0, 0, 0, 7, 9], &|| deadline).unwrap();
        assert_eq!(one.receive::<u8>(deadline).unwrap(), 7);
        let error = one.into_stream().map(drop).unwrap_err();
        assert!(error.to_string().contains("sent more"), "{error}");
    }
}
