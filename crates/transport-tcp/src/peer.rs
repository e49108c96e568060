//! Which process of this machine is at the other end of a stream: it says so by a Unix socket
//! (docs/decisions/one-machine.md).

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use rustix::{
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
        socket_with,
    },
    process::{Pid, getegid, geteuid},
};
use socket2::{SockAddr, SockRef};
use transport::{PROOF_BYTES, Process, check_unprivileged, peer_credentials};

/// How many connections wait for a [`Peer`]; more are refused, from any process.
const BACKLOG: u16 = 8;

/// The process at the other end of a stream, as far as it is known.
#[derive(Default)]
pub(crate) enum Peer {
    #[default]
    Unknown,
    /// It has said which one it is. It connects to the listener if that is true.
    Named { process: Arc<Process>, listener: OwnedFd },
    /// It is this one.
    Known(Arc<Process>),
}

impl Peer {
    /// Takes the number of the process as the peer says, and returns what that has to place in its memory: drawn after the
    /// process was opened, so that bytes that are in a program anyway prove nothing.
    ///
    /// Errors: why its memory cannot be read.
    pub(crate) fn challenge(
        &mut self,
        pid: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<[u8; PROOF_BYTES], String> {
        check_unprivileged()?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no such process")?;
        match self {
            Self::Unknown => {
                let process = Process::open(pid).map_err(|error| format!("pidfd_open: {error}"))?;
                // After the process was opened: a peer that connects as `pid` is that process while it lives.
                let listener = listen_at(&Ends::of(socket)?.own_name())
                    .map_err(|error| format!("a Unix socket: {error}"))?;
                *self = Self::Named { process: Arc::new(process), listener };
            }
            Self::Named { process, .. } | Self::Known(process) if process.pid() == pid => {}
            _ => return Err(format!("it claims to be process {pid}, but was another one")),
        }
        let mut proof = [0; PROOF_BYTES];
        SystemRandom::new().fill(&mut proof).map_err(|_| "cannot get random numbers")?;
        Ok(proof)
    }

    /// Finds out whether the process is what the peer has said, over this stream. Errors: why not.
    pub(crate) fn identify(&mut self, socket: BorrowedFd<'_>) -> Result<Arc<Process>, String> {
        let process = match std::mem::take(self) {
            Self::Known(process) => process,
            Self::Named { process, listener } => {
                check_connected(&process, &listener)?;
                // A stream that was reset has lost its addresses, perhaps to a stream of the process that has
                // connected, although what was received before can still be read.
                Ends::of(socket)?;
                process
            }
            Self::Unknown => return Err("it has not said which process it is".into()),
        };
        *self = Self::Known(Arc::clone(&process));
        Ok(process)
    }
}

/// Lets the other end of this stream know, as only this process can, that it is this process's stream.
///
/// Errors: nobody there waits for it, or the system does not allow it.
pub(crate) fn identify_to_peer(socket: BorrowedFd<'_>) -> io::Result<()> {
    let name = Ends::of(socket).map_err(io::Error::other)?.peers_name();
    connect(unix_socket()?, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(())
}

/// A stream of this machine, as both of its ends see it.
struct Ends {
    local: SockAddr,
    peer: SockAddr,
    /// The name of the interface to which it is bound, as those with addresses of that link alone are. Streams of
    /// several interfaces may have the same addresses.
    interface: Option<String>,
}

impl Ends {
    /// Errors: the stream was reset, or the system does not say.
    fn of(socket: BorrowedFd<'_>) -> Result<Self, String> {
        let socket = SockRef::from(&socket);
        let find = || {
            let (local, peer) = (socket.local_addr()?, socket.peer_addr()?);
            let interface = socket.device()?.map(|name| String::from_utf8_lossy(&name).into());
            Ok(Self { local, peer, interface })
        };
        find().map_err(|error: io::Error| format!("its addresses: {error}"))
    }

    /// Returns the name of the Unix socket at which the end `reader` of the stream waits for the process of the end
    /// `other`. It is the stream's: a process connects for a stream of its own only, to whatever a peer has it connect.
    fn name(&self, reader: &SockAddr, other: &SockAddr) -> String {
        let text = |address: &SockAddr| {
            let address = address.as_socket();
            address.map(|it| match it.ip().to_canonical() {
                IpAddr::V4(ip) => format!(" {ip} {}", it.port()),
                // Two of them and an interface would be too long with colons.
                IpAddr::V6(ip) => format!(" {:x} {}", ip.to_bits(), it.port()),
            })
        };
        let interface = self.interface.as_ref().map(|name| format!(" {name}"));
        let parts = [text(reader), text(other), interface];
        format!("rdmc-direct{}", parts.into_iter().flatten().collect::<String>())
    }

    /// Where this end waits for the other one's process.
    fn own_name(&self) -> String {
        self.name(&self.local, &self.peer)
    }

    /// Where the other end waits for this process.
    fn peers_name(&self) -> String {
        self.name(&self.peer, &self.local)
    }
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Listens at a name of this network namespace.
fn listen_at(name: &str) -> io::Result<OwnedFd> {
    listen_at_address(&SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Listens at a name that the kernel chooses.
///
/// Errors: the system does not allow it.
pub(crate) fn listen_at_any_name() -> io::Result<OwnedFd> {
    listen_at_address(&SocketAddrUnix::new_unnamed())
}

fn listen_at_address(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let listener = unix_socket()?;
    bind(&listener, address)?;
    listen(&listener, BACKLOG.into())?;
    Ok(listener)
}

/// Checks that a process has connected to the listener since that exists, as the own user in the own user namespace.
/// `SO_PEERCRED` has the user at the time of the connection, so a process that has become this user since then (su) is
/// refused.
fn check_connected(process: &Process, listener: &OwnedFd) -> Result<(), String> {
    let pid = process.pid();
    let own = (pid.as_raw_nonzero().get(), geteuid().as_raw(), getegid().as_raw());
    // Other processes may have connected, too.
    let has_connected = (0..BACKLOG)
        .map_while(|_| accept_with(listener, SocketFlags::CLOEXEC).ok())
        .filter_map(|connection| peer_credentials(connection.as_fd()).ok())
        .any(|of| (of.pid, of.uid, of.gid) == own);
    if !has_connected {
        return Err(format!("process {pid} has not said, as this user, that this is its stream"));
    }
    process.check_near()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn name(local: &str, peer: &str, interface: Option<&str>) -> String {
        let address = |text: &str| SockAddr::from(text.parse::<SocketAddr>().unwrap());
        let end = |local, peer| {
            let interface = interface.map(str::to_owned);
            Ends { local: address(local), peer: address(peer), interface }
        };
        let (here, there) = (end(local, peer), end(peer, local));
        assert_eq!(here.own_name(), there.peers_name());
        assert_ne!(here.own_name(), there.own_name());
        here.own_name()
    }

    /// A process says of its own end of a stream only that it has it, to any process that asks.
    #[test]
    fn each_end_of_each_stream_has_a_name() {
        let (one, other) = ("127.0.0.1:5000", "127.0.0.1:6000");
        let usual = name(one, other, None);
        assert_eq!(usual, "rdmc-direct 127.0.0.1 5000 127.0.0.1 6000");
        assert_ne!(usual, name(one, "127.0.0.1:6001", None));
        assert_ne!(usual, name(one, other, Some("vrf1")));
        // One end may be a socket of IPv6, and the other one of IPv4.
        assert_eq!(usual, name("[::ffff:127.0.0.1]:5000", other, None));
        let link = name("[fe80::1%2]:5000", "[fe80::1%2]:6000", Some("eth0"));
        let bits = "fe800000000000000000000000000001";
        assert_eq!(link, format!("rdmc-direct {bits} 5000 {bits} 6000 eth0"));
        let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535";
        let other = longest.replace("65535", "65534");
        let longest = name(longest, &other, Some("fifteen letters"));
        assert!(SocketAddrUnix::new_abstract_name(longest.as_bytes()).is_ok());
    }
}
