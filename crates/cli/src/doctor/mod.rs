//! `rdmc doctor`: the state of this machine, the fabric that rdmc would use, and problems with their fixes.

use clap::Parser;

use crate::{
    config,
    failure::{Exit, Failure, print_message},
    help::{REPORTS, USUAL},
    hosting::Hosting,
    json,
    named_hosts::NamedHosts,
    output,
};

mod checks;
mod gather;
mod machine;
mod pairs;
mod pairs_report;
mod report;
mod text;

use checks::Severity;
pub use gather::gather as this_machine;
pub use machine::Machine;
use report::Report;

const EXAMPLES: &str = "\
Examples:
  rdmc doctor
      this machine
  rdmc doctor --json | jq .findings
      the problems found, for programs
  rdmc doctor --to node[01-16]
      whether this machine and these hosts can connect to each other, as in a push
  rdmc doctor --to node[01-16] --ports 7000-7100
      the same, on the ports that a firewall should admit

With --to, receivers are started as by `rdmc push`, and each machine connects to every other one, over TCP. Nothing is written.
The configuration (below) applies as for `rdmc push`. Without --to it is checked, and streams counts: the report is on
--fabric auto, whatever fabric is configured.

Exit codes:
  0    rdmc works here (with or without warnings); with --to: all connections succeeded
  1    a problem prevents rdmc from working; with --to: no connection succeeded
  2    invalid arguments
  3    with --to: some connections failed, or receivers did not start on some hosts
  4    no problem was found, but the report or --trace could not be written
  130  interrupted (SIGINT, SIGTERM, SIGHUP)";

/// Check this machine for rdmc and show problems with their fixes; with --to, check connections between hosts
///
/// Without --to: reads the state of network interfaces, RDMA devices, libfabric and limits, and prints which fabric `rdmc push`
/// would choose here and why. Changes nothing.
#[derive(Debug, Parser)]
#[command(after_long_help = config::help(EXAMPLES), next_help_heading = USUAL)]
#[command(group = clap::ArgGroup::new("where").multiple(true))]
pub struct Args {
    #[command(flatten)]
    pub hosts: NamedHosts,

    /// Print one JSON object instead of text
    #[arg(long, help_heading = REPORTS)]
    pub json: bool,

    #[command(flatten)]
    pub hosting: Hosting,
}

/// Examines this machine, or the connections between hosts, and prints the report.
///
/// Errors: no problem was found, but the report cannot be written; hosts cannot be examined.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let Args { hosts, hosting, json } = args;
    if hosts.are_given() { pairs::run(hosts, hosting, *json) } else { examine(args) }
}

fn examine(args: &Args) -> Result<Exit, Failure> {
    let streams = Some(args.hosting.streams);
    let report = Report::of(Machine { streams, ..gather::gather() });
    let is_problem = report.findings.iter().any(|finding| finding.severity == Severity::Problem);
    let written = output::print(|out| {
        if args.json {
            return json::write_pretty(out, &report);
        }
        text::write(&report, out)
    });
    match written {
        Err(failure) if is_problem => print_message(failure),
        other => other?,
    }
    Ok(if is_problem { Exit::Failed } else { Exit::Done })
}
