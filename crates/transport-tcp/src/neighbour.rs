//! The process at the other end of a stream, if it is one of this machine whose memory may be read: how it proves
//! that it is, and copies out of its memory (docs/decisions/one-machine.md).

use std::{
    fmt, fs,
    io::{self, IoSliceMut},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    sync::Arc,
};

use ring::rand::{SecureRandom, SystemRandom};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
        socket_with,
    },
    process::{Pid, PidfdFlags, getegid, geteuid, getpid, pidfd_open},
    thread::{CapabilitySet, capabilities},
};
use socket2::{SockAddr, SockRef};
use transport::{ProcessRange, copy_from_process, peer_credentials};

use crate::wire::PROOF_BYTES;

/// How many connections wait for a [`Peer`]; more are refused, whoever makes them.
const BACKLOG: u16 = 8;

/// Checks whether this system lets processes of this user read each other's memory, as direct copies need
/// ([`crate::TcpSettings::direct_copies`]). What single connections need besides is checked when they are made.
///
/// Errors: what it does not allow, and the remedy.
pub fn check_direct_copies() -> Result<(), String> {
    let seccomp = |what: &str, error: io::Error| {
        format!("{what}: {error}; a container's seccomp profile may have to allow it")
    };
    check_unprivileged()?;
    let own = Process::open(getpid()).map_err(|error| seccomp("pidfd_open", error))?;
    let proof = Box::new([7; PROOF_BYTES]);
    let proof_address = proof.as_ptr().addr() as u64;
    let own = Neighbour { process: Arc::new(own), proof_address, proof: *proof };
    own.read_proof().map_err(|error| seccomp("process_vm_readv", error))?;
    listen_at(&format!("rdmc-direct {}", getpid()))
        .map_err(|error| seccomp("Unix sockets", error))?;
    // A process may always read itself, so the rest is told by a file.
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "" | "0" => Ok(()),
        scope => Err(format!(
            "kernel.yama.ptrace_scope is {scope}; set it to 0: sysctl kernel.yama.ptrace_scope=0"
        )),
    }
}

