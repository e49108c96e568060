//! `rdmc switch`: groups that switches copy.

mod ask;
mod detach;
mod host;
mod join;
mod run;
mod text;

use std::{process::ExitCode, time::Duration};

use clap::Subcommand;
use rdmc::bootstrap::Certificates;

use crate::{credentials::CredentialFiles, failure::Failure};

/// Where applications of a host reach its daemon.
const SOCKET: &str = "/run/rdmc/switch.sock";
/// What commands wait for is noticed within this time.
const TICK: Duration = Duration::from_millis(50);

/// Let switches copy for groups, instead of receivers that relay
///
/// An agent runs at each Linux switch that copies. Hosts ask it for groups; it is asked here what it does.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Join(join::Args),
    Host(host::Args),
    Detach(detach::Args),
    Show(ask::Show),
    Groups(ask::Groups),
    Counters(ask::Counters),
    Plan(ask::Plan),
}

/// Runs it.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    match &args.command {
        Command::Run(args) => run::run(args).map(done),
        Command::Join(args) => join::run(args).map(done),
        Command::Host(args) => args.run().map(done),
        Command::Detach(args) => detach::run(args).map(done),
        Command::Show(args) => args.run().map(done),
        Command::Groups(args) => args.run().map(done),
        Command::Counters(args) => args.run().map(done),
        Command::Plan(args) => args.run().map(done),
    }
}

/// Agents and who asks them show certificates; a secret would let every host do what one may.
fn certificates(files: &CredentialFiles) -> Result<Certificates, Failure> {
    match files.read(&[])? {
        Some(rdmc::bootstrap::Credentials::Certificates(certificates)) => Ok(certificates),
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

/// Waits until this is so: a signal has come (`interrupt::flag`), or what was to go on has ended.
async fn until(is_over: impl Fn() -> bool) {
    while !is_over() {
        tokio::time::sleep(TICK).await;
    }
}
