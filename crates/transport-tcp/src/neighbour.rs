//! The process at the other end of a connection, if it is one of this machine whose memory may be read
//! (docs/decisions/one-machine.md).

use std::{
    fs,
    io::{self, IoSliceMut},
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, geteuid, pidfd_getfd, pidfd_open},
};
use socket2::{SockAddr, SockRef};
use transport::{ProcessRange, copy_from_process};

use crate::wire::{Introduction, PROOF_BYTES};

/// A process whose memory can be read, and how to tell that it still is that process, and still keeps the
/// memory of what it refers to.
#[derive(Debug)]
pub(crate) struct Neighbour {
    pid: u32,
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

/// The capability to read any process's memory (capabilities(7)).
const CAP_SYS_PTRACE: u32 = 19;

/// Checks whether this system lets processes of this user read each other's memory, as direct copies need
/// ([`crate::TcpSettings::direct_copies`]). What single connections need besides is checked when they are made.
///
/// Errors: what it does not allow, and the remedy.
pub fn check_direct_copies() -> Result<(), String> {
    let proof = Box::new([7; PROOF_BYTES]);
    let proof_address = proof.as_ptr().addr() as u64;
    let own = Neighbour { pid: std::process::id(), proof_address, proof: *proof };
    let seccomp = |what: &str, error: io::Error| {
        format!("{what}: {error}; a container's seccomp profile may have to allow it")
    };
    own.read_proof().map_err(|error| seccomp("process_vm_readv", error))?;
    pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .and_then(|handle| pidfd_getfd(&handle, handle.as_raw_fd(), PidfdGetfdFlags::empty()))
        .map_err(|error| seccomp("pidfd_getfd", error.into()))?;
    // A process may always read itself, so the rest is told by files.
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let scope = scope.trim();
    let may_anyway = scope != "3" && has_capability(CAP_SYS_PTRACE);
    if matches!(scope, "" | "0") || may_anyway {
        return Ok(());
    }
    Err(format!(
        "kernel.yama.ptrace_scope is {scope}; set it to 0: sysctl kernel.yama.ptrace_scope=0"
    ))
}

fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .is_some_and(|set| set >> number & 1 == 1)
}

impl Neighbour {
    /// Finds the process that has introduced itself on `socket`, and reads its proof.
    ///
    /// Errors: why its memory cannot be used: it is not the other end of this connection, another user's,
    /// in another namespace, or may not be read.
    pub(crate) fn find(
        socket: BorrowedFd<'_>,
        introduction: &Introduction,
    ) -> Result<Self, String> {
        let &Introduction { pid, descriptor, proof_address, proof } = introduction;
        let system = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no such process")?;
        let handle = pidfd_open(process, PidfdFlags::empty())
            .map_err(|error| system("pidfd_open")(error.into()))?;
        let owner = fs::metadata(format!("/proc/{pid}")).map_err(system("/proc"))?.uid();
        if owner != geteuid().as_raw() {
            return Err(format!("process {pid} belongs to user {owner}"));
        }
        let network = |process: &str| {
            fs::metadata(format!("/proc/{process}/ns/net"))
                .map(|data| (data.dev(), data.ino()))
                .map_err(system("/proc"))
        };
        if network(&pid.to_string())? != network("self")? {
            return Err(format!("process {pid} is in another network namespace"));
        }
        let descriptor = i32::try_from(descriptor).map_err(|_| "no such descriptor")?;
        // Closing a duplicate of a file's descriptor releases the locks that this process has on the file.
        let named =
            fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).map_err(system("/proc"))?;
        if !named.as_os_str().as_bytes().starts_with(b"socket:[") {
            return Err(format!("descriptor {descriptor} of process {pid} is no socket"));
        }
        let theirs = pidfd_getfd(&handle, descriptor, PidfdGetfdFlags::empty())
            .map_err(|error| system("pidfd_getfd")(error.into()))?;
        let (socket, theirs) = (SockRef::from(&socket), SockRef::from(&theirs));
        let ends = |local: io::Result<SockAddr>, peer: io::Result<SockAddr>| {
            Some((local.ok()?, peer.ok()?))
        };
        let (own, other) = (
            ends(socket.local_addr(), socket.peer_addr()),
            ends(theirs.peer_addr(), theirs.local_addr()),
        );
        if own.is_none() || own != other {
            return Err(format!("process {pid} does not have the other end of this connection"));
        }
        let neighbour = Self { pid, proof_address, proof };
        match neighbour.read_proof() {
            Ok(true) => Ok(neighbour),
            Ok(false) => Err(format!("process {pid} has other bytes there")),
            Err(error) => Err(system("process_vm_readv")(error)),
        }
    }

    /// Copies from an address in the process. `into` is not empty.
    pub(crate) fn copy(&self, address: u64, into: &mut [u8]) -> Copied {
        let mut proof = [0; PROOF_BYTES];
        let wanted = into.len() + PROOF_BYTES;
        let from = [ProcessRange { address, bytes: into.len() }, self.proof_range()];
        // The proof is read last, from the same address space.
        let copied = copy_from_process(
            self.pid,
            &from,
            &mut [IoSliceMut::new(into), IoSliceMut::new(&mut proof)],
        );
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
        match copy_from_process(self.pid, &from, &mut [IoSliceMut::new(&mut byte)]) {
            Ok(1) => Copied::BadTarget,
            _ => Copied::BadSource,
        }
    }

    /// Reads the proof. Returns whether it is right.
    fn read_proof(&self) -> io::Result<bool> {
        let mut proof = [0; PROOF_BYTES];
        let from = [self.proof_range()];
        let bytes = copy_from_process(self.pid, &from, &mut [IoSliceMut::new(&mut proof)])?;
        Ok(bytes == PROOF_BYTES && proof == self.proof)
    }

    fn proof_range(&self) -> ProcessRange {
        ProcessRange { address: self.proof_address, bytes: PROOF_BYTES }
    }
}
