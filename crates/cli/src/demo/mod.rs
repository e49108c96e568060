//! `rdmc demo`: compares ways to make copies, on this machine; each member has a rate limit, like a host with its own link.

mod limit;
mod object;
mod table;

use std::{
    fmt,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use files::{HostReport, PushReport, PushSettings, Source};
use plan::size;
use rdmc::{Algorithm, Fabric, Protection, Secret};

use crate::{
    failure::{Exit, Failure, print_message},
    hosting::protections,
    interrupt::Interrupt,
    launch::Launcher,
    output::{self, InUse},
    push::{Display, local_hosts, summary},
    recording::{self, Recording},
    replicate::replicate,
};
use limit::Limit;
use object::Object;
use table::Row;

/// Algorithms that are compared with one copy, and their names in the table.
const RUNS: [(Algorithm, &str); 2] =
    [(Algorithm::Sequential, "one by one"), (Algorithm::BinomialPipeline, "rdmc")];
/// The same with `--algorithms`.
const ALL_RUNS: [(Algorithm, &str); 4] = [
    (Algorithm::Sequential, "one by one"),
    (Algorithm::BinomialTree, "binomial tree"),
    (Algorithm::Chain, "chain"),
    (Algorithm::BinomialPipeline, "binomial pipeline"),
];

/// The approximate time of all runs together, if no amount of data is given.
const ALL_SECONDS: u64 = 20;
/// The minimum and maximum of random data, if no amount is given.
const BYTES_MIN: u64 = 1 << 20;
const BYTES_MAX: u64 = 256 << 20;
/// The most data of the transfer that measures this machine.
const SAMPLE_BYTES: u64 = 32 << 20;
/// The default block size without a limit: larger blocks take less processor time, then the bottleneck.
const UNLIMITED_BLOCK_BYTES: u64 = 256 << 10;
/// The default block size with a limit, for a long object.
const LIMITED_BLOCK_BYTES: u64 = 64 << 10;
/// The minimum number of blocks of an object of 4 MiB or more, with the default block size.
const BLOCKS_MIN: u64 = 256;

const NOTES: &str = "\
The demo runs the code of `rdmc push --local --bwlimit RATE`: each receiver is a separate process that receives over
TCP, and no process sends or receives more than RATE. Without a limit, this machine's processors are the bottleneck,
and every way of copying takes the same amount of work: see `--bwlimit none`. Every copy is checked by an independently
computed hash. All files of the demo are removed at the end.";

/// Replicate a file to receivers on this machine, and compare with one copy and with copying one by one
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The file to replicate; default: random data
    file: Option<PathBuf>,

    /// Number of receivers
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=256))]
    receivers: u16,

    /// Amount of random data if no file is given; default: enough for about 20 seconds in all, at most 256 MiB
    #[arg(long, value_parser = size::parse_nonzero, conflicts_with = "file")]
    size: Option<u64>,

    /// Rate limit of each member, such as 500mbit; none: no limit; auto: about a third of this machine's rate, which a
    /// short transfer measures first
    #[arg(long, value_name = "RATE", default_value = "auto")]
    bwlimit: Limit,

    /// Directory for the copies; default: the system's directory for temporary files
    #[arg(long)]
    dir: Option<PathBuf>,

    /// Size of the blocks that receivers relay; default: 64 KiB, or 256 KiB without a limit; less for short files
    #[arg(long, value_name = "SIZE", value_parser = size::parse_block)]
    block_size: Option<u64>,

    /// Compare further algorithms
    #[arg(long)]
    algorithms: bool,

    /// Protection of blocks in transit, to measure its cost: encrypt or none
    #[arg(long, value_name = "HOW", default_value = "none", value_parser = protections(), hide_possible_values = true)]
    protect: Protection,

    /// Write a trace of all members for https://ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print no progress, only the table
    #[arg(short, long)]
    quiet: bool,
}

