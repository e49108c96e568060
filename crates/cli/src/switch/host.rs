//! `rdmc switch host`: the state of this host's daemon.

use std::{io, path::PathBuf};

use control::host::client::Host;

use super::{ask, setup, text};
use crate::failure::Failure;

/// Show this host's daemon: the groups that applications send to, and listening services
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The Unix socket of `rdmc switch join`
    #[arg(long, value_name = "PATH", default_value = setup::SOCKET)]
    socket: PathBuf,

    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub fn run(&self) -> Result<(), Failure> {
        let answer = setup::runtime()?.block_on(async { Host::at(&self.socket).groups().await });
        let answer = answer.map_err(Failure::because)?;
        ask::write(&answer, self.json, |answer, out: &mut io::StdoutLock<'_>| {
            text::host(answer, out)
        })
    }
}
