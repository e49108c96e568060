//! `rdmc switch`: groups that switches copy.

mod ask;
mod detach;
mod host;
mod join;
mod run;
mod text;

use std::time::Duration;

use clap::Subcommand;
use rdmc::bootstrap::Certificates;

use crate::{
    credentials::CredentialFiles,
    failure::{Exit, Failure},
};

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

impl Args {
    /// Whether the answer is to be a JSON object.
    pub fn is_json(&self) -> bool {
        match &self.command {
            Command::Host(args) => args.json,
            Command::Show(args) => args.asked.json,
            Command::Groups(args) => args.asked.json,
            Command::Counters(args) => args.asked.json,
            Command::Plan(args) => args.asked.json,
            Command::Run(_) | Command::Join(_) | Command::Detach(_) => false,
        }
    }
}

/// Runs it.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Join(args) => join::run(args),
        Command::Host(args) => args.run(),
        Command::Detach(args) => detach::run(args),
        Command::Show(args) => args.run(),
        Command::Groups(args) => args.run(),
        Command::Counters(args) => args.run(),
        Command::Plan(args) => args.run(),
    }?;
    Ok(Exit::Done)
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
