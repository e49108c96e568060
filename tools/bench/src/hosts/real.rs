//! Receivers on this machine, each a process.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use plan::size;
use serde_json::{Value, json};

use super::args::Args;
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    procfs::Watch,
    push_command::PushFiles,
    report::{Report, number},
    running::Running,
};

const SAMPLING_INTERVAL: Duration = Duration::from_millis(200);
const PUSH_TIMEOUT: Duration = Duration::from_secs(3600);

/// What the root held at most, at the times when it was looked at.
#[derive(Default)]
struct Held {
    descriptors: usize,
    watch: Watch,
}

pub(super) fn measure(args: &Args, report: &mut Report, interrupt: &Interrupt) -> Outcome<()> {
    for &receivers in args.receivers.iter().filter(|&&receivers| receivers > 0) {
        report.row(push(args, receivers, args.bytes, &["--dest", "{host}"], interrupt)?);
    }
    report.table("streams", "Streams, of which receivers keep nothing");
    for &receivers in args.stream_receivers.iter().filter(|&&receivers| receivers > 0) {
        let command = ["--pipe-to", "cat >/dev/null"];
        report.row(push(args, receivers, args.stream_bytes, &command, interrupt)?);
    }
    report.note(
        "All receivers share this machine's processors with the root. replicated: from the first byte sent until all have all; total: \
         with starting them, connecting, verifying and publishing. root: of the process that pushes; its threads and descriptors as seen \
         every 200 ms. Receivers are started by it, which takes a thread and a descriptor for each.",
    );
    Ok(())
}

fn push(
    args: &Args,
    receivers: usize,
    bytes: u64,
    options: &[&str],
    interrupt: &Interrupt,
) -> Outcome<Vec<(&'static str, Value)>> {
    let files = PushFiles::create(&args.directory, bytes, 1, interrupt)?;
    let is_stream = options[0] == "--pipe-to";
    let mut command = Command::new(&files.rdmc);
    command.arg("push").current_dir(files.directory());
    match is_stream {
        true => command.arg("-").stdin(File::open(&files.object)?),
        false => command.arg(&files.object).stdin(Stdio::null()),
    };
    command.args(["--local", &receivers.to_string(), "--timeout", "600", "--json"]).args(options);
    let printed = files.directory().join("summary.json");
    let mut push = Running::start(command.stdout(File::create(&printed)?))?;
    let (root, mut held) = (push.id(), Held::default());
    let status = push.wait(SAMPLING_INTERVAL, PUSH_TIMEOUT, interrupt, |_| {
        held.look_at(root);
        Ok(())
    })?;
    let summary: Value = serde_json::from_str(&fs::read_to_string(&printed)?)?;
    if !status.success() {
        return Err(format!("rdmc push to {receivers} receivers ended with {status}").into());
    }
    let copies = |path: &Path| fs::metadata(path).is_ok_and(|copy| copy.len() == bytes);
    let all = (1..=receivers).all(|of| copies(&files.directory().join(format!("local-{of}"))));
    if !is_stream && !all {
        return Err(format!("not all of {receivers} receivers have a copy").into());
    }
    let seconds = |name: &str| number(summary[name].as_f64().unwrap_or(f64::NAN));
    let resident = summary["peak_resident_bytes"].as_f64().unwrap_or(f64::NAN);
    Ok(vec![
        ("receivers", json!(receivers)),
        ("bytes", json!(size::show(bytes))),
        ("replicated_s", seconds("seconds")),
        ("total_s", seconds("total_seconds")),
        ("root_cpu_s", number(held.watch.cpu_seconds())),
        ("root_resident_mib", number(resident / f64::from(1 << 20))),
        ("root_threads", json!(held.watch.threads_max())),
        ("root_descriptors", json!(held.descriptors)),
    ])
}

impl Held {
    fn look_at(&mut self, root: u32) {
        self.watch.look_at(root);
        let open = fs::read_dir(format!("/proc/{root}/fd")).map_or(0, Iterator::count);
        self.descriptors = self.descriptors.max(open);
    }
}
