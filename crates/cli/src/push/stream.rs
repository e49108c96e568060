//! `rdmc push -` and `rdmc push --follow`: a stream to many hosts.

use std::{
    io::{self, Read, Write},
    path::Path,
    time::{Duration, Instant},
};

use files::{HostState, PushEvent, PushSettings, Stream, StreamReport, StreamSettings};
use plan::size;
use serde::Serialize;

use super::{
    args::Args,
    follow::Follow,
    run::{add_to, launcher, settings},
    sources::Sources,
    summary::{bandwidth, print_shared, seconds, state_and_error},
};
use crate::{
    failure::{Exit, Failure, plain, print_message},
    interrupt::Interrupt,
    json,
    launch::Launcher,
    output::{self, InUse},
    progress::Mode,
    recording,
    replicate::{Start, add_last_line},
};

/// How often progress is printed.
const INTERVAL: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Summary<'a> {
    /// The number of bytes read.
    bytes: u64,
    /// The number of bytes that every host has that has not failed.
    prefix_bytes: u64,
    /// The BLAKE3 digest of the whole stream.
    digest: Option<String>,
    exit_code: Exit,
    fabric: Option<String>,
    total_seconds: f64,
    error: Option<String>,
    hosts: Vec<HostSummary<'a>>,
}

#[derive(Serialize)]
struct HostSummary<'a> {
    host: &'a str,
    /// `published`: written out and verified; `failed`; `unknown`.
    state: &'static str,
    /// The number of bytes that it has reported as written out.
    bytes: u64,
    /// The last line of output of its command.
    said: Option<&'a str>,
    error: Option<&'a str>,
}

/// Replicates standard input, or a growing file, and prints the summary.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interrupt = Interrupt::catch(args.json)?;
    refuse(args)?;
    let sources = Sources::of(&args.sources, false)?;
    let settings = settings(args, &sources)?;
    let (input, mode): (Box<dyn Read + Send>, _) = match args.follow {
        true => {
            let (idle, quiet) = (args.follow_idle.map(Duration::from_secs), args.quiet);
            let say = move |words: &str| {
                if !quiet {
                    print_message(words)
                }
            };
            let follow = Follow::open(sources.first(), idle, say)?;
            let mode = follow.mode()?;
            (Box::new(follow), Some(mode))
        }
        false => (Box::new(io::stdin()), None),
    };
    let stream = StreamSettings { mode, command: args.pipe_to.clone() };
    let launcher = launcher(args)?;
    let mut in_use = InUse::default();
    let from = if args.follow { sources.first() } else { Path::new("/dev/stdin") };
    in_use.add("what is replicated", from);
    add_to(&mut in_use, args, &settings)?;
    let interrupt = interrupt.begin();
    let (trace, verbose) = (args.hosting.trace.as_ref(), args.hosting.verbose);
    let (report, traced) = recording::around(trace, &in_use, verbose, |recording| {
        let launcher = launcher.recorded(recording);
        replicate(args, input, settings, stream, &launcher, &interrupt)
    })?;
    let exit = exit(&report, interrupt.happened()).and(traced);
    print(args, &report, exit);
    Ok(exit)
}

/// Errors: options that have no meaning for a stream.
fn refuse(args: &Args) -> Result<(), Failure> {
    let used = [
        (args.sources.len() > 1, "several sources"),
        (args.dry_run, "--dry-run"),
        (args.checksum, "--checksum"),
        (args.atomic, "--atomic"),
        (args.delete, "--delete"),
        (args.links, "--links"),
        (args.attributes.option().is_some(), args.attributes.option().unwrap_or_default()),
        (args.patterns.option().is_some(), args.patterns.option().unwrap_or_default()),
        (args.retry > 0, "--retry"),
        (args.all_or_none, "--all-or-none"),
        (args.source_hosts.is_some(), "--source-hosts"),
        (args.admit.is_some(), "--admit"),
        (args.switch.is_some(), "--switch"),
        (args.min_rate.is_some(), "--min-rate"),
    ];
    if let Some((_, what)) = used.iter().find(|(is_used, _)| *is_used) {
        return Err(Failure::Usage(format!(
            "{what} cannot be used with a stream; write it to a file and push that"
        )));
    }
    if args.follow && args.sources.iter().any(|source| source.as_os_str() == "-") {
        return Err(Failure::Usage(
            "--follow takes a file; standard input is read until it ends anyway".into(),
        ));
    }
    let hosts_from_input = args.hosts_file.as_ref().is_some_and(|file| file.as_os_str() == "-");
    if hosts_from_input && !args.follow {
        return Err(Failure::Usage(
            "standard input cannot be both the stream and the hosts; name a file of hosts".into(),
        ));
    }
    Ok(())
}

fn replicate(
    args: &Args,
    input: Box<dyn Read + Send>,
    mut settings: PushSettings,
    stream: StreamSettings,
    launcher: &Launcher,
    interrupt: &Interrupt,
) -> Result<StreamReport, Failure> {
    let start = Start::of(&mut settings, launcher)?;
    let names = settings.hosts.iter().map(|host| host.name.clone()).collect();
    let mut progress = Progress::new(args, names);
    let stream = Stream::open(settings, stream).map_err(|error| Failure::of_push(&error))?;
    let handle = stream.handle();
    interrupt.watch(handle.clone());
    let (mut receivers, _callback) = start.receivers(launcher, stream.control_port(), &handle)?;
    let mut report = stream.run(input, &mut |event| {
        if let PushEvent::Host { host, state } = &event
            && *state != HostState::Awaited
        {
            receivers.has_connected(*host);
        }
        progress.note(&event);
    });
    let is_over = report.error.is_some();
    receivers.end(&|host| match report.hosts[host].state {
        HostState::Failed(_) => !is_over,
        HostState::Unknown(_) => true,
        _ => false,
    });
    if !is_over {
        for (index, host) in report.hosts.iter_mut().enumerate() {
            if let HostState::Failed(reason) | HostState::Unknown(reason) = &mut host.state {
                add_last_line(reason, index, &receivers);
            }
        }
    }
    Ok(report)
}

