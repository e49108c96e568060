//! How the processes of a link meet: what bootstrap passes from one to the other, and the connection made of it.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
        bind, connect, listen, recv, send, socket_with,
    },
    process::geteuid,
};
use transport::peer_credentials;

use crate::{error::ShmError, segment::Segment};

/// The length of an offer.
pub const OFFER_BYTES: usize = 1 + 2 * SECRET_BYTES;

const SECRET_BYTES: usize = 16;
/// Of offers, and of what the ends say to each other.
const VERSION: u8 = 1;
/// How many connections may wait; others are refused. Any user of the machine can connect, but has to know the name, which
/// the system shows to all.
const BACKLOG: i32 = 8;

/// This end's part of a new link: a socket at which it waits for one peer. Send [`Offer::bytes`] to the peer over an
/// authenticated channel, and call [`Offer::accept`]; the peer calls [`ShmLink::connect`].
pub struct Offer {
    listener: OwnedFd,
    /// A copy of the listener, closed before a peer is accepted: its descriptor is free then, even if there is no other.
    spare: OwnedFd,
    own: Segment,
    bytes: [u8; OFFER_BYTES],
}

/// A connection to a process of this user. Made into an endpoint by [`transport::Transport::open`].
pub struct ShmLink {
    socket: OwnedFd,
    own: Segment,
}

impl Offer {
    /// Errors: the system's; it has no memory or file descriptors left. To accept a peer and to open the link no more of them are
    /// needed.
    pub fn make() -> Result<Self, ShmError> {
        let mut bytes = [0; OFFER_BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|error| ShmError::at("making random numbers")(io::Error::other(error)))?;
        bytes[0] = VERSION;
        let listener = unix_socket()?;
        let step = "listening at a Unix socket";
        bind(&listener, &address(&bytes)?).map_err(ShmError::at(step))?;
        listen(&listener, BACKLOG).map_err(ShmError::at(step))?;
        let spare = listener.try_clone().map_err(ShmError::at(step))?;
        Ok(Self { listener, spare, own: Segment::usual()?, bytes })
    }

    /// Returns the bytes for the peer. Both ends must keep them secret.
    pub fn bytes(&self) -> &[u8; OFFER_BYTES] {
        &self.bytes
    }

    /// Waits up to `timeout` until the peer has connected. Others that connect are rejected.
    ///
    /// Errors: [`ShmError::TimedOut`]; the system's.
    pub fn accept(self, timeout: Duration) -> Result<ShmLink, ShmError> {
        let until = Deadline::new(timeout, "waiting for a peer's process");
        let Self { listener, spare, own, bytes } = self;
        drop(spare);
        loop {
            until.wait_for(listener.as_fd())?;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&listener, flags) {
                Ok(socket) => socket,
                // It has gone.
                Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => continue,
                Err(error) => return Err(ShmError::at("accepting a peer's process")(error)),
            };
            if let Err(error) = check(&socket, &bytes, &until) {
                tracing::debug!(%error, "a process was rejected");
                continue;
            }
            return Ok(ShmLink { socket, own });
        }
    }
}

impl ShmLink {
    /// Connects to the process that has made the offer. Does not wait for it.
    ///
    /// Errors: [`ShmError::NotAnOffer`]; nobody listens there, as on another machine or in another network namespace;
    /// it is of another user; the system has no memory or file descriptors left.
    pub fn connect(offer: &[u8]) -> Result<Self, ShmError> {
        let offer: &[u8; OFFER_BYTES] = offer.try_into().map_err(|_| ShmError::NotAnOffer)?;
        if offer[0] != VERSION {
            return Err(ShmError::NotAnOffer);
        }
        let (socket, own) = (unix_socket()?, Segment::usual()?);
        connect(&socket, &address(offer)?)
            .map_err(ShmError::at("connecting to the peer's process"))?;
        check_user(&socket)?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        send(&socket, secret(offer), flags).map_err(ShmError::at("greeting the peer's process"))?;
        Ok(Self { socket, own })
    }

    /// Returns whether the other end has not closed the link. Does not block.
    pub fn is_open(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // What cannot be reported now is reported by the transport.
        !matches!(poll(&mut socket, Some(&at_once)), Ok(1..))
    }

    pub(crate) fn into_parts(self) -> (OwnedFd, Segment) {
        (self.socket, self.own)
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Offer(..)")
    }
}