/// Checks that the calling thread can read no more processes than those of its own user: the kernel then checks every copy.
fn check_unprivileged() -> Result<(), String> {
    if geteuid().is_root() {
        return Err("this process runs as root; run it as another user".into());
    }
    let own = capabilities(None).map_err(|error| format!("capget: {error}"))?;
    if (own.effective | own.permitted).contains(CapabilitySet::SYS_PTRACE) {
        return Err("this process has CAP_SYS_PTRACE; run it without".into());
    }
    Ok(())
}

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
    /// Takes the number of the process as the peer says, and returns what that has to place in its memory.
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
                // After the process was opened: whoever connects as `pid` is that process while it lives.
                let [local, peer] = ends(socket)?;
                let listener = listen_at(&name(&local, &peer))
                    .map_err(|error| format!("a Unix socket: {error}"))?;
                *self = Self::Named { process: Arc::new(process), listener };
            }
            Self::Named { process, .. } | Self::Known(process) if process.pid == pid => {}
            _ => return Err(format!("it says that it is process {pid}, and was another one")),
        }
        let mut proof = [0; PROOF_BYTES];
        SystemRandom::new().fill(&mut proof).map_err(|_| "no random numbers")?;
        Ok(proof)
    }

    /// Finds out whether the process is what the peer has said, over this stream. Errors: why not.
    pub(crate) fn identify(&mut self, socket: BorrowedFd<'_>) -> Result<Arc<Process>, String> {
        let process = match std::mem::take(self) {
            Self::Known(process) => process,
            Self::Named { process, listener } => {
                process.check_connected(&listener)?;
                // A stream that was reset has lost its addresses, perhaps to a stream of the process that has
                // connected, although what was received before can still be read.
                ends(socket)?;
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
    let [local, peer] = ends(socket).map_err(io::Error::other)?;
    connect(unix_socket()?, &SocketAddrUnix::new_abstract_name(name(&peer, &local).as_bytes())?)?;
    Ok(())
}

/// Returns the addresses of this end and the other one.
fn ends(socket: BorrowedFd<'_>) -> Result<[SockAddr; 2], String> {
    let socket = SockRef::from(&socket);
    let ends = socket.local_addr().and_then(|local| Ok([local, socket.peer_addr()?]));
    ends.map_err(|error| format!("its addresses: {error}"))
}

/// Returns the name of the Unix socket at which the end `reader` of a stream waits for the process of the other one.
/// It is the stream's: a process connects for a stream of its own only, to whatever a peer has it connect.
fn name(reader: &SockAddr, other: &SockAddr) -> String {
    let text = |address: &SockAddr| {
        let address = address.as_socket();
        address.map(|it| format!("{} {}", it.ip().to_canonical(), it.port())).unwrap_or_default()
    };
    format!("rdmc-direct {} {}", text(reader), text(other))
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Listens at a name of this network namespace.
fn listen_at(name: &str) -> io::Result<OwnedFd> {
    let listener = unix_socket()?;
    bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&listener, BACKLOG.into())?;
    Ok(listener)
}

/// A process, which keeps its number while this exists and it lives.
pub(crate) struct Process {
    pid: Pid,
    handle: OwnedFd,
}

impl Process {
    fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, handle: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Checks that this process has connected to the listener since that exists, as the own user in the own user
    /// namespace.
    fn check_connected(&self, listener: &OwnedFd) -> Result<(), String> {
        let pid = self.pid;
        let own = (pid.as_raw_nonzero().get(), geteuid().as_raw(), getegid().as_raw());
        // Other processes may have connected, too.
        let has_connected = (0..BACKLOG)
            .map_while(|_| accept_with(listener, SocketFlags::CLOEXEC).ok())
            .filter_map(|connection| peer_credentials(connection.as_fd()).ok())
            .any(|of| (of.pid, of.uid, of.gid) == own);
        if !has_connected {
            return Err(format!(
                "process {pid} has not said, as this user, that this is its stream"
            ));
        }
        let namespace = |process: &str| {
            fs::metadata(format!("/proc/{process}/ns/user")).map(|it| (it.dev(), it.ino()))
        };
        let is_own_proc =
            fs::read_link("/proc/self").is_ok_and(|it| it.as_os_str() == &*getpid().to_string());
        let is_near = namespace(&pid.to_string())
            .is_ok_and(|it| namespace("self").is_ok_and(|own| own == it));
        if !is_own_proc || !is_near {
            return Err(format!("process {pid} is not known to be in this user namespace"));
        }
        self.check_alive().map_err(|error| format!("process {pid}: {error}"))
    }

    /// Errors: it has ended (`ESRCH`), and another one may have its number.
    fn check_alive(&self) -> io::Result<()> {
        let mut ended = [PollFd::new(&self.handle, PollFlags::IN)];
        match poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? {
            0 => Ok(()),
            _ => Err(Errno::SRCH.into()),
        }
    }

    /// Reads its memory ([`copy_from_process`]), with the own user's rights only.
    fn read(&self, from: &[ProcessRange], into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        check_unprivileged().map_err(|why| io::Error::new(io::ErrorKind::PermissionDenied, why))?;
        let copied = copy_from_process(self.pid.as_raw_nonzero().get().unsigned_abs(), from, into)?;
        self.check_alive()?;
        Ok(copied)
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.pid)
    }
}

/// A process whose memory can be read, and how to tell that it still keeps the memory of what it refers to.
#[derive(Debug)]
pub(crate) struct Neighbour {
    process: Arc<Process>,
    proof_address: u64,
    proof: [u8; PROOF_BYTES],
}

/// The outcome of one copy.
#[derive(Debug)]
pub(crate) enum Copied {
    /// All bytes, while the peer kept them.
    Whole,
    /// The process is gone, or keeps the memory no longer: whatever was copied means nothing.
    Gone,
    /// The peer has named memory that it does not have.
    BadSource,
    /// Local memory cannot be written.
    BadTarget,
    /// The system refuses, for this reason.
    Refused(io::Error),
}

impl Neighbour {
    /// Takes a process that has placed a proof at an address. Errors: it has not, or cannot be read.
    pub(crate) fn new(
        process: Arc<Process>,
        proof_address: u64,
        proof: [u8; PROOF_BYTES],
    ) -> Result<Self, String> {
        let neighbour = Self { process, proof_address, proof };
        match neighbour.read_proof() {
            Ok(true) => Ok(neighbour),
            Ok(false) => Err(format!("process {:?} has other bytes there", neighbour.process)),
            Err(error) => Err(format!("process_vm_readv: {error}")),
        }
    }

    /// Copies from an address in the process. `into` is not empty.
    pub(crate) fn copy(&self, address: u64, into: &mut [u8]) -> Copied {
        let mut proof = [0; PROOF_BYTES];
        let wanted = into.len() + PROOF_BYTES;
        let from = [ProcessRange { address, bytes: into.len() }, self.proof_range()];
        // The proof is read last, from the same address space.
        let copied =
            self.process.read(&from, &mut [IoSliceMut::new(into), IoSliceMut::new(&mut proof)]);
        match copied {
            Ok(bytes) if bytes == wanted && proof == self.proof => Copied::Whole,
            Ok(bytes) if bytes == wanted => Copied::Gone,
            Ok(bytes) => self.blame(address.saturating_add(bytes.min(into.len() - 1) as u64)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::SRCH) => Copied::Gone,
                Some(Errno::FAULT) => self.blame(address),
                _ => Copied::Refused(error),
            },
        }
    }

    /// Returns why a copy has stopped at this address.
    fn blame(&self, address: u64) -> Copied {
        if !self.read_proof().unwrap_or(false) {
            return Copied::Gone;
        }
        let mut byte = [0];
        let from = [ProcessRange { address, bytes: 1 }];
        match self.process.read(&from, &mut [IoSliceMut::new(&mut byte)]) {
            Ok(1) => Copied::BadTarget,
            _ => Copied::BadSource,
        }
    }

    /// Reads the proof. Returns whether it is right.
    fn read_proof(&self) -> io::Result<bool> {
        let mut proof = [0; PROOF_BYTES];
        let from = [self.proof_range()];
        let bytes = self.process.read(&from, &mut [IoSliceMut::new(&mut proof)])?;
        Ok(bytes == PROOF_BYTES && proof == self.proof)
    }

    fn proof_range(&self) -> ProcessRange {
        ProcessRange { address: self.proof_address, bytes: PROOF_BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SockAddr {
        text.parse::<std::net::SocketAddr>().unwrap().into()
    }

    /// A process says of its own end of a stream only that it has it, whoever asks for that.
    #[test]
    fn each_end_of_each_stream_has_a_name() {
        let (one, other) = (address("127.0.0.1:5000"), address("127.0.0.1:6000"));
        assert_eq!(name(&one, &other), "rdmc-direct 127.0.0.1 5000 127.0.0.1 6000");
        assert_ne!(name(&one, &other), name(&other, &one));
        assert_ne!(name(&one, &other), name(&one, &address("127.0.0.1:6001")));
        // One end may be a socket of IPv6, and the other one of IPv4.
        assert_eq!(name(&address("[::ffff:127.0.0.1]:5000"), &other), name(&one, &other));
        let longest = address("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535");
        let name = name(&longest, &longest);
        assert!(SocketAddrUnix::new_abstract_name(name.as_bytes()).is_ok());
    }

    /// Its number may be another process's.
    #[test]
    fn a_process_that_has_ended_is_not_read() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::open(Pid::from_child(&child)).unwrap();
        process.check_alive().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let error = process.check_alive().unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::SRCH));
    }

    /// The library does not read with rights that the kernel does not check.
    #[test]
    fn who_may_read_is_an_ordinary_user() {
        let own = fs::read_to_string("/proc/thread-self/status").unwrap();
        let field = |name: &str| {
            let line = own.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().split_whitespace().next().unwrap().to_owned()
        };
        let permitted = u64::from_str_radix(&field("CapPrm:"), 16).unwrap();
        let is_ordinary = field("Uid:") != "0" && permitted >> 19 & 1 == 0;
        assert_eq!(check_unprivileged().is_ok(), is_ordinary);
    }
}
