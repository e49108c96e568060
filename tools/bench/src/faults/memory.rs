//! Peak resident memory of `rdmc push` and of its receivers, for a file far larger than either.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use plan::size;
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    procfs::children,
    push_command::PushFiles,
    report::{Output, Report, number},
    running::Running,
};

const SAMPLING_INTERVAL: Duration = Duration::from_millis(20);
const PUSH_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Length of the file
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "4GiB")]
    size: u64,
    /// Receivers on this machine
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    receivers: u32,
    /// Where the file and its copies go; needs room for all of them
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// The largest values seen of one process.
#[derive(Clone, Debug, Default)]
struct Peak {
    command: String,
    resident_kib: u64,
    anonymous_kib: u64,
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let files = PushFiles::create(&args.directory, args.size, 1, &interrupt)?;
    let start = Instant::now();
    let mut push = Running::start(
        Command::new(&files.rdmc)
            .arg("push")
            .arg(&files.object)
            .args(["--local", &args.receivers.to_string()])
            .current_dir(files.directory())
            .stdin(Stdio::null())
            .stdout(Stdio::null()),
    )?;
    let root = push.id();
    let mut peaks = BTreeMap::<u32, Peak>::new();
    let status = push.wait(SAMPLING_INTERVAL, PUSH_TIMEOUT, &interrupt, |_| {
        for process in descendants(root) {
            observe(peaks.entry(process).or_default(), process);
        }
        Ok(())
    })?;
    if !status.success() {
        return Err(format!("rdmc push ended with {status}").into());
    }
    let what = format!(
        "rdmc push of a file of {} to {} receivers on this machine, {:.1} s",
        size::show(args.size),
        args.receivers,
        start.elapsed().as_secs_f64()
    );
    let mut report = Report::new("memory", what);
    for (process, peak) in peaks.into_iter().filter(|(_, peak)| peak.resident_kib > 0) {
        let role = if process == root { "root".to_owned() } else { peak.command };
        report.row([
            ("process", json!(role)),
            ("peak_resident_mib", number(peak.resident_kib as f64 / 1024.0)),
            ("of_that_own_mib", number(peak.anonymous_kib as f64 / 1024.0)),
            ("of_the_file", number(peak.resident_kib as f64 * 1024.0 / args.size as f64)),
        ]);
    }
    report.note(
        "peak resident: the kernel's own high-water mark, mapped file pages included. own: anonymous \
         memory, sampled every 20 ms.",
    );
    report.print(&args.output);
    Ok(())
}

/// The process and all that it has started, directly or not.
fn descendants(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        found.extend(children(process));
        next += 1;
    }
    found
}

fn observe(peak: &mut Peak, process: u32) {
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}"));
    let Ok(status) = read("status") else { return };
    let field = |name: &str| -> u64 {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.trim_start_matches(':').split_whitespace().next())
            .and_then(|number| number.parse().ok())
            .unwrap_or(0)
    };
    peak.resident_kib = peak.resident_kib.max(field("VmHWM"));
    peak.anonymous_kib = peak.anonymous_kib.max(field("RssAnon"));
    // A process that has ended and is not reaped has an empty one.
    if let Some(line) = read("cmdline").ok().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split('\0').take(2).collect();
        let program = words.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        peak.command = format!("{program} {}", words.get(1).unwrap_or(&"")).trim().to_owned();
    }
}
