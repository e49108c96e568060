//! The `rdmc` command: replicate one large object to many machines.
//!
//! A command returns how it has ended and has told it, with `--json` as one object on standard output; or it returns
//! why it failed and has told nothing there, which is done here. [`failure::Exit`] has the exit codes.

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
mod input;
mod interrupt;
mod invitation;
mod launch;
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
mod way;
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
    /// Whether the one thing on standard output is to be a JSON object.
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

/// Many hosts take many descriptors, and the usual soft limit is for programs that use select(2). What
/// is not to be had is said by whoever needs it.
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
        Err(error) => return misunderstood(&error).into(),
    };
    command.run().unwrap_or_else(|failure| failure.report(command.is_json())).into()
}

/// Prints the help that was asked for, or what is wrong with the arguments.
fn misunderstood(error: &clap::Error) -> Exit {
    use std::io::Write;
    if !error.use_stderr() {
        // Nobody who asks for help and does not read it is told.
        let _ = error.print();
        return Exit::Done;
    }
    let text = error.render().to_string();
    if text.contains(|c: char| c.is_control() && c != '\n') {
        // Words of a shell's expansion, which are not to steer the terminal.
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
