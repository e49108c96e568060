//! Options that name hosts, for commands that write no files there.

use std::path::PathBuf;

use files::HostPlan;

use crate::{
    failure::Failure,
    hosting::{self, local_name},
    hosts::Host,
};

/// The hosts that take part.
#[derive(Debug, clap::Args)]
pub struct NamedHosts {
    /// Hosts, with ranges: node[01-16],login,n[1,3,5-8]
    ///
    /// HOST:PORT is a receiver that listens (`rdmc help receive`).
    #[arg(long, value_name = "HOSTS", group = "where")]
    to: Option<String>,

    /// File with a host or a list of hosts per line; - for standard input
    ///
    /// # starts a comment. Racks ([NAME]) and slots of MPI host files have no effect here.
    #[arg(long, value_name = "FILE", group = "where")]
    pub hosts_file: Option<PathBuf>,

    /// Start N receivers on this machine, named local-1 to local-N
    #[arg(long, value_name = "N", group = "where", conflicts_with_all = ["to", "hosts_file"],
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    local: Option<u16>,
}

impl NamedHosts {
    /// Whether any hosts are named.
    pub fn are_given(&self) -> bool {
        self.to.is_some() || self.hosts_file.is_some() || self.is_local()
    }

    /// Whether the hosts are receivers on this machine.
    pub fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// The hosts, without destinations.
    ///
    /// Errors: invalid or repeated names.
    pub fn plans(&self) -> Result<Vec<HostPlan>, Failure> {
        let hosts = match self.local {
            Some(count) => {
                (1..=usize::from(count)).map(|number| Host::named(local_name(number))).collect()
            }
            None => hosting::named(self.to.as_deref(), self.hosts_file.as_ref())?,
        };
        Ok(hosts.into_iter().map(|host| hosting::plan(host, String::new())).collect())
    }
}
