//! The `rdmc` command: replicate one large object to many machines.
//!
//! A command prints its result to standard output, with `--json` as one object, and returns its exit code; or it prints
//! nothing there and returns an error, which is reported here. [`failure::Exit`] has the exit codes.

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

mod bench;
mod completions;
mod config;
mod confine;
mod credentials;
mod demo;
mod doctor;
mod failure;
mod fetch;
#[cfg(test)]
mod fuzzing;
mod help;
mod home;
mod hosting;
mod hosts;
mod hosts_file;
mod input;
mod interrupt;
mod invitation;
mod json;
mod launch;
mod logging;
mod man;
mod named_hosts;
mod network;
mod output;
mod parent;
mod plan;
mod progress;
mod push;
mod receive;
mod recording;
mod replicate;
mod serve;
mod slurm;
mod standard_output;
mod status;
#[cfg(feature = "switch")]
mod switch;
mod switches;
mod this_machine;
mod transfer;
mod usage;
#[cfg(not(feature = "switch"))]
mod without_switch;

use config::Additions;
use failure::{Exit, Failure};
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
    Receive(Box<receive::Args>),
    Serve(Box<serve::Args>),
    Fetch(Box<fetch::Args>),
    Status(status::Args),
    /// Print a new secret for --secret-file: 64 hexadecimal digits from the system's random source
    #[command(after_help = "Example:\n  (umask 077; rdmc secret > secret)")]
    Secret,
    Demo(demo::Args),
    Doctor(Box<doctor::Args>),
    Bench(Box<bench::Args>),
    Plan(Box<plan::Args>),
    Switch(Box<switch::Args>),
    #[command(hide = true)]
    Launch(launch::Args),
    Completions(completions::Args),
    Man(man::Args),
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
            Self::Fetch(args) => args.is_json(),
            Self::Status(args) => args.is_json(),
            Self::Receive(_)
            | Self::Serve(_)
            | Self::Secret
            | Self::Launch(_)
            | Self::Demo(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }

    fn run(&self) -> Result<Exit, Failure> {
        match self {
            Self::Plan(args) => plan::run(args),
            Self::Push(args) => push::run(args),
            Self::Receive(args) => receive::run(args),
            Self::Serve(args) => serve::run(args),
            Self::Fetch(args) => fetch::run(args),
            Self::Status(args) => status::run(args),
            Self::Secret => secret(),
            Self::Launch(args) => launch::run(args),
            Self::Demo(args) => demo::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Switch(args) => switch::run(args),
            Self::Completions(args) => completions::run(args, grammar()),
            Self::Man(args) => man::run(args, grammar()),
        }
    }
}

fn secret() -> Result<Exit, Failure> {
    use std::io::Write;
    let secret = rdmc::Secret::random().map_err(Failure::while_doing("making a secret"))?;
    output::print(|out| writeln!(out, "{}", &*secret.to_hex()))?;
    Ok(Exit::Done)
}

/// Raises the soft limit of descriptors: many hosts need many of them, and the usual limit is for programs that use select(2).
/// A push checks the limit itself.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// All commands and options.
fn grammar() -> clap::Command {
    help::arranged(Cli::command())
}

/// Parses the arguments and those that the configuration adds. Reports errors, and prints requested help.
fn parse(arguments: &[OsString]) -> Result<Command, Exit> {
    let mut grammar = grammar();
    let added = Additions::find(&grammar, arguments)
        .map_err(|failure| failure.report(usage::asks_for_json(arguments)))?;
    let parsed = grammar.try_get_matches_from_mut(added.put_into(arguments));
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map(|cli| cli.command).map_err(|error| usage::report(error, arguments, &added))
}

fn main() -> ExitCode {
    raise_descriptor_limit();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let command = match parse(&arguments) {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    command.run().unwrap_or_else(|failure| failure.report(command.is_json())).into()
}
