//! Pushes to many hosts: real receivers on this machine, and simulated ones with the real state machines at both ends.

mod args;
mod real;
mod simulated;

pub use args::Args;

use crate::{interrupt::Interrupt, outcome::Outcome, report::Report};

/// Measures and prints. Errors: a push that did not reach all.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what =
        "rdmc push to many hosts: receivers on this machine, then simulated hosts".to_owned();
    let mut report = Report::new("hosts", what);
    real::measure(args, &mut report, &interrupt)?;
    simulated::measure(args, &mut report, &interrupt)?;
    report.print(&args.output);
    Ok(())
}
