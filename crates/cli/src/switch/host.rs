//! `rdmc switch host`: the state of the host daemon.

use std::{io, path::PathBuf};

use control::host::client::Host;

use super::{ask, setup, text};
use crate::failure::Failure;

/// Show the host daemon's state: the groups that applications send to, and listening services
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Unix socket of `rdmc switch join`
    #[arg(long, value_name = "PATH", default_value = setup::SOCKET)]
    socket: PathBuf,

    /// Print JSON, for programs
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
