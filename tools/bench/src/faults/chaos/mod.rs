//! `rdmc push` between hosts of a lab that fail: who survives has a copy, and the same
//! command again finishes the job.

mod fault;
mod notices;
mod round;

use std::{collections::BTreeMap, fs, path::PathBuf};

use lab::{Lab, LabSettings, Link, Rate};
use plan::size;
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    push_command::{rdmc_beside_this, write_object},
    random::Random,
    report::{Output, Report, median, number},
};
use fault::Fault;
use round::{Ground, Told};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many pushes, each with some fault, and each followed by the same command again
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Decides which host has which fault, and when
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Sizes of groups, the root included, by turns
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
    /// How long a host may give no sign of life, in seconds; see `rdmc help push`
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    failure_deadline: String,
    /// Where the file and its copies go; needs room for all of them
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// What rounds with one kind of fault gave.
#[derive(Default)]
struct Tally {
    rounds: u32,
    /// Hosts without a copy after the first push.
    lost: u32,
    /// From the fault to the end of the push.
    seconds: Vec<f64>,
    /// From the fault until a member knew, for each.
    noticed_s: Vec<f64>,
    /// The most that was sent to a host again although it had it, as a share of the file.
    repeated: f64,
    /// What lost hosts had when they came back, as a share of the file.
    resumed: Vec<f64>,
}

/// Runs all rounds, and prints what they gave. Errors: a round in which a promise was broken.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let rdmc = rdmc_beside_this()?;
    fs::create_dir_all(&args.directory)?;
    let scratch = tempfile::Builder::new().prefix("rdmc-chaos-").tempdir_in(&args.directory)?;
    let object = scratch.path().join("object");
    write_object(&object, args.bytes, args.seed, &interrupt)?;
    let mut labs = Vec::new();
    for &members in &args.members {
        let rate = Rate::from_mbit(u64::from(4_000 / members).min(1_000));
        labs.push(Lab::create(&LabSettings::new(members, Link::of_rate(rate)))?);
    }
    let mut tallies: BTreeMap<&'static str, Tally> = BTreeMap::new();
    let mut played = 0;
    let mut outcome: Outcome<()> = Ok(());
    for round in 0..args.rounds {
        let mut random = Random::new(args.seed.wrapping_add(u64::from(round)));
        let lab = &labs[round as usize % labs.len()];
        let fault = args.faults[(random.part() * args.faults.len() as f64) as usize];
        let ground = Ground {
            lab,
            rdmc: &rdmc,
            object: &object,
            directory: &scratch.path().join("copies"),
            bytes: args.bytes,
            failure_deadline: &args.failure_deadline,
        };
        let told = match ground.play(fault, &mut random, &interrupt) {
            Ok(told) => told,
            // What was played counts.
            Err(_) if interrupt.check().is_err() => break,
            Err(error) => {
                let (members, fault) = (lab.settings().hosts, fault.name());
                let seed = args.seed.wrapping_add(u64::from(round));
                outcome = Err(format!(
                    "round {round} (again: --seed {seed} --members {members} --rounds 1), {fault}: \
                     {error}"
                )
                .into());
                break;
            }
        };
        note(tallies.entry(fault.name()).or_default(), &told, args.bytes);
        played = round + 1;
        eprint!("\r{played} of {} rounds", args.rounds);
    }
    eprintln!();
    report(args, played, &tallies);
    outcome?;
    interrupt.check()
}

fn note(tally: &mut Tally, told: &Told, bytes: u64) {
    tally.rounds += 1;
    tally.lost += told.lost;
    tally.seconds.push(told.seconds_after_fault);
    tally.noticed_s.extend(&told.noticed_s);
    tally.repeated = tally.repeated.max(told.repeated_bytes as f64 / bytes as f64);
    tally.resumed.extend(told.resumed_bytes.iter().map(|&had| had as f64 / bytes as f64));
}

fn report(args: &Args, rounds: u32, tallies: &BTreeMap<&'static str, Tally>) {
    let what = format!(
        "{rounds} pushes of {} between hosts of a lab, each with some fault, and again without",
        size::show(args.bytes)
    );
    let columns = [
        "fault",
        "rounds",
        "lost_hosts",
        "noticed_s",
        "noticed_max_s",
        "seconds_after",
        "longest_s",
        "repeated_max",
        "resumed",
    ];
    let mut report = Report::new("chaos", what, &columns);
    for (&fault, tally) in tallies {
        let longest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let median_or_null = |values: &[f64]| match values {
            [] => json!(null),
            values => number(median(values.to_vec())),
        };
        report.row(vec![
            json!(fault),
            json!(tally.rounds),
            json!(tally.lost),
            median_or_null(&tally.noticed_s),
            number(longest(&tally.noticed_s)),
            number(median(tally.seconds.clone())),
            number(longest(&tally.seconds)),
            number(tally.repeated),
            median_or_null(&tally.resumed),
        ]);
    }
    report.note(
        "every round: hosts without a fault have equal copies, nobody else has a file of that name that is \
         not one, no process is left, and the same command again gives all hosts equal copies and \
         leaves no temporary file.",
    );
    report.note(format!(
        "noticed: from the fault until a member without one of a group that failed knew of it; median and \
         longest, over all members and rounds. Silence is noticed after {} s.",
        args.failure_deadline
    ));
    report.note(
        "seconds after: from the fault to the end of the push, the rest of the transfer included; \
         median and longest. repeated: bytes sent to a host that had them, at most, as a share of \
         the file. resumed: what a host that was lost had when it came back, median share.",
    );
    report.print(&args.output);
}
