//! Runs `rdmc bench`.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use files::{PushError, PushSettings};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::{Bench, BenchEvent, BenchPlan, MEASURED_BYTES_MAX, Subject};
use plan::size;
use rdmc::Error;

use super::{
    args::Args,
    report::{Document, Run},
    table,
};
use crate::{
    failure::{Exit, Failure, print_message},
    interrupt::Interrupt,
    json,
    launch::Launcher,
    output::{self, InUse},
    recording,
    replicate::{Start, add_last_line},
};

/// Message lengths for latency.
const LATENCY_BYTES: [u64; 2] = [1, 64 << 10];

/// Measures over each fabric in turn and prints the report.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    check(args)?;
    let interrupt = Interrupt::catch(args.json)?;
    let local = args.hosts.is_local();
    let mut settings = args.hosting.settings(args.hosts.plans()?, local)?;
    args.transfer.apply(&mut settings);
    let launcher = args.hosting.launcher(local)?;
    let mut in_use = InUse::default();
    in_use.add_hosts_file(args.hosts.hosts_file.as_ref());
    args.hosting.add_to(&mut in_use);
    let interrupt = interrupt.begin();
    let hosting = &args.hosting;
    let trace = hosting.trace.as_ref();
    let (mut document, traced) = recording::around(trace, &in_use, hosting.verbose, |recording| {
        measure_all(args, &settings, &launcher.recorded(recording), &interrupt)
    })?;
    document.exit_code = document.exit().and(traced);
    match write(args, &document) {
        Ok(()) => Ok(document.exit_code),
        Err(failure) if document.exit_code == Exit::Done => Err(failure),
        Err(failure) => {
            print_message(failure);
            Ok(document.exit_code)
        }
    }
}

fn measure_all(
    args: &Args,
    settings: &PushSettings,
    launcher: &Launcher,
    interrupt: &Interrupt,
) -> Result<Document, Failure> {
    let plan = BenchPlan {
        bytes: args.size,
        repeats: args.bandwidth_repeats(),
        latency_bytes: LATENCY_BYTES.to_vec(),
        latency_repeats: args.round_trips,
        collective: args.collective(),
    };
    let mut document = Document::new(args, &settings.hosts);
    for fabric in &args.fabric {
        let settings = PushSettings { fabric: fabric.0.clone(), ..settings.clone() };
        let asked = fabric.0.as_ref().map_or_else(|| "auto".into(), ToString::to_string);
        let run = measure(args, asked, settings, plan.clone(), launcher, interrupt)?;
        interrupt.check()?;
        run.failures().for_each(print_message);
        document.runs.push(run);
    }
    Ok(document)
}

/// Errors: arguments that no fabric supports.
fn check(args: &Args) -> Result<(), Failure> {
    if !(1..=MEASURED_BYTES_MAX).contains(&args.size) {
        let most = size::show(MEASURED_BYTES_MAX);
        return Err(Failure::Usage(format!("--size must be at least 1 byte and at most {most}")));
    }
    if let Some(Err(what)) = args.collective().map(|plan| plan.check()) {
        return Err(Failure::Usage(format!("--collective: {what}")));
    }
    if let Some(algorithm) = args.transfer.needs_racks() {
        return Err(Failure::Usage(format!(
            "{algorithm} needs racks, which rdmc bench does not support"
        )));
    }
    if args.transfer.is_in_switch() {
        return Err(Failure::Usage(
            "in-switch needs switches, which rdmc bench does not support".into(),
        ));
    }
    Ok(())
}

fn write(args: &Args, document: &Document) -> Result<(), Failure> {
    output::print(|out| {
        if args.json {
            return json::write_pretty(out, document);
        }
        table::write(document, out)
    })
}

/// One session over one fabric.
///
/// Errors: those that prevent all runs; other errors are in the run.
fn measure(
    args: &Args,
    asked: String,
    mut settings: PushSettings,
    plan: BenchPlan,
    launcher: &Launcher,
    interrupt: &Interrupt,
) -> Result<Run, Failure> {
    let names: Vec<String> = settings.hosts.iter().map(|host| host.name.clone()).collect();
    let start = Start::of(&mut settings, launcher)?;
    let bench = match Bench::open(settings, plan) {
        Ok(bench) => bench,
        Err(error @ (PushError::Setting(_) | PushError::Library(Error::Setting { .. }))) => {
            return Err(Failure::of_push(&error));
        }
        // Another fabric may work.
        Err(error) => return Ok(Run::refused(asked, &error)),
    };
    interrupt.watch(bench.handle());
    let (mut receivers, _) = start.receivers(launcher, bench.control_port(), &bench.handle())?;
    let progress = Progress::start(args.quiet || args.hosting.verbose, &asked);
    let mut report = bench.run(&mut |event| match event {
        BenchEvent::Host { host, .. } => receivers.has_connected(host),
        BenchEvent::Measuring { subject, bytes } => progress.show(subject, bytes, &names),
        BenchEvent::Collective { bytes } => progress.show_text(&size::show(bytes)),
    });
    receivers.end(&|host| report.failures[host].is_some());
    progress.end();
    if report.error.is_none() {
        for (host, reason) in report.failures.iter_mut().enumerate() {
            if let Some(reason) = reason {
                add_last_line(reason, host, &receivers);
            }
        }
    }
    Ok(Run::of(asked, &names, &report))
}

/// One line on standard error, if that is a terminal.
struct Progress {
    line: ProgressBar,
    fabric: String,
}

impl Progress {
    fn start(hidden: bool, fabric: &str) -> Self {
        let line = if hidden || !io::stderr().is_terminal() {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden())
        } else {
            ProgressBar::new_spinner()
        };
        line.set_style(
            ProgressStyle::with_template("{spinner} {msg}  {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        line.set_message(format!("{fabric}: starting"));
        line.enable_steady_tick(Duration::from_millis(250));
        Self { line, fabric: fabric.to_owned() }
    }

    fn show(&self, subject: Subject, bytes: u64, names: &[String]) {
        let what = match subject {
            Subject::Unicast(host) => format!("to {}", names[host]),
            Subject::Multicast => "to all".into(),
            Subject::Latency(host) => format!("to {} and back", names[host]),
        };
        self.show_text(&format!("{} {what}", size::show(bytes)));
    }

    fn show_text(&self, what: &str) {
        self.line.set_message(format!("{}: {what}", self.fabric));
    }

    fn end(&self) {
        self.line.finish_and_clear();
    }
}
