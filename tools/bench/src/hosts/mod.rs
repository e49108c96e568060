//! Pushes to many hosts: real receivers on this machine, and simulated ones with the real state machines at both ends.

mod real;
mod simulated;

use std::path::PathBuf;

use plan::size;

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    report::{Output, Report},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many receivers run on this machine, one after the other; 0: none
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "64,300,1000")]
    receivers: Vec<usize>,
    /// How many hosts are simulated
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        default_value = "64,300,1000,10000"
    )]
    simulated: Vec<usize>,
    /// Length of what is pushed
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "1MiB")]
    bytes: u64,
    /// Length of a longer stream, of which receivers keep nothing
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    stream_bytes: u64,
    /// Where copies go; needs room for all of them
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

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