/// Runs all ways to make the copies and prints the table. Errors: a copy is missing or wrong.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let directory = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let receivers = usize::from(args.receivers);
    if let Some(directory) = args.file.as_ref().filter(|file| file.is_dir()) {
        let what = format!("{} is a directory; the demo copies a file", directory.display());
        return Err(Failure::Usage(what));
    }
    let bytes_max = args.size.unwrap_or(BYTES_MAX);
    object::check_space(&directory, args.file.as_deref(), bytes_max, receivers)?;
    let mut in_use = InUse::default();
    if let Some(file) = &args.file {
        in_use.add("the file to replicate", file);
    }
    let interrupt = Interrupt::catch(false)?.begin();
    let ((), traced) = recording::around(args.trace.as_ref(), &in_use, false, |recording| {
        run_all(args, &directory, &interrupt, recording)
    })?;
    Ok(traced)
}

fn run_all(
    args: &Args,
    directory: &Path,
    interrupt: &Interrupt,
    recording: Option<&Arc<Recording>>,
) -> Result<(), Failure> {
    let receivers = usize::from(args.receivers);
    let directory = tempfile::Builder::new().prefix("rdmc-demo-").tempdir_in(directory).map_err(
        Failure::while_doing(format_args!("making a directory in {}", directory.display())),
    )?;
    let limit = match args.bwlimit {
        Limit::None => None,
        Limit::Rate(rate) => Some(rate),
        Limit::Auto => Some(measured_limit(args, directory.path(), interrupt, recording)?),
    };
    let object = match &args.file {
        Some(path) => Object::existing(path)?,
        None => {
            let bytes = args.size.unwrap_or_else(|| bytes_for(limit, receivers));
            Object::random(&directory.path().join("object"), bytes, interrupt)?
        }
    };
    let block_bytes = block_bytes(args, limit, object.bytes);
    let (bytes, block) = (size::show(object.bytes), size::show(block_bytes));
    print(format_args!("{bytes} to {receivers} receivers on this machine, blocks of {block}.\n"));
    print(describe(limit));
    let comparison = Comparison {
        args,
        object: &object,
        block_bytes,
        limit,
        directory: directory.path(),
        interrupt,
        recording,
    };
    print(table::head());
    let one_copy = comparison.run("one copy", Algorithm::BinomialPipeline, 1)?;
    let first = one_copy.time;
    print(one_copy.line(object.bytes, first));
    let runs: &[_] = if args.algorithms { &ALL_RUNS } else { &RUNS };
    for &(algorithm, name) in runs {
        print(comparison.run(name, algorithm, receivers)?.line(object.bytes, first));
    }
    print("\nEvery copy was verified: its BLAKE3 hash is the original's.\n");
    directory.close().map_err(Failure::while_doing("removing the copies"))
}

/// Measures the rate of this machine by a short transfer, and returns the limit derived from it, in bits per second.
fn measured_limit(
    args: &Args,
    directory: &Path,
    interrupt: &Interrupt,
    recording: Option<&Arc<Recording>>,
) -> Result<u64, Failure> {
    let bytes = match &args.file {
        Some(path) => Source::open(path).map_err(Failure::because)?.manifest().bytes,
        None => args.size.unwrap_or(SAMPLE_BYTES),
    };
    let bytes = bytes.clamp(1, SAMPLE_BYTES);
    let sample = Object::random(&directory.join("sample"), bytes, interrupt)?;
    let comparison = Comparison {
        args,
        object: &sample,
        block_bytes: block_bytes(args, None, bytes),
        limit: None,
        directory,
        interrupt,
        recording,
    };
    let receivers = usize::from(args.receivers);
    let row = comparison.run("measuring", Algorithm::BinomialPipeline, receivers)?;
    std::fs::remove_file(&sample.path).map_err(Failure::while_doing("removing the sample"))?;
    Ok(limit::of_machine(bytes, row.time))
}

/// The length of the object, if none was given: all runs together take about [`ALL_SECONDS`].
fn bytes_for(limit: Option<u64>, receivers: usize) -> u64 {
    // One copy, one for each receiver, and the time of one for all.
    let copies = receivers as u64 + 2;
    let bytes = limit.map_or(BYTES_MAX, |bits| bits / 8 * ALL_SECONDS / copies);
    let whole = bytes.clamp(BYTES_MIN, BYTES_MAX);
    whole - whole % BYTES_MIN
}