impl fmt::Debug for ShmLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShmLink(..)")
    }
}

/// The end of a wait, and what for.
pub(crate) struct Deadline {
    until: Option<Instant>,
    what: &'static str,
}

impl Deadline {
    pub(crate) fn new(timeout: Duration, what: &'static str) -> Self {
        Self { until: Instant::now().checked_add(timeout), what }
    }

    /// Waits until a socket can be read. Errors: [`ShmError::TimedOut`]; the system's.
    pub(crate) fn wait_for(&self, socket: BorrowedFd<'_>) -> Result<(), ShmError> {
        loop {
            let rest = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = rest.and_then(|rest| Timespec::try_from(rest).ok());
            match poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => return Err(ShmError::TimedOut(self.what)),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(ShmError::at(self.what)(error)),
            }
        }
    }
}

fn unix_socket() -> Result<OwnedFd, ShmError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(ShmError::at("making a Unix socket"))
}

/// Returns the name of an offer's socket.
fn address(offer: &[u8; OFFER_BYTES]) -> Result<SocketAddrUnix, ShmError> {
    let name: String = offer[1..=SECRET_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("rdmc-shm {name}").as_bytes())
        .map_err(ShmError::at("naming a Unix socket"))
}

fn secret(offer: &[u8; OFFER_BYTES]) -> &[u8] {
    &offer[1 + SECRET_BYTES..]
}

/// Checks who has connected. Errors: it is another user's process, or does not know the secret.
fn check(socket: &OwnedFd, offer: &[u8; OFFER_BYTES], until: &Deadline) -> Result<(), ShmError> {
    check_user(socket)?;
    until.wait_for(socket.as_fd())?;
    let mut said = [0; SECRET_BYTES + 1];
    let flags = RecvFlags::DONTWAIT;
    let (count, _) = recv(socket, &mut said, flags).map_err(ShmError::at("a secret"))?;
    // All of it is compared, whatever differs.
    let differing = said.iter().zip(secret(offer)).fold(0, |all, (a, b)| all | (a ^ b));
    if count == SECRET_BYTES && differing == 0 { Ok(()) } else { Err(ShmError::NotAnOffer) }
}

/// Checks that the process at the other end was of this process's user when it has connected or begun to listen.
fn check_user(socket: &OwnedFd) -> Result<(), ShmError> {
    let peer =
        peer_credentials(socket.as_fd()).map_err(ShmError::at("asking whose a process is"))?;
    if peer.uid == geteuid().as_raw() { Ok(()) } else { Err(ShmError::OtherUser(peer.uid)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn the_peer_that_knows_the_offer_is_accepted() {
        let offer = Offer::make().unwrap();
        let _other = Offer::make().unwrap();
        let (name, bytes) = (address(&offer.bytes).unwrap(), offer.bytes);
        // It connects without the secret, and one hangs up.
        let strangers: Vec<OwnedFd> = (0..3).map(|_| unix_socket().unwrap()).collect();
        strangers.iter().for_each(|stranger| connect(stranger, &name).unwrap());
        send(&strangers[0], &[0; SECRET_BYTES], SendFlags::NOSIGNAL).unwrap();
        send(&strangers[1], &bytes[16..], SendFlags::NOSIGNAL).unwrap();
        let mut strangers = strangers;
        strangers.pop();
        let one = ShmLink::connect(&bytes).unwrap();
        let other = offer.accept(PATIENCE).unwrap();
        assert!(one.is_open() && other.is_open());
        drop(one);
        assert!(!other.is_open());
        assert!(ShmLink::connect(&bytes).is_err(), "nobody listens any more");
    }

    #[test]
    fn waits_end() {
        let offer = Offer::make().unwrap();
        let silent = unix_socket().unwrap();
        connect(&silent, &address(&offer.bytes).unwrap()).unwrap();
        let error = offer.accept(Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, ShmError::TimedOut(_)), "{error}");
    }

    #[test]
    fn other_bytes_are_no_offer() {
        let good = *Offer::make().unwrap().bytes();
        let mut newer = good;
        newer[0] = 2;
        for bytes in [&good[1..], &newer, &[]] {
            let error = ShmLink::connect(bytes).unwrap_err();
            assert!(matches!(error, ShmError::NotAnOffer), "{error}");
        }
        assert!(matches!(ShmLink::connect(&good), Err(ShmError::System { .. })));
    }
}