/// Prints progress lines: the total length is unknown, so there is no percentage.
struct Progress {
    is_shown: bool,
    names: Vec<String>,
    bytes: Vec<u64>,
    lost: Vec<bool>,
    shown_at: Instant,
    shown: u64,
}

impl Progress {
    fn new(args: &Args, names: Vec<String>) -> Self {
        let is_shown = !args.quiet && matches!(args.progress, Mode::Auto | Mode::Plain);
        let (bytes, lost) = (vec![0; names.len()], vec![false; names.len()]);
        Self { is_shown, names, bytes, lost, shown_at: Instant::now(), shown: 0 }
    }

    fn note(&mut self, event: &PushEvent) {
        match event {
            PushEvent::Progress { host, bytes } => self.bytes[*host] = *bytes,
            PushEvent::Host { host, state: HostState::Failed(_) } => self.lost[*host] = true,
            PushEvent::Altered { host, at } => print_message(format_args!(
                "{}: a relaying host or a link changed bytes from {at} on; none of them were written out, and this machine \
                 sends them again (with --protect none, links are not protected)",
                self.names[*host]
            )),
            _ => {}
        }
        let elapsed = self.shown_at.elapsed();
        if !self.is_shown || elapsed < INTERVAL {
            return;
        }
        let left = self.bytes.iter().zip(&self.lost).filter(|(_, is_lost)| !**is_lost);
        let all = left.map(|(bytes, _)| *bytes).min().unwrap_or(0);
        let rate = bandwidth(all.saturating_sub(self.shown), elapsed).unwrap_or(0.0) * 8.0;
        print_message(format_args!(
            "{} at all hosts, {} each",
            size::show(all),
            size::show_rate(rate as u64)
        ));
        (self.shown, self.shown_at) = (all, Instant::now());
    }
}

fn exit(report: &StreamReport, is_interrupted: bool) -> Exit {
    match report.published() {
        published if published == report.hosts.len() => Exit::Done,
        _ if is_interrupted => Exit::Interrupted,
        0 => Exit::Failed,
        _ => Exit::Partly,
    }
}

fn print(args: &Args, report: &StreamReport, exit: Exit) {
    let common = report.error.as_ref().map(ToString::to_string);
    if let Some(error) = &common {
        print_message(error);
    }
    // A reason common to all hosts is printed once.
    let is_common = |reason: &str| common.as_ref().is_some_and(|error| reason.starts_with(error));
    let mut are_left = report.published() > 0;
    for host in &report.hosts {
        if let HostState::Shares(other) = &host.state {
            print_shared(&host.name, other);
        }
        if let HostState::Failed(reason) | HostState::Unknown(reason) = &host.state {
            if is_common(reason) {
                are_left = true;
                continue;
            }
            let good = match report.bytes {
                0 => String::new(),
                _ => format!(" ({} bytes of the stream are verified there)", host.bytes),
            };
            print_message(format_args!("{}: {reason}{good}", host.name));
        }
    }
    let (prefix, bytes) = (report.prefix_bytes, report.bytes);
    if report.error.is_some() && are_left {
        print_message(format_args!(
            "of {bytes} bytes read, the first {prefix} are verified at all remaining hosts"
        ));
    } else if report.error.is_some() && bytes > 0 {
        print_message(format_args!("{bytes} bytes were read"));
    }
    let written = output::print(|out| {
        if args.json {
            return json::write_line(out, &summary(report, exit));
        }
        if args.quiet || report.published() == 0 {
            return Ok(());
        }
        for host in &report.hosts {
            if let Some(line) = host.said.as_ref().filter(|line| !line.is_empty()) {
                writeln!(out, "{}: {}", host.name, plain(line))?;
            }
        }
        writeln!(out, "{}", text(report))
    });
    if let Err(failure) = written {
        print_message(failure);
    }
}

fn text(report: &StreamReport) -> String {
    let (published, all) = (report.published(), report.hosts.len());
    let hosts = match all {
        1 => "1 host".to_owned(),
        _ if published == all => format!("{all} hosts"),
        _ => format!("{published} of {all} hosts"),
    };
    let rate =
        bandwidth(report.bytes, report.total).map(|rate| size::show_rate((rate * 8.0) as u64));
    let rate = rate.map_or(String::new(), |rate| format!(" ({rate} each)"));
    let total = seconds(report.total);
    format!("{} in a stream to {hosts} in {total}{rate}; verified", size::show(report.bytes))
}

fn summary(report: &StreamReport, exit_code: Exit) -> Summary<'_> {
    let hosts = report.hosts.iter().map(|host| {
        let (state, error) = state_and_error(&host.state);
        let (bytes, said) = (host.bytes, host.said.as_deref());
        HostSummary { host: &host.name, state, bytes, said, error }
    });
    Summary {
        bytes: report.bytes,
        prefix_bytes: report.prefix_bytes,
        digest: report.digest.map(|digest| digest.to_string()),
        exit_code,
        fabric: report.fabric.as_ref().map(ToString::to_string),
        total_seconds: report.total.as_secs_f64(),
        error: report.error.as_ref().map(ToString::to_string),
        hosts: hosts.collect(),
    }
}
