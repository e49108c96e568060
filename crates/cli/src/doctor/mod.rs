//! `rdmc doctor`: what this machine has, what rdmc would use, and what to mend.

use std::io::Write;

use clap::Parser;

use crate::{
    failure::{Exit, Failure, say},
    output,
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

/// Show what this machine has for rdmc, and what to mend
///
/// Looks at network interfaces, RDMA devices, libfabric, and limits, and says which fabric `rdmc push` would choose here
/// and why. Changes nothing.
#[derive(Debug, Parser)]
#[command(
    after_help = "Exit codes: 0 rdmc works here (there may be warnings), 1 something stops it,\n\
    4 nothing does, but the report could not be written.\n\n\
    Examples:\n  rdmc doctor\n  rdmc doctor --json | jq .findings"
)]
pub struct Args {
    /// Write one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Looks, and reports on standard output.
///
/// Errors: nothing stops rdmc, but the report cannot be written.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let report = Report::of(gather::gather());
    let stops = report.findings.iter().any(|finding| finding.severity == Severity::Problem);
    let written = output::print(|out| {
        if args.json {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            return writeln!(out);
        }
        text::write(&report, out)
    });
    match written {
        Err(failure) if stops => say(failure),
        other => other?,
    }
    Ok(if stops { Exit::Failed } else { Exit::Done })
}
