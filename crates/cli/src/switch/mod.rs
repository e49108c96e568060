//! `rdmc switch`: groups for which switches copy.

mod ask;
mod detach;
mod host;
mod join;
mod metrics;
mod run;
mod setup;
mod text;
mod trace;

use clap::Subcommand;

use crate::failure::{Exit, Failure};

/// Let switches copy messages for groups, instead of receivers relaying them
///
/// An agent runs at each Linux switch that copies. Hosts request groups from it. Other commands show its state.
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
    Trace(trace::Trace),
    Metrics(metrics::Metrics),
    Plan(ask::Plan),
}

impl Args {
    /// Whether the result is printed as one JSON object.
    pub fn is_json(&self) -> bool {
        match &self.command {
            Command::Host(args) => args.json,
            Command::Show(args) => args.asked.json,
            Command::Groups(args) => args.asked.json,
            Command::Counters(args) => args.asked.json,
            Command::Trace(args) => args.asked.json,
            Command::Metrics(args) => args.asked.json,
            Command::Plan(args) => args.asked.json,
            Command::Run(_) | Command::Join(_) | Command::Detach(_) => false,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Join(args) => join::run(args),
        Command::Host(args) => args.run(),
        Command::Detach(args) => detach::run(args),
        Command::Show(args) => args.run(),
        Command::Groups(args) => args.run(),
        Command::Counters(args) => args.run(),
        Command::Trace(args) => args.run(),
        Command::Metrics(args) => args.run(),
        Command::Plan(args) => args.run(),
    }?;
    Ok(Exit::Done)
}
