//! A command that ends with the program that runs it: as a child process of its own it would outlive it.

use std::{os::fd::OwnedFd, thread};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, set_parent_process_death_signal,
    },
};

use crate::failure::Failure;

/// Sends this process SIGTERM when a process ends, however it ends. Does not block.
///
/// A process is watched instead of a parent: the system tells a child of the end of the thread that has made it, not of the process, and
/// there may be a wrapper between them.
pub fn end_with(process: u32) -> Result<(), Failure> {
    let failed = || format!("watching process {process}");
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::Usage(format!("{process} is no process")))?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(watched) => thread::Builder::new()
            .name("rdmc-parent".into())
            .spawn(move || terminate_after(&watched))
            .map(drop)
            .map_err(Failure::while_doing(failed())),
        Err(Errno::SRCH) => Err(Failure::Interrupted),
        // Before Linux 5.3, and where a sandbox forbids it.
        Err(_) => set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|error| Failure::while_doing(failed())(error.into())),
    }
}

fn terminate_after(watched: &OwnedFd) {
    while let Err(Errno::INTR) = poll(&mut [PollFd::new(watched, PollFlags::IN)], None) {}
    // It cannot fail: a process may signal itself.
    let _ = kill_process(getpid(), Signal::TERM);
}
