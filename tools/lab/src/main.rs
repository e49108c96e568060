//! The command `rdmc-lab`: many hosts on one machine, with links of a known rate.
//!
//! Exit codes: 0 when done, 1 when something failed or a link is too slow, 2 when the arguments are
//! invalid, 130 when interrupted; that of the command for `exec`.

#![forbid(unsafe_code)]

mod check;
mod exec;
mod show;
mod terminal;
mod up;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use lab::Error;

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
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "rdmc-lab: {error}");
        ExitCode::from(match error {
            Error::Usage(_) => 2,
            Error::Interrupted => 130,
            Error::Failed(_) => 1,
        })
    })
}
