//! `rdmc push` while a hostile host floods every port with unauthenticated connections: what is left of its speed.

mod attack;
mod round;

use std::{fs::File, io::Write, os::unix::fs::OpenOptionsExt, path::PathBuf};

use lab::{Lab, LabSettings, Link, Rate};
use plan::size;
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    push_command::PushFiles,
    report::{Output, Report, median, name, number},
    sweep::alternate,
};
use attack::Kind;
pub use attack::{AttackArgs, attack, bystand};
use round::{RoundResult, Scenario};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Receivers: the root starts one, the others listen
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=32))]
    receivers: u32,
    /// Rate of each host's link, also of the hostile one's
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: Rate,
    /// Length of the file
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "256MiB")]
    bytes: u64,
    /// What the connections do
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "elsewhere,silent,slow-greeting,slow-hello,half-hello,connect-and-close,garbage,wrong-secret"
    )]
    kinds: Vec<Kind>,
    /// Pushes of each kind, and without such connections, alternating
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
    let files = PushFiles::create(&args.directory, args.bytes, 1, &interrupt)?;
    let secret = std::process::Command::new(&files.rdmc).arg("secret").output()?;
    let mut private = File::options();
    private.write(true).create_new(true).mode(0o600);
    private.open(files.directory().join("secret"))?.write_all(&secret.stdout)?;
    // Besides the receivers: the root, the bystander, and the hostile host.
    let lab = Lab::create(&LabSettings::new(args.receivers + 3, Link::of_rate(args.rate)))?;
    let scenario = Scenario { lab: &lab, files: &files };
    let kinds: Vec<Option<Kind>> =
        std::iter::once(None).chain(args.kinds.iter().copied().map(Some)).collect();
    let results = alternate(kinds.len(), args.repeats, "flood", |index| {
        let result = scenario.run(kinds[index], &interrupt);
        result.map_err(|error| format!("{}: {error}", kind_name(kinds[index])).into())
    })?;
    report(args, &kinds, &results);
    Ok(())
}

fn kind_name(kind: Option<Kind>) -> String {
    kind.map_or("none".to_owned(), |kind| name(&kind))
}

fn report(args: &Args, kinds: &[Option<Kind>], results: &[Vec<RoundResult>]) {
    let what = format!(
        "push of {} to {} receivers over links of {}, {} times with each kind of unauthenticated \
         connections to every port, alternating",
        size::show(args.bytes),
        args.receivers,
        args.rate,
        args.repeats,
    );
    let mut report = Report::new("flood", what);
    let undisturbed = median(results[0].iter().map(|result| result.seconds).collect());
    for (&kind, results) in kinds.iter().zip(results) {
        let of = |value: fn(&RoundResult) -> f64| median(results.iter().map(value).collect());
        let seconds = of(|result| result.seconds);
        report.row([
            ("strangers", json!(kind_name(kind))),
            ("of_undisturbed", number(undisturbed / seconds)),
            ("mbit_per_s", number(args.bytes as f64 * 8.0 / 1e6 / seconds)),
            ("total_s", number(of(|result| result.total_seconds))),
            ("cpu_s", number(of(|result| result.cpu_seconds))),
            ("threads_max", json!(of(|result| result.threads_max as f64) as u64)),
            (
                "connections_per_s",
                number(of(|result| result.connections as f64 / result.total_seconds)),
            ),
        ]);
    }
    report.note(
        "Medians. of undisturbed: speed of the transfer relative to that without such connections; \
         total: with connecting, verifying and publishing; cpu: root and receivers, user and system, \
         from the first receiver's start; threads: the most that one of them had.",
    );
    report.note(
        "The hostile host has a link as the others, and shares this machine's processors with them. It \
         runs at the lowest priority, but the kernel does much of the victims' receiving while the \
         hostile host sends. elsewhere: the same flood at a host that takes no part, which shows what \
         the attack costs by running on this machine.",
    );
    report.print(&args.output);
}
