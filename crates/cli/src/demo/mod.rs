//! `rdmc demo`: compares replication with sequential copies, on this machine.

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
use rdmc::{Algorithm, Fabric, Protection, Schedule, Secret};

use crate::{
    failure::{Exit, Failure, print_message},
    interrupt::Interrupt,
    launch::Launcher,
    output::{self, InUse},
    push::{Display, local_hosts, summary},
    recording::{self, Recording},
    replicate::replicate,
};
use object::Object;
use table::Row;

/// The algorithms to compare, with their names in the table.
const RUNS: [(Algorithm, &str); 3] = [
    (Algorithm::BinomialPipeline, "binomial pipeline"),
    (Algorithm::Chain, "chain"),
    (Algorithm::Sequential, "one by one"),
];

const NOTES: &str = "\
The demo runs the code of `rdmc push --local`: each receiver is a process of its own that receives
over TCP. Every copy is checked by an independently computed hash. All files of the demo are removed
at the end.";

/// Replicate a file to receivers on this machine, and compare with copying one by one
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The file to replicate; default: random data
    file: Option<PathBuf>,

    /// Number of receivers
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=256))]
    receivers: u16,

    /// Amount of random data, if no file is given
    #[arg(long, default_value = "256MiB", value_parser = size::parse, conflicts_with = "file")]
    size: u64,

    /// Directory for the copies; default: the system's directory for temporary files
    #[arg(long)]
    dir: Option<PathBuf>,

    /// Size of the blocks that receivers relay
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = size::parse_block)]
    block_size: u64,

    /// Encrypt blocks in transit, to measure the cost
    #[arg(long)]
    encrypt: bool,

    /// Write a trace of all members for https://ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print no progress, only the table
    #[arg(short, long)]
    quiet: bool,
}

/// Runs all algorithms and prints the table. Errors: a copy is missing or wrong.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let directory = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let receivers = usize::from(args.receivers);
    object::check_space(&directory, args.file.as_deref(), args.size, receivers)?;
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
    let object = match &args.file {
        Some(path) => Object::existing(path)?,
        None => Object::random(&directory.path().join("object"), args.size, interrupt)?,
    };
    let (bytes, block) = (size::show(object.bytes), size::show(args.block_size));
    print(format_args!("{bytes} to {receivers} receivers on this machine, blocks of {block}\n"));
    let comparison =
        Comparison { args, object: &object, directory: directory.path(), interrupt, recording };
    let mut rows = vec![comparison.run("one copy", Algorithm::BinomialPipeline, 1)?];
    for (algorithm, name) in RUNS {
        rows.push(comparison.run(name, algorithm, receivers)?);
    }
    print(table::draw(&rows, object.bytes));
    print("Every copy was verified: its BLAKE3 hash is the original's.\n");
    directory.close().map_err(Failure::while_doing("removing the copies"))
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
        let schedule =
            Schedule::new(algorithm, receivers as u32 + 1, 0).map_err(Failure::because)?;
        // Fits: a push with more blocks does not start.
        let blocks = self.object.bytes.div_ceil(self.args.block_size) as u32;
        Ok(Row { name, receivers, time, steps: schedule.steps(blocks) })
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
        settings.block_bytes = Some(self.args.block_size);
        settings.local_only = true;
        settings.protection = match self.args.encrypt {
            true => Protection::Encrypt,
            false => Protection::None,
        };
        settings.fabric = Some(Fabric::Tcp);
        let source = Source::open(&self.object.path).map_err(Failure::because)?;
        let names: Vec<String> = settings.hosts.iter().map(|host| host.name.clone()).collect();
        let mut display = Display::new(&names, self.object.bytes, self.args.quiet);
        display.set_title(name);
        let launcher = Launcher::local(false)?.recorded(self.recording);
        let report = replicate(source, settings, &launcher, self.interrupt, &mut |event| {
            display.show(&event);
        });
        display.finish();
        report
    }
}
