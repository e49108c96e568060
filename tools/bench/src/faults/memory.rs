//! Peak resident memory of `rdmc push` and of its receivers, for a file far larger than either.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use plan::size;
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    push_command::{rdmc_beside_this, write_object},
    report::{Output, Report, number},
    running::Running,
};

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
    /// The command to measure; unless given, the one beside this program
    #[arg(long, value_name = "FILE")]
    rdmc: Option<PathBuf>,
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

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Measures and prints.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let program = match &args.rdmc {
        Some(path) => path.clone(),
        None => rdmc_beside_this()?,
    };
    if !program.is_file() {
        let name = program.display();
        return Err(format!(
            "{name} is missing; build it: cargo build --release --locked -p rdmc-cli"
        )
        .into());
    }
    let scratch = Scratch(args.directory.join(format!("rdmc-bench-{}", std::process::id())));
    fs::create_dir_all(&scratch.0)?;
    let file = scratch.0.join("object");
    write_object(&file, args.size, 1, &interrupt)?;

    let start = Instant::now();
    let mut push = Running(
        Command::new(&program)
            .arg("push")
            .arg(&file)
            .args(["--local", &args.receivers.to_string()])
            .current_dir(&scratch.0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?,
    );
    let root = push.0.id();
    let mut peaks = BTreeMap::<u32, Peak>::new();
    let status = loop {
        interrupt.check()?;
        for process in descendants(root) {
            observe(peaks.entry(process).or_default(), process);
        }
        if let Some(status) = push.0.try_wait()? {
            break status;
        }
        thread::sleep(Duration::from_millis(20));
    };
    if !status.success() {
        return Err(format!("rdmc push ended with {status}").into());
    }
    let what = format!(
        "rdmc push of a file of {} to {} receivers on this machine, {:.1} s",
        size::show(args.size),
        args.receivers,
        start.elapsed().as_secs_f64()
    );
    let columns = ["process", "peak_resident_mib", "of_that_own_mib", "of_the_file"];
    let mut report = Report::new("memory", what, &columns);
    for (process, peak) in peaks.into_iter().filter(|(_, peak)| peak.resident_kib > 0) {
        let role = if process == root { "root".to_owned() } else { peak.command };
        report.row(vec![
            json!(role),
            number(peak.resident_kib as f64 / 1024.0),
            number(peak.anonymous_kib as f64 / 1024.0),
            number(peak.resident_kib as f64 * 1024.0 / args.size as f64),
        ]);
    }
    report.note(
        "peak resident: the kernel's own high-water mark, file pages that are mapped included. own: \
         memory that is no file's, sampled every 20 ms.",
    );
    report.print(&args.output);
    Ok(())
}

/// The process and all that it has started, directly or not.
fn descendants(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(process) = found.get(next) {
        let children =
            fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let children: Vec<u32> = children
            .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
            .flat_map(|text| text.split_whitespace().flat_map(str::parse).collect::<Vec<_>>())
            .collect();
        found.extend(children);
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
    if let Ok(line) = read("cmdline") {
        let words: Vec<&str> = line.split('\0').take(2).collect();
        let program = words.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        peak.command = format!("{program} {}", words.get(1).unwrap_or(&"")).trim().to_owned();
    }
}
