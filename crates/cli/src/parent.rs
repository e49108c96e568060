//! Ends a command with the program that runs it; otherwise the child process would outlive that program.

use std::{os::fd::OwnedFd, thread};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, set_parent_process_death_signal,
    },
};

use crate::failure::Failure;

/// Sends this process SIGTERM when another process ends in any way. Does not block.
///
/// A process is watched instead of the parent: the system notifies a child when the thread that created it ends, not the
/// process, and there may be a wrapper between them.
pub fn end_with(process: u32) -> Result<(), Failure> {
    let failed = || format!("watching process {process}");
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::Usage(format!("{process} is not a process")))?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(watched) => thread::Builder::new()
            .name("rdmc-parent".into())
            .spawn(move || terminate_after(&watched))
            .map(drop)
            .map_err(Failure::while_doing(failed())),
        Err(Errno::SRCH) => Err(Failure::Interrupted),
        // Before Linux 5.3, or if a sandbox forbids it.
        Err(_) => set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|error| Failure::while_doing(failed())(error.into())),
    }
}

fn terminate_after(watched: &OwnedFd) {
    while let Err(Errno::INTR) = poll(&mut [PollFd::new(watched, PollFlags::IN)], None) {}
    // This cannot fail: a process may signal itself.
    let _ = kill_process(getpid(), Signal::TERM);
}
