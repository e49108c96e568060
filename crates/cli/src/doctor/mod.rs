//! `rdmc doctor`: the state of this machine, the fabric that rdmc would use, and problems with their fixes.

use clap::Parser;

use crate::{
    failure::{Exit, Failure, print_message},
    json, output,
};

mod checks;
mod gather;
mod machine;
mod report;
mod text;

use checks::Severity;
pub use gather::gather as this_machine;
pub use machine::Machine;
use report::Report;

/// Show what this machine has for rdmc, and problems with their fixes
///
/// Reads the state of network interfaces, RDMA devices, libfabric and limits, and prints which fabric `rdmc push` would
/// choose here and why. Changes nothing.
#[derive(Debug, Parser)]
#[command(
    after_help = "Exit codes: 0 rdmc works here (there may be warnings), 1 there is a problem that prevents it,\n\
    4 there is none, but the report could not be written.\n\n\
    Examples:\n  rdmc doctor\n  rdmc doctor --json | jq .findings"
)]
pub struct Args {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Examines this machine and prints the report.
///
/// Errors: there is no problem, but the report cannot be written.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let report = Report::of(gather::gather());
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
