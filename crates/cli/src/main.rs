//! The `rdmc` command: replicate one large object to many machines.
//!
//! A command prints its own result, with `--json` as one object on standard output, and returns its exit code; or it
//! prints nothing there and returns an error, which is reported here. [`failure::Exit`] has the exit codes.

use std::process::ExitCode;

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
mod hosts_file;
mod input;
mod interrupt;
mod invitation;
mod launch;
mod launch_remedy;
mod logging;
mod output;
mod plan;
mod push;
mod receive;
mod recording;
mod replicate;
mod standard_output;
#[cfg(feature = "switch")]
mod switch;
mod this_machine;
mod transfer;
#[cfg(not(feature = "switch"))]
mod without_switch;

use failure::{Exit, Failure, plain};
#[cfg(not(feature = "switch"))]
use without_switch as switch;

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

impl Command {
    /// Whether the result is printed as one JSON object.
    fn is_json(&self) -> bool {
        match self {
            Self::Push(args) => args.json,
            Self::Bench(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Plan(args) => args.json,
            Self::Switch(args) => args.is_json(),
            Self::Receive(_) | Self::Secret | Self::Demo(_) => false,
        }
    }

    fn run(&self) -> Result<Exit, Failure> {
        match self {
            Self::Plan(args) => plan::run(args),
            Self::Push(args) => push::run(args),
            Self::Receive(args) => receive::run(args),
            Self::Secret => secret(),
            Self::Demo(args) => demo::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Switch(args) => switch::run(args),
        }
    }
}

fn secret() -> Result<Exit, Failure> {
    use std::io::Write;
    let secret = rdmc::Secret::random().map_err(Failure::while_doing("making a secret"))?;
    output::print(|out| writeln!(out, "{}", &*secret.to_hex()))?;
    Ok(Exit::Done)
}

/// Many hosts need many descriptors; the usual soft limit is for programs that use select(2). A push checks the limit
/// itself.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

fn main() -> ExitCode {
    raise_descriptor_limit();
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return usage_error(&error).into(),
    };
    command.run().unwrap_or_else(|failure| failure.report(command.is_json())).into()
}

/// Prints the requested help, or the error in the arguments.
fn usage_error(error: &clap::Error) -> Exit {
    use std::io::Write;
    if !error.use_stderr() {
        // A closed pipe is no error here.
        let _ = error.print();
        return Exit::Done;
    }
    let text = error.render().to_string();
    if text.contains(|c: char| c.is_control() && c != '\n') {
        // Arguments may contain control sequences, which must not reach the terminal.
        let lines: Vec<String> = text.lines().map(plain).collect();
        let _ = writeln!(std::io::stderr(), "{}", lines.join("\n"));
    } else {
        let _ = error.print();
    }
    let arguments = std::env::args_os().take_while(|argument| argument != "--");
    if arguments.into_iter().any(|argument| argument == "--json") {
        let what = text.split("\n\n").next().unwrap_or_default();
        failure::refuse(what.trim_start_matches("error: "), Exit::Usage);
    }
    Exit::Usage
}
