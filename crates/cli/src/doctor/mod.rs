//! `rdmc doctor`: what this machine has, what rdmc would use, and what to mend.

use std::io::Write;

use clap::Parser;
use serde::Serialize;

use crate::{
    failure::{Exit, Failure, say},
    output,
};

mod checks;
mod gather;
mod machine;
mod text;

use checks::{Finding, Severity};
pub use gather::gather as this_machine;
pub use machine::Machine;

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

#[derive(Serialize)]
struct Report {
    machine: Machine,
    fabric: Choice,
    findings: Vec<Finding>,
}

/// What `--fabric auto` takes if all other hosts have it too.
#[derive(Serialize)]
struct Choice {
    automatic: String,
    reason: String,
}

impl Report {
    fn of(machine: Machine) -> Self {
        let fabric = Choice {
            automatic: machine.fabrics.first().cloned().unwrap_or_else(|| "tcp".into()),
            reason: checks::choice(&machine),
        };
        Self { fabric, findings: checks::examine(&machine), machine }
    }
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
