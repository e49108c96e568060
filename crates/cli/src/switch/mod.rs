//! `rdmc switch`: groups that switches copy.

mod join;

use clap::Subcommand;
use rdmc::bootstrap::{Certificates, Credentials};

use crate::{credentials::CredentialFiles, failure::Failure};

/// Let switches copy for groups, instead of receivers that relay
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Join(join::Args),
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Join(args) => join::run(args),
    }
}

/// Daemons and agents show certificates; a secret would let every host do what one may.
fn certificates(files: &CredentialFiles) -> Result<Certificates, Failure> {
    match files.read(&[])? {
        Some(Credentials::Certificates(certificates)) => Ok(certificates),
        _ => Err(Failure::Usage(
            "switches take certificates: give --cert, --key and --ca (docs/security.md says how to make them)".into(),
        )),
    }
}

/// What the commands wait in: one thread, in the network namespace that they were started in.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::while_doing("starting"))
}