fn block_bytes(args: &Args, limit: Option<u64>, bytes: u64) -> u64 {
    let usual = if limit.is_some() { LIMITED_BLOCK_BYTES } else { UNLIMITED_BLOCK_BYTES };
    let fitting = (bytes / BLOCKS_MIN).max(1).next_power_of_two();
    args.block_size.unwrap_or_else(|| fitting.clamp(16 << 10, usual))
}

fn describe(limit: Option<u64>) -> String {
    match limit {
        Some(rate) => format!(
            "No member sends or receives more than {}, like a host with a link of its own.\n",
            size::show_rate(rate)
        ),
        None => "All members share this machine's processors and memory, and every way of copying takes the same amount of \
                 work.\n"
            .to_owned(),
    }
}

/// Prints to standard output; errors do not end the demo.
fn print(words: impl fmt::Display) {
    if let Err(failure) = output::print(|out| write!(out, "{words}")) {
        print_message(failure);
    }
}

/// The parameters of all runs.
struct Comparison<'a> {
    args: &'a Args,
    object: &'a Object,
    block_bytes: u64,
    /// Of each member, in bits per second.
    limit: Option<u64>,
    directory: &'a Path,
    interrupt: &'a Interrupt,
    recording: Option<&'a Arc<Recording>>,
}

impl Comparison<'_> {
    /// One push to new destinations; the copies are checked and removed.
    fn run(
        &self,
        name: &'static str,
        algorithm: Algorithm,
        receivers: usize,
    ) -> Result<Row, Failure> {
        let copies = self.directory.join("copies");
        let template = copies.join("{host}/copy");
        let template = template.to_str().ok_or_else(|| {
            Failure::Usage(format!("{} is not UTF-8; use --dir", self.directory.display()))
        })?;
        let hosts = local_hosts(&self.object.path, receivers, template)?;
        let places: Vec<PathBuf> = hosts.iter().map(|host| (&host.destination).into()).collect();
        for directory in places.iter().filter_map(|place| place.parent()) {
            std::fs::create_dir_all(directory)
                .map_err(Failure::while_doing("making directories"))?;
        }
        let report = self.push(name, algorithm, hosts)?;
        self.interrupt.check()?;
        if let Some(error) = &report.error {
            return Err(Failure::Failed(format!("{name}: {error}")));
        }
        if let Some((host, reason)) = summary::failures(&report).next() {
            return Err(Failure::Failed(format!("{name}: {host}: {reason}")));
        }
        for (place, HostReport { name: host, .. }) in places.iter().zip(&report.hosts) {
            self.interrupt.check()?;
            self.object.check_copy(place, &format!("{name}: {host}"))?;
        }
        std::fs::remove_dir_all(&copies).map_err(Failure::while_doing("removing the copies"))?;
        let time = report
            .replication
            .ok_or_else(|| Failure::Failed(format!("{name}: nothing was sent")))?;
        Ok(Row { name, receivers, time })
    }

    fn push(
        &self,
        name: &str,
        algorithm: Algorithm,
        hosts: Vec<files::HostPlan>,
    ) -> Result<PushReport, Failure> {
        let secret = Secret::random().map_err(Failure::while_doing("making a secret"))?;
        let mut settings = PushSettings::new(hosts, secret);
        settings.algorithm = Some(algorithm);
        settings.block_bytes = Some(self.block_bytes);
        settings.rate_max = self.limit.map(|bits| bits / 8);
        settings.local_only = true;
        settings.protection = Some(self.args.protect);
        settings.fabric = Some(Fabric::Tcp);
        let source = Source::open(&self.object.path).map_err(Failure::because)?;
        let names: Vec<String> = settings.hosts.iter().map(|host| host.name.clone()).collect();
        let mut display = Display::new(&names, self.object.bytes, self.args.quiet);
        display.set_title(name);
        let launcher = Launcher::local(false).recorded(self.recording);
        let report = replicate(source, settings, &launcher, self.interrupt, &mut |event| {
            display.show(&event);
        });
        display.finish();
        report
    }
}
