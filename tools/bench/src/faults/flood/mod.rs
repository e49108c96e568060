//! `rdmc push` while a hostile host floods every port with strangers: what is left of its speed.

mod attack;
mod round;

use std::{collections::BTreeMap, fs, path::PathBuf};

use lab::{Lab, LabSettings, Link, Rate};
use plan::size;
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    push_command::{rdmc_beside_this, write_object},
    report::{Output, Report, median, number},
};
use attack::Kind;
pub use attack::{AttackArgs, attack, stand_by};
use round::{Ground, Told};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Receivers: the root starts one, the others listen
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    receivers: u32,
    /// Rate of each host's link, the hostile one's, too
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: Rate,
    /// Length of the file
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "256MiB")]
    bytes: u64,
    /// What strangers do
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "elsewhere,silent,slow-greeting,slow-hello,half-hello,connect-and-close,garbage,wrong-secret"
    )]
    kinds: Vec<Kind>,
    /// Pushes of each kind, and without strangers, by turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Where the file and its copies go; needs room for all of them
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Pushes, and prints. Errors: not root; a push that did not reach all.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let rdmc = rdmc_beside_this()?;
    let scratch = tempfile::Builder::new().prefix("rdmc-flood-").tempdir_in(&args.directory)?;
    let directory = scratch.path();
    write_object(&directory.join("object"), args.bytes, 1, &interrupt)?;
    let secret = std::process::Command::new(&rdmc).arg("secret").output()?;
    fs::write(directory.join("secret"), secret.stdout)?;
    // The root, the host that takes no part, and the hostile one.
    let lab = Lab::create(&LabSettings::new(args.receivers + 3, Link::of_rate(args.rate)))?;
    let ground = Ground { lab: &lab, rdmc: &rdmc, directory };
    let kinds: Vec<Option<Kind>> =
        std::iter::once(None).chain(args.kinds.iter().copied().map(Some)).collect();
    let mut told: BTreeMap<&'static str, Vec<Told>> = BTreeMap::new();
    for round in 0..args.repeats {
        for &kind in &kinds {
            let outcome = ground.play(kind, &interrupt);
            let outcome = outcome.map_err(|error| format!("{}: {error}", name(kind)))?;
            told.entry(name(kind)).or_default().push(outcome);
        }
        eprint!("\r{} of {} rounds", round + 1, args.repeats);
    }
    eprintln!();
    report(args, &kinds, &told);
    Ok(())
}

fn name(kind: Option<Kind>) -> &'static str {
    kind.map_or("none", Kind::name)
}

fn report(args: &Args, kinds: &[Option<Kind>], told: &BTreeMap<&'static str, Vec<Told>>) {
    let what = format!(
        "push of {} to {} receivers over links of {}, {} times with each kind of strangers at \
         every port, by turns",
        size::show(args.bytes),
        args.receivers,
        args.rate,
        args.repeats,
    );
    let columns = [
        "strangers",
        "of_undisturbed",
        "mbit_per_s",
        "total_s",
        "cpu_s",
        "threads_max",
        "connections_per_s",
    ];
    let mut report = Report::new("flood", what, &columns);
    let of = |name: &str, value: fn(&Told) -> f64| {
        median(told.get(name).into_iter().flatten().map(value).collect())
    };
    let undisturbed = of("none", |told| told.seconds);
    for name in kinds.iter().map(|&kind| name(kind)) {
        let seconds = of(name, |told| told.seconds);
        report.row(vec![
            json!(name),
            number(undisturbed / seconds),
            number(args.bytes as f64 * 8.0 / 1e6 / seconds),
            number(of(name, |told| told.total_seconds)),
            number(of(name, |told| told.cpu_seconds)),
            json!(of(name, |told| told.threads_max as f64) as u64),
            number(of(name, |told| told.connections as f64 / told.total_seconds)),
        ]);
    }
    report.note(
        "Medians. of undisturbed: speed of the transfer beside that without strangers; total: with \
         finding each other, verifying and publishing; cpu: root and receivers, user and system, \
         from the first receiver's start; threads: the most that one of them had.",
    );
    report.note(
        "The hostile host has a link as the others, and shares this machine's processors with them. It \
         runs at the lowest priority, but the kernel does much of the victims' receiving while the \
         hostile host sends. elsewhere: the same flood at a host that takes no part, which is what \
         the attack takes from everybody just by being on this machine; strangers at the members \
         cost what is lost beyond that.",
    );
    report.print(&args.output);
}
