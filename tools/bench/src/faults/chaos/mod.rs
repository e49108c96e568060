//! `rdmc push` between hosts of a lab, with faults: hosts without a fault have a copy, and the same command again gives
//! all hosts one.

mod fault;
mod fetches;
mod notices;
mod round;
mod rounds;

use std::{collections::BTreeMap, path::PathBuf};

use plan::size;
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    push_command::PushFiles,
    report::{Output, Report, median, name, number},
};
use fault::Fault;
pub use fetches::{Args as FetchArgs, run as run_fetches};
use round::{RoundResult, Scenario};
use rounds::{Ended, Rounds};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many pushes, each with one fault, and each followed by the same command again
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Decides which host has which fault, and when
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Sizes of groups, the root included, in rotation
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4,8,16",
          value_parser = clap::value_parser!(u32).range(3..=32))]
    members: Vec<u32>,
    /// Length of the file
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    bytes: u64,
    /// Kinds of faults
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "kill,two-kills,pause,freeze,cut,no-route,slow,disk-full,root-killed"
    )]
    faults: Vec<Fault>,
    /// The failure deadline of `rdmc push`, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    failure_deadline: String,
    /// Where the file and its copies go; needs room for all of them
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Runs all rounds, and prints what was measured. Errors: a round in which a promise was broken.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let files = PushFiles::create(&args.directory, args.bytes, args.seed, &interrupt)?;
    let labs = rounds::labs(&args.members)?;
    let mut labs = labs.iter().cycle();
    let rounds = Rounds::run(args.rounds, args.seed, &interrupt, |random| {
        let lab = labs.next().expect("there is a size");
        let fault = args.faults[(random.part() * args.faults.len() as f64) as usize];
        let failure_deadline = &args.failure_deadline;
        let scenario = Scenario { lab, files: &files, bytes: args.bytes, failure_deadline };
        Ended {
            kind: name(&fault),
            replay: format!("--members {}", lab.settings().hosts),
            outcome: scenario.run(fault, random, &interrupt),
        }
    });
    report(args, &rounds.results);
    rounds.outcome?;
    interrupt.check()
}

fn report(args: &Args, results: &BTreeMap<String, Vec<RoundResult>>) {
    let rounds: usize = results.values().map(Vec::len).sum();
    let what = format!(
        "{rounds} pushes of {} between hosts of a lab, each with one fault, and again without",
        size::show(args.bytes)
    );
    let mut report = Report::new("chaos", what);
    let longest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let of_file = |bytes: u64| bytes as f64 / args.bytes as f64;
    for (fault, rounds) in results {
        let noticed_s: Vec<f64> = rounds.iter().flat_map(|it| it.noticed_s.clone()).collect();
        let after_s: Vec<f64> = rounds.iter().map(|it| it.seconds_after_fault).collect();
        let repeated: Vec<f64> = rounds.iter().map(|it| of_file(it.repeated_bytes)).collect();
        let resumed = rounds.iter().flat_map(|it| &it.resumed_bytes);
        report.row([
            ("fault", json!(fault)),
            ("rounds", json!(rounds.len())),
            ("lost_hosts", json!(rounds.iter().map(|it| it.lost).sum::<usize>())),
            ("noticed_s", number(median(noticed_s.clone()))),
            ("noticed_max_s", number(longest(&noticed_s))),
            ("seconds_after", number(median(after_s.clone()))),
            ("longest_s", number(longest(&after_s))),
            ("repeated_max", number(longest(&repeated))),
            ("resumed", number(median(resumed.map(|&bytes| of_file(bytes)).collect()))),
        ]);
    }
    report.note(
        "every round: hosts without a fault have equal copies, no other host has a file of that name that \
         differs, no process is left, and the same command again gives all hosts equal copies and \
         leaves no temporary file.",
    );
    report.note(format!(
        "noticed: from the fault until a member without a fault reported that its group failed; median \
         and longest, over all members and rounds. Silence is noticed after {} s.",
        args.failure_deadline
    ));
    report.note(
        "seconds after: from the fault to the end of the push, the rest of the transfer included; \
         median and longest. repeated: bytes sent to a host that had them, at most, as a share of \
         the file. resumed: what a lost host had when the second push began, median share.",
    );
    report.print(&args.output);
}
