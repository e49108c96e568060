//! The `rdmc` command: replicate one large object to many machines.
//!
//! Exit codes: 0 when done (also when the reader of a pipe has seen enough), 1 when something failed, 2 when the
//! arguments make no sense.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod failure;
mod plan;

use failure::Failure;

#[derive(Debug, Parser)]
#[command(name = "rdmc", version, about = "Replicate one large object to many machines")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show who sends which block to whom at which step
    Plan(plan::Args),
}

fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Plan(args) => plan::run(args),
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
