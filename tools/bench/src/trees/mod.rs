//! Directories of few large and of many small files to hosts of a lab: `rdmc push` beside rsync, to one host and to all at once,
//! a chain of `tar | socat`, and MPI (docs/guide/directories.md).

mod chain;
mod mpi;
mod site;
mod source;
mod way;

use std::path::PathBuf;

use lab::{Link, Rate};
use plan::size;
use serde_json::{Value, json};

use self::{
    site::{Run, Site},
    source::{Kind, Source},
    way::Way,
};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    peers::{versions, workspace::need},
    push_command::PushFiles,
    report::{Cell, Output, Report, median, number},
    sweep::alternate,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Receivers, each on a host of its own
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=32))]
    receivers: u32,
    /// Rate of the links, of TCP payload
    #[arg(long, default_value = "250mbit")]
    rate: Rate,
    /// Length of the one file, and of all large files together
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    bytes: u64,
    /// Number of large files
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    large: u32,
    /// Number of small files
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    small: u32,
    /// Length of each small file
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "4KiB")]
    small_bytes: u64,
    /// Only these sources
    #[arg(long, value_name = "SOURCES", value_delimiter = ',')]
    sources: Vec<Kind>,
    /// Only these ways
    #[arg(long, value_name = "WAYS", value_delimiter = ',')]
    ways: Vec<Way>,
    /// How often each is measured, alternating; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Where sources and copies go; needs room for all of them
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// These, or all if there are none.
fn wanted<T: clap::ValueEnum>(chosen: &[T]) -> Vec<T> {
    let all = T::value_variants();
    if chosen.is_empty() { all.to_vec() } else { chosen.to_vec() }
}

/// Measures and prints. Errors: not root; a missing program, with its package; a copy that was not made, or differs.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let ways = wanted(&args.ways);
    for (program, packages) in ways.iter().flat_map(|way| way.needs()) {
        need(program, packages).map_err(|error| format!("{error}; or choose others: --ways"))?;
    }
    let files = PushFiles::create(&args.directory, args.bytes, 1, &interrupt)?;
    let link = Link::of_rate(args.rate);
    let site = Site::set_up((args.receivers, link), &ways, &files, &interrupt)?;
    let what = format!(
        "files to {} hosts over links of {}, from start to end of the command, in {}; median of {}",
        args.receivers,
        args.rate,
        args.directory.display(),
        args.repeats,
    );
    let mut report = Report::new("trees", what);
    for kind in wanted(&args.sources) {
        let source = args.make(kind, &files, &interrupt)?;
        let runs = alternate(ways.len(), args.repeats, source.name, |index| {
            site.measure(ways[index], &source, &interrupt)
        })?;
        for (way, runs) in ways.iter().zip(&runs) {
            report.row(row(&source, *way, runs));
        }
    }
    report.note(
        "Copies are on disk in the end: rdmc sees to that itself, after others the file system is written to disk, within their \
         time. Sources are not in the page cache (unless they are in memory). All contents are compared at one host.",
    );
    report.note(
        "s: what listens on hosts (receivers, rsync's daemons, socat) has started before; MPI has not: start s is its part. \
         fastest s, slowest s: of all runs. again s: the same command once more, when all is there.",
    );
    if let Some(list) = versions(&["rsync", "socat", "tar", "openmpi-bin"]) {
        report.note(format!("Installed: {list}."));
    }
    report.print(&args.output);
    Ok(())
}

impl Args {
    fn make(&self, kind: Kind, files: &PushFiles, interrupt: &Interrupt) -> Outcome<Source> {
        let at = |name: &str| files.directory().join(name);
        let each = (self.bytes / u64::from(self.large)).max(1);
        let small = (self.small, self.small_bytes);
        match kind {
            Kind::One => {
                let (name, path) = ("one file", files.object.clone());
                Ok(Source { name, path, files: 1, bytes: self.bytes })
            }
            Kind::Large => Source::make("large files", at("large"), (self.large, each), interrupt),
            Kind::Small => Source::make("small files", at("small"), small, interrupt),
        }
    }
}

fn row(source: &Source, way: Way, runs: &[Run]) -> Vec<Cell> {
    let all = |value: fn(&Run) -> Option<f64>| runs.iter().filter_map(value).collect::<Vec<_>>();
    let seconds = all(|run| Some(run.seconds));
    let fastest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let slowest = seconds.iter().copied().fold(0.0, f64::max);
    let middle = median(seconds);
    let most = |value: fn(&Run) -> Option<u64>| {
        let most = runs.iter().filter_map(value).max();
        most.map_or(Value::Null, |bytes| json!(bytes >> 20))
    };
    vec![
        ("what", json!(source.name)),
        ("files", json!(source.files)),
        ("MiB", number(source.bytes as f64 / f64::from(1 << 20))),
        ("way", json!(way.name())),
        ("s", number(middle)),
        ("fastest s", number(fastest)),
        ("slowest s", number(slowest)),
        ("Mbit/s to each", number(source.bytes as f64 * 8e-6 / middle)),
        ("start s", number(median(all(|run| run.start_seconds)))),
        ("again s", number(median(all(|run| run.again_seconds)))),
        ("root MiB", most(|run| run.root_bytes)),
        ("receiver MiB", most(|run| run.receiver_bytes)),
    ]
}
