//! The `rdmc` command: replicate one large object to many machines.
//!
//! Exit codes: 0 when done (also when the reader of a pipe has seen enough), 1 when something failed, 2 when the
//! arguments make no sense, 3 when some hosts have the object and others do not, 130 when interrupted.

use std::{io::IsTerminal, process::ExitCode};

use clap::{Parser, Subcommand};

mod bench;
mod credentials;
mod demo;
mod doctor;
mod failure;
#[cfg(test)]
mod fuzzing;
mod hosting;
mod hosts;
mod interrupt;
mod invitation;
mod launch;
mod plan;
mod push;
mod receive;
mod recording;
mod replicate;
mod switch;
mod way;

use failure::Failure;

/// Replicate one large object to many machines, in about the time that one copy takes
///
/// Receivers relay blocks to each other while they receive.
#[derive(Debug, Parser)]
#[command(name = "rdmc", version, after_help = "Try `rdmc demo`, then `rdmc help push`.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Push(Box<push::Args>),
    Receive(receive::Args),
    /// Print a new secret for --secret-file: 64 hexadecimal digits from the system's random source
    #[command(after_help = "Example:\n  (umask 077; rdmc secret > secret)")]
    Secret,
    Demo(demo::Args),
    Doctor(doctor::Args),
    Bench(Box<bench::Args>),
    Plan(Box<plan::Args>),
    Switch(Box<switch::Args>),
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    match cli.command {
        Command::Plan(args) => plan::run(&args).map(done),
        Command::Push(args) => push::run(&args),
        Command::Receive(args) => receive::run(&args).map(done),
        Command::Secret => secret().map(done),
        Command::Demo(args) => demo::run(&args).map(done),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Switch(args) => switch::run(&args),
    }
}

fn secret() -> Result<(), Failure> {
    use std::io::Write;
    let secret = rdmc::Secret::random().map_err(Failure::while_doing("making a secret"))?;
    writeln!(std::io::stdout(), "{}", &*secret.to_hex())
        .map_err(Failure::while_doing("standard output"))
}

/// Logs go to standard error: everything of rdmc's with --verbose, else what RUST_LOG asks for.
/// What belongs on the timeline goes to the trace, if there is one.
fn start_logging(verbose: bool, trace: Option<&trace::Writer>) {
    use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};
    let wanted = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let wanted = wanted.or_else(|| verbose.then(|| "debug".to_owned()));
    if wanted.is_none() && trace.is_none() {
        return;
    }
    let logs = wanted.map(|filter| {
        tracing_subscriber::fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            .with_filter(EnvFilter::new(filter))
    });
    tracing_subscriber::registry().with(logs).with(trace.map(trace::Writer::layer)).init();
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
