//! An authenticated connection for small typed messages.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};

use super::PROTOCOL_VERSION;
use crate::{Error, Secret};

/// The longest message in bytes: an announced length beyond it is refused before it is allocated.
pub const MESSAGE_BYTES_MAX: usize = 32 << 20;

const MAGIC: [u8; 4] = *b"RDMC";
const GREETING_BYTES: usize = 4 + 2 + 32;

/// A moment by which something must have happened, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl Deadline {
    /// This long from now.
    pub fn after(timeout: Duration) -> Self {
        Self { at: Instant::now() + timeout, timeout }
    }

    /// What is left; zero once it has passed.
    pub fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// The error of having missed it while doing `what`.
    pub fn missed(&self, what: impl Into<String>) -> Error {
        Error::Timeout { what: what.into(), timeout_ms: self.timeout.as_millis() as u64 }
    }
}

/// A TCP connection whose two ends have proved to each other that they know the same secret.
///
/// The proofs are keyed hashes over fresh random numbers of both sides, so neither the secret nor
/// anything that could be replayed crosses the wire. What follows is not encrypted. One message is
/// a length and a value in the postcard format.
#[derive(Debug)]
pub struct Channel {
    stream: TcpStream,
    peer: SocketAddr,
}

impl Channel {
    /// Connects to a listener and authenticates.
    ///
    /// Errors: unreachable, no rdmc, another version, another secret, deadline.
    pub fn connect(
        address: SocketAddr,
        secret: &Secret,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let left = deadline.left();
        if left.is_zero() {
            return Err(deadline.missed(format!("connecting to {address}")));
        }
        let stream = TcpStream::connect_timeout(&address, left)
            .map_err(|error| peer_error(address, format!("cannot connect: {error}")))?;
        Self::authenticate(stream, address, secret, deadline, ["connector", "listener"])
    }

    /// Authenticates a connection that a listener has accepted.
    ///
    /// Errors: as [`Channel::connect`].
    pub fn accept(stream: TcpStream, secret: &Secret, deadline: Deadline) -> Result<Self, Error> {
        let address = stream
            .peer_addr()
            .map_err(|error| Error::System { what: "accepting a connection".into(), error })?;
        Self::authenticate(stream, address, secret, deadline, ["listener", "connector"])
    }

    fn authenticate(
        stream: TcpStream,
        peer: SocketAddr,
        secret: &Secret,
        deadline: Deadline,
        [own_role, peer_role]: [&str; 2],
    ) -> Result<Self, Error> {
        let mut channel = Self { stream, peer };
        let _ = channel.stream.set_nodelay(true);
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce)
            .map_err(|error| peer_error(peer, format!("no random numbers: {error}")))?;
        let mut greeting = [0; GREETING_BYTES];
        greeting[..4].copy_from_slice(&MAGIC);
        greeting[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        greeting[6..].copy_from_slice(&nonce);
        channel.write(&greeting, deadline)?;

        let mut greeted = [0; GREETING_BYTES];
        channel.read(&mut greeted, deadline, "greeting")?;
        if greeted[..4] != MAGIC {
            return Err(peer_error(peer, "does not speak rdmc's protocol".into()));
        }
        let version = u16::from_le_bytes([greeted[4], greeted[5]]);
        if version != PROTOCOL_VERSION {
            let cause = format!(
                "speaks version {version} of the protocol, this is version {PROTOCOL_VERSION}; \
                 install the same rdmc on all hosts"
            );
            return Err(peer_error(peer, cause));
        }
        let mut peer_nonce = [0; 32];
        peer_nonce.copy_from_slice(&greeted[6..]);

        // Each proof covers its role and both nonces, so reflecting or replaying one is useless.
        let proof = secret.proof(own_role, [&nonce, &peer_nonce]);
        channel.write(proof.as_bytes(), deadline)?;
        let mut peer_proof = [0; 32];
        channel.read(&mut peer_proof, deadline, "proof of the secret").map_err(|error| {
            // A peer that finds our proof wrong hangs up instead of proving itself.
            match error {
                Error::Peer { address, cause } if cause.contains("closed the connection") => {
                    peer_error(address, "hung up during authentication: another secret?".into())
                }
                other => other,
            }
        })?;
        // blake3's comparison takes constant time.
        if secret.proof(peer_role, [&peer_nonce, &nonce]) != peer_proof {
            return Err(peer_error(peer, "does not know this session's secret".into()));
        }
        Ok(channel)
    }

    /// Where the peer is.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// This end's address.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Sends one message. Errors: connection lost, deadline, too long.
    pub fn send<M: Serialize>(&mut self, message: &M, deadline: Deadline) -> Result<(), Error> {
        let body = postcard::to_stdvec(message)
            .map_err(|error| peer_error(self.peer, format!("cannot encode: {error}")))?;
        if body.len() > MESSAGE_BYTES_MAX {
            let cause = format!("a message of {} bytes is too long to send", body.len());
            return Err(peer_error(self.peer, cause));
        }
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend(body);
        self.write(&frame, deadline)
    }

    /// Receives one message. Errors: connection lost, deadline, not a message of this type.
    pub fn receive<M: DeserializeOwned>(&mut self, deadline: Deadline) -> Result<M, Error> {
        let mut length = [0; 4];
        self.read(&mut length, deadline, "message")?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(peer_error(self.peer, format!("announces a message of {length} bytes")));
        }
        // Grows with what really arrives, not with what is announced.
        let mut body = Vec::new();
        while body.len() < length {
            let start = body.len();
            body.resize(length.min(start + 64 * 1024), 0);
            self.read(&mut body[start..], deadline, "message")?;
        }
        postcard::from_bytes(&body)
            .map_err(|error| peer_error(self.peer, format!("sent a malformed message: {error}")))
    }

    /// The connection itself, still blocking, with nothing unread by this side.
    pub fn into_stream(self) -> TcpStream {
        let _ = self.stream.set_read_timeout(None);
        let _ = self.stream.set_write_timeout(None);
        self.stream
    }

    /// A second handle of the same connection, for another thread: one may send while the other
    /// receives. Errors: the system is out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.try_clone()?, peer: self.peer })
    }

    /// Ends the connection for both handles; a pending receive returns with an error.
    pub fn shutdown(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    fn write(&mut self, mut bytes: &[u8], deadline: Deadline) -> Result<(), Error> {
        while !bytes.is_empty() {
            let left = self.time_left(deadline, "to take a message")?;
            let written =
                self.stream.set_write_timeout(Some(left)).and_then(|()| self.stream.write(bytes));
            match written {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => {
                    return Err(peer_error(self.peer, format!("the connection was lost: {error}")));
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, mut into: &mut [u8], deadline: Deadline, what: &str) -> Result<(), Error> {
        while !into.is_empty() {
            let left = self.time_left(deadline, &format!("for its {what}"))?;
            let read =
                self.stream.set_read_timeout(Some(left)).and_then(|()| self.stream.read(into));
            match read {
                Ok(0) => {
                    let cause = format!("closed the connection instead of sending its {what}");
                    return Err(peer_error(self.peer, cause));
                }
                Ok(count) => into = &mut into[count..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => {
                    return Err(peer_error(self.peer, format!("the connection was lost: {error}")));
                }
            }
        }
        Ok(())
    }

    fn time_left(&self, deadline: Deadline, what: &str) -> Result<Duration, Error> {
        let left = deadline.left();
        if left.is_zero() {
            return Err(deadline.missed(format!("waiting for {} {what}", self.peer)));
        }
        Ok(left)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn peer_error(address: SocketAddr, cause: String) -> Error {
    Error::Peer { address, cause }
}
