//! Whether this system lets blocks be copied out of the memory of peers (docs/decisions/one-machine.md).

use std::{fmt::Display, fs, sync::Arc};

use rustix::process::getpid;

use transport::{Neighbour, PROOF_BYTES, Process, check_unprivileged};

use crate::peer::listen_at_any_name;

/// Checks whether this system lets processes of this user read each other's memory, as direct copies need
/// ([`crate::TcpSettings::direct_copies`]). What single connections need besides is checked when they are made.
///
/// Errors: what it does not allow, and the remedy.
pub fn check_direct_copies() -> Result<(), String> {
    check_unprivileged()?;
    let seccomp = |what: &str, why: &dyn Display| {
        format!("{what}{why}; a container's seccomp profile may have to allow it")
    };
    let own = Process::open(getpid()).map_err(|error| seccomp("pidfd_open: ", &error))?;
    let proof = Box::new([7; PROOF_BYTES]);
    let address = proof.as_ptr().addr() as u64;
    Neighbour::new(Arc::new(own), address, *proof).map_err(|why| seccomp("", &why))?;
    listen_at_any_name().map_err(|error| seccomp("Unix sockets: ", &error))?;
    // A process may always read itself, so a file has the rest.
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "" | "0" => Ok(()),
        scope => Err(format!(
            "kernel.yama.ptrace_scope is {scope}; set it to 0: sysctl kernel.yama.ptrace_scope=0"
        )),
    }
}
