//! A process of this machine, and which ones this one may read.

use std::{
    fmt, fs,
    io::{self, IoSliceMut},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, getegid, geteuid, getpid, pidfd_open},
    thread::{CapabilitySet, capabilities},
};

use crate::process::{ProcessRange, copy_from_process, peer_credentials, peer_handle};

/// Checks that the calling thread can read no more processes than those of its own user: the kernel then checks every copy.
/// Permitted capabilities count, too, since a thread may raise them; root is refused even without.
pub fn check_unprivileged() -> Result<(), String> {
    if geteuid().is_root() {
        return Err("this process runs as root; run it as another user".into());
    }
    let own = capabilities(None).map_err(|error| format!("capget: {error}"))?;
    if (own.effective | own.permitted).contains(CapabilitySet::SYS_PTRACE) {
        return Err("this process has CAP_SYS_PTRACE; run it without".into());
    }
    Ok(())
}

/// A process of this machine, which keeps its number while this exists and it lives.
pub struct Process {
    pid: Pid,
    handle: OwnedFd,
}

impl Process {
    /// Opens the process of a number. Errors: there is none, or the system does not allow it.
    pub fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, handle: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Opens the process that has made a connection, or begun to listen, at whose other end this Unix socket is, if it was then
    /// of the own user and group.
    ///
    /// Errors: it was not; it has ended; this kernel does not tell (before Linux 6.5).
    pub fn at_other_end(socket: BorrowedFd<'_>) -> Result<Self, String> {
        let of = peer_credentials(socket).map_err(|error| format!("SO_PEERCRED: {error}"))?;
        if (of.uid, of.gid) != (geteuid().as_raw(), getegid().as_raw()) {
            return Err(format!("process {} was another user's or group's", of.pid));
        }
        let pid = Pid::from_raw(of.pid).ok_or("its process is not visible here")?;
        let handle = peer_handle(socket).map_err(|error| format!("SO_PEERPIDFD: {error}"))?;
        Ok(Self { pid, handle })
    }

    /// Returns its number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Checks that it is alive, and in the own user namespace: in a namespace of its own a user has all capabilities, and the
    /// kernel would check no copy. Errors: why not.
    pub fn check_near(&self) -> Result<(), String> {
        let pid = self.pid;
        let namespace =
            |of: &str| fs::metadata(format!("/proc/{of}/ns/user")).map(|it| (it.dev(), it.ino()));
        let is_own_proc =
            fs::read_link("/proc/self").is_ok_and(|it| it.as_os_str() == &*getpid().to_string());
        let is_near = namespace(&pid.to_string())
            .is_ok_and(|it| namespace("self").is_ok_and(|own| own == it));
        if !is_own_proc || !is_near {
            return Err(format!("process {pid} is not known to be in this user namespace"));
        }
        self.check_alive().map_err(|error| format!("process {pid}: {error}"))
    }

    /// Checks that it has not ended. Errors: it has (`ESRCH`), and another one may have its number.
    pub fn check_alive(&self) -> io::Result<()> {
        let mut ended = [PollFd::new(&self.handle, PollFlags::IN)];
        match poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? {
            0 => Ok(()),
            _ => Err(Errno::SRCH.into()),
        }
    }

    /// Reads its memory ([`copy_from_process`]), with the own user's rights only.
    pub fn read(&self, from: &[ProcessRange], into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Its number may be another process's.
    #[test]
    #[cfg_attr(miri, ignore = "Miri starts no processes")]
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
    #[cfg_attr(miri, ignore = "Miri has no capabilities")]
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
