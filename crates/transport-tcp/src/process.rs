//! A process of this machine, and which ones this one may read.

use std::{
    fmt,
    io::{self, IoSliceMut},
    os::fd::OwnedFd,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, geteuid, pidfd_open},
    thread::{CapabilitySet, capabilities},
};
use transport::{ProcessRange, copy_from_process};

/// Checks that the calling thread can read no more processes than those of its own user: the kernel then checks every copy.
/// Permitted capabilities count, too, since a thread may raise them; root is refused even without.
pub(crate) fn check_unprivileged() -> Result<(), String> {
    if geteuid().is_root() {
        return Err("this process runs as root; run it as another user".into());
    }
    let own = capabilities(None).map_err(|error| format!("capget: {error}"))?;
    if (own.effective | own.permitted).contains(CapabilitySet::SYS_PTRACE) {
        return Err("this process has CAP_SYS_PTRACE; run it without".into());
    }
    Ok(())
}

/// A process, which keeps its number while this exists and it lives.
pub(crate) struct Process {
    pid: Pid,
    handle: OwnedFd,
}

impl Process {
    /// Errors: there is none of this number, or the system does not allow it.
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, handle: pidfd_open(pid, PidfdFlags::empty())? })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Errors: it has ended (`ESRCH`), and another one may have its number.
    pub(crate) fn check_alive(&self) -> io::Result<()> {
        let mut ended = [PollFd::new(&self.handle, PollFlags::IN)];
        match poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? {
            0 => Ok(()),
            _ => Err(Errno::SRCH.into()),
        }
    }

    /// Reads its memory ([`copy_from_process`]), with the own user's rights only.
    pub(crate) fn read(
        &self,
        from: &[ProcessRange],
        into: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
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
