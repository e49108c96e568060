//! `rdmc fetch` on hosts of a lab, of which some are killed, or their server: the others have copies, and the next fetch gives one to
//! those that were killed.

mod actions;
mod copies;
mod program;
mod round;

use std::{collections::BTreeMap, path::PathBuf};

use plan::size;
use serde_json::json;

use super::rounds::{self, Ended, Rounds};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    push_command::PushFiles,
    report::{Output, Report, median, name, number},
};
use actions::Kill;
use copies::Copies;
use round::{RoundResult, Scenario};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many rounds, in each of which all hosts fetch, and those that were killed again
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Decides which hosts come when, which are killed, and when
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Sizes of groups, servers included, in rotation
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "5,9",
          value_parser = clap::value_parser!(u32).range(4..=32))]
    members: Vec<u32>,
    /// Length of what is fetched: a file, or a directory
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "32MiB")]
    bytes: u64,
    /// What is killed, in rotation
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        default_value = "host,two-hosts,server,one-server"
    )]
    kills: Vec<Kill>,
    /// Where what is fetched and its copies go; needs room for all of them
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Runs all rounds, and prints what was measured. Errors: a round in which a promise was broken.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let files = PushFiles::create(&args.directory, args.bytes, args.seed, &interrupt)?;
    let copies = Copies::create(&files)?;
    let labs = rounds::labs(&args.members)?;
    // Each kind with each size, kinds first.
    let kinds = labs.iter().flat_map(|lab| args.kills.iter().map(move |&kill| (kill, lab)));
    let mut kinds = kinds.cycle();
    let rounds = Rounds::run(args.rounds, args.seed, &interrupt, |random| {
        let (kill, lab) = kinds.next().expect("there is a size and something to kill");
        let scenario = Scenario { lab, copies: &copies, bytes: args.bytes };
        let kind = name(&kill);
        Ended {
            replay: format!("--members {} --kills {kind}", lab.settings().hosts),
            kind,
            outcome: scenario.run(kill, random, &interrupt),
        }
    });
    report(args, &rounds.results);
    rounds.outcome?;
    interrupt.check()
}

fn report(args: &Args, results: &BTreeMap<String, Vec<RoundResult>>) {
    let all = || results.values().flatten();
    let (rounds, fetches) = (all().count(), all().map(|it| it.fetches).sum::<usize>());
    let what = format!(
        "{fetches} fetches of {} by hosts of a lab, in {rounds} rounds from seed {}, in each of which some are killed",
        size::show(args.bytes),
        args.seed
    );
    let mut report = Report::new("chaos-fetch", what);
    for (kill, rounds) in results {
        let after_s: Vec<f64> = rounds.iter().map(|it| it.seconds_after_kill).collect();
        report.row([
            ("killed", json!(kill)),
            ("rounds", json!(rounds.len())),
            ("fetches", json!(rounds.iter().map(|it| it.fetches).sum::<usize>())),
            ("killed_hosts", json!(rounds.iter().map(|it| it.killed).sum::<usize>())),
            ("seconds_after", number(median(after_s.clone()))),
            ("longest_s", number(after_s.iter().copied().fold(0.0, f64::max))),
        ]);
    }
    report.note(
        "every round: hosts that were not killed have equal copies and ended with exit code 0; those that were \
         killed have the old copy or the new one, none of a part, and after their next fetch the new one; nothing \
         else is left beside copies, and no process.",
    );
    report.note(
        "server: the only one, killed and started again within a second. one-server: one of two, killed for \
         good. seconds after: from the first kill until the last host had ended; median and longest.",
    );
    report.print(&args.output);
}
