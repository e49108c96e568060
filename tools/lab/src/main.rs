//! The command `rdmc-lab`: many hosts on one machine, with links of a known rate.
//!
//! Exit codes: 0 when done, 1 when something failed or a link is too slow, 2 when the arguments make no
//! sense, 130 when interrupted; that of the command for `exec`.

#![forbid(unsafe_code)]

mod check;
mod exec;
mod show;
mod up;

use std::{
    io::{self, ErrorKind, Write},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::{Parser, Subcommand};
use lab::Error;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

const EXAMPLES: &str = "\
Examples:
  rdmc-lab up --hosts 16 --rate 250mbit
  rdmc-lab check
  rdmc-lab exec 3 -- ping -c 1 10.77.0.1
  rdmc-lab hosts --without 0
  rdmc-lab down

Needs root, iproute2, and iperf3 for check.";

/// Many hosts on one machine: network namespaces joined by links of a known rate
#[derive(Debug, Parser)]
#[command(name = "rdmc-lab", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Exec(exec::Args),
    List(show::ListArgs),
    Hosts(show::HostsArgs),
    Check(check::Args),
    Down(show::DownArgs),
}

/// Which lab a command is about.
#[derive(Debug, clap::Args)]
struct Which {
    /// Name of the lab: lower-case letters, digits and -
    #[arg(long, value_name = "NAME", default_value = "lab")]
    name: String,
}

/// Signals to end are noted from now on; a flag says whether there was one.
fn watch_signals() -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(|error| Error::Failed(format!("catching signals: {error}")))?;
    }
    Ok(flag)
}

/// [`Error::Interrupted`] once a signal has come.
fn go_on(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Writes to standard output. That its reader has seen enough is no error.
fn print(text: &str) -> Result<(), Error> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes JSON to standard output.
fn print_json(value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Failed(format!("writing JSON: {error}")))?;
    print(&(text + "\n"))
}

fn main() -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    let outcome = match Cli::parse().command {
        Command::Up(args) => up::run(&args).map(done),
        Command::Exec(args) => exec::run(&args),
        Command::List(args) => show::list(&args).map(done),
        Command::Hosts(args) => show::hosts(&args).map(done),
        Command::Check(args) => check::run(&args),
        Command::Down(args) => show::down(&args).map(done),
    };
    outcome.unwrap_or_else(|error| {
        // Nobody may be listening any more.
        let _ = writeln!(io::stderr(), "rdmc-lab: {error}");
        ExitCode::from(match error {
            Error::Usage(_) => 2,
            Error::Interrupted => 130,
            Error::Failed(_) => 1,
        })
    })
}
