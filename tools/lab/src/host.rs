//! Where programs run.

use std::{
    net::{IpAddr, Ipv4Addr},
    process::Command,
};

/// A host: one of a lab, or this machine.
#[derive(Clone, Debug)]
pub struct Host {
    /// The command that starts a program there; empty for this machine.
    pub enter: Vec<String>,
    /// Its address.
    pub address: IpAddr,
}

impl Host {
    /// This machine, by loopback.
    pub fn here() -> Self {
        Self { enter: Vec::new(), address: Ipv4Addr::LOCALHOST.into() }
    }

    /// This machine as `members` hosts, which have its addresses in rotation.
    pub fn here_at(addresses: &[IpAddr], members: u32) -> Vec<Self> {
        let hosts = addresses.iter().cycle().take(members as usize);
        hosts.map(|&address| Self { address, ..Self::here() }).collect()
    }

    /// The same with programs that run on this core only.
    #[must_use]
    pub fn on_core(mut self, core: usize) -> Self {
        // Not --cpu-list, which BusyBox has not.
        self.enter.extend(["taskset".into(), "-c".into(), core.to_string()]);
        self
    }

    /// The command that runs a program there, to which arguments can be added.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match self.enter.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        }
    }
}
