//! How a push went, for people and for programs.

use std::{
    borrow::Cow,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use files::{HostReport, HostState, PushError, PushReport};
use plan::size;
use rdmc::Offload;
use serde::Serialize;

use crate::{
    failure::{Exit, say},
    output,
};

/// So many hosts are named in a line; more are counted.
const NAMES_MAX: usize = 4;

/// What is known of a push before it runs.
pub struct Facts {
    file: PathBuf,
    bytes: u64,
}

#[derive(Serialize)]
struct Summary<'a> {
    file: Cow<'a, str>,
    bytes: u64,
    exit_code: Exit,
    /// How blocks travelled in the last group, if there was one.
    algorithm: Option<&'a str>,
    block_bytes: Option<u64>,
    /// Of the last group, this machine included.
    members: usize,
    /// The network that blocks moved over.
    fabric: Option<String>,
    /// Where it was asked for: `used`, or `unavailable: ` and why.
    offload: Option<String>,
    /// Why receivers relayed, where switches were to copy.
    fell_back: Option<&'a str>,
    /// From the start of sending until the last receiver had all bytes.
    seconds: Option<f64>,
    bandwidth_bytes_per_second: Option<f64>,
    /// With starting receivers, verifying and writing to disk.
    total_seconds: f64,
    /// The most memory that this process had resident.
    peak_resident_bytes: Option<u64>,
    error: Option<String>,
    hosts: Vec<HostSummary<'a>>,
}

#[derive(Serialize)]
struct HostSummary<'a> {
    host: &'a str,
    /// `published`, `failed`, or `unknown`: it was told to publish its copy, and has not said whether
    /// it has.
    state: &'static str,
    seconds: Option<f64>,
    error: Option<&'a str>,
    /// What was there of an earlier session or in a file of that name, and was not sent.
    resumed_bytes: u64,
    /// The whole copy was there under its name; it was verified, and is the file that it was.
    was_there: bool,
    /// What was sent although it was there, after other hosts were lost.
    repeated_bytes: u64,
    /// How fast the others were when it was set aside because it held them up.
    deferred_at_bytes_per_second: Option<u64>,
    /// Its share in what held its last group up; 1 for all members together, the root included.
    waiting_share: Option<f64>,
    peak_resident_bytes: Option<u64>,
}

impl Facts {
    pub fn new(file: &Path, bytes: u64) -> Self {
        Self { file: file.to_owned(), bytes }
    }

    /// The failures to standard error, and the summary to standard output, as JSON or in words (unless
    /// `quiet`). Neither needs to be read by anybody.
    pub fn tell(&self, report: &PushReport, exit: Exit, json: bool, quiet: bool) {
        if !json && !quiet {
            remarks(report);
        }
        match &report.error {
            // What all have in common is said once.
            Some(error) => {
                if !matches!(error, PushError::Cancelled) {
                    say(error);
                }
                report.hosts.iter().for_each(say_what_is_there);
            }
            None => {
                failures(report).for_each(|(host, reason)| say(format_args!("{host}: {reason}")))
            }
        }
        if exit == Exit::Interrupted {
            let (published, all) = (report.published(), report.hosts.len());
            say(format_args!("interrupted; {published} of {all} hosts have a copy"));
        }
        let written = output::print(|out| {
            if json {
                serde_json::to_writer(&mut *out, &self.summary(report, exit))?;
                return writeln!(out);
            }
            if quiet || report.published() == 0 {
                return Ok(());
            }
            writeln!(out, "{}", self.words(report))
        });
        if let Err(failure) = written {
            say(failure);
        }
    }

    fn words(&self, report: &PushReport) -> String {
        let (published, all) = (report.published(), report.hosts.len());
        let hosts = match all {
            1 => "1 host".to_owned(),
            _ if published == all => format!("{all} hosts"),
            _ => format!("{published} of {all} hosts"),
        };
        let there = were_there(report);
        if there.len() == published {
            let (size, total) = (size::show(self.bytes), seconds(report.total));
            return format!("{size} were there already at {hosts}; verified after {total}");
        }
        let mut words = format!("{} to {hosts}", size::show(self.bytes));
        if let Some(time) = report.replication {
            words += &format!(" in {}", seconds(time));
            if let Some(bandwidth) = bandwidth(self.bytes, time) {
                words += &format!(" ({}/s each)", size::show(bandwidth as u64));
            }
        }
        let in_part = report.hosts.iter().filter(|host| !host.was_there);
        let resumed: u64 = in_part.map(|host| host.resumed_bytes).sum();
        if resumed > 0 {
            words += &format!(", {} of which were there already", size::show(resumed));
        }
        match &there[..] {
            [] => {}
            few if few.len() <= NAMES_MAX => {
                words += &format!(", {} had it already", few.join(", "))
            }
            many => words += &format!(", {} hosts had it already", many.len()),
        }
        if report.offload == Some(Offload::Used) {
            words += ", relayed by the network";
        }
        let total = seconds(report.total);
        format!("{words}; verified and on disk after {total} in all")
    }

    fn summary<'a>(&'a self, report: &'a PushReport, exit: Exit) -> Summary<'a> {
        Summary {
            file: self.file.to_string_lossy(),
            bytes: self.bytes,
            exit_code: exit,
            algorithm: report.choice.map(|choice| choice.algorithm.name()),
            block_bytes: report.choice.map(|choice| choice.block_bytes),
            members: report.members,
            fabric: report.fabric.as_ref().map(ToString::to_string),
            offload: report
                .offload
                .filter(|&offload| offload != Offload::NotAsked)
                .map(|offload| offload.to_string()),
            fell_back: report.fell_back.as_deref(),
            seconds: report.replication.map(|time| time.as_secs_f64()),
            bandwidth_bytes_per_second: report
                .replication
                .and_then(|time| bandwidth(self.bytes, time)),
            total_seconds: report.total.as_secs_f64(),
            peak_resident_bytes: files::peak_resident_bytes(),
            error: report.error.as_ref().map(ToString::to_string),
            hosts: report.hosts.iter().map(host_summary).collect(),
        }
    }
}

/// After a push that has ended early: that a host has a copy all the same, or may have one.
fn say_what_is_there(host: &HostReport) {
    match &host.state {
        HostState::Published => say(format_args!("{}: has its copy", host.name)),
        HostState::Unknown(reason) => {
            say(format_args!("{}: not known whether it has its copy: {reason}", host.name));
        }
        _ => {}
    }
}

fn host_summary(host: &HostReport) -> HostSummary<'_> {
    let (state, error) = match &host.state {
        HostState::Failed(reason) => ("failed", Some(reason.as_str())),
        HostState::Unknown(reason) => ("unknown", Some(reason.as_str())),
        _ => ("published", None),
    };
    HostSummary {
        host: &host.name,
        state,
        seconds: host.replication.map(|time| time.as_secs_f64()),
        error,
        resumed_bytes: host.resumed_bytes,
        was_there: host.was_there,
        repeated_bytes: host.repeated_bytes,
        deferred_at_bytes_per_second: host.deferred_at,
        waiting_share: host.waiting_share,
        peak_resident_bytes: host.peak_resident_bytes,
    }
}

/// Hosts that had the copy before.
fn were_there(report: &PushReport) -> Vec<&str> {
    report.hosts.iter().filter(|host| host.was_there).map(|host| host.name.as_str()).collect()
}

/// Hosts that are not known to have a copy, and why.
pub fn failures(report: &PushReport) -> impl Iterator<Item = (&str, &str)> {
    report.hosts.iter().filter_map(|host| match &host.state {
        HostState::Failed(reason) | HostState::Unknown(reason) => {
            Some((host.name.as_str(), reason.as_str()))
        }
        _ => None,
    })
}

/// What people should know beside the summary.
fn remarks(report: &PushReport) {
    if let Some(Offload::Unavailable(reason)) = report.offload {
        say(format_args!("went on without --offload: {reason}"));
    }
    if let Some(reason) = &report.fell_back {
        say(format_args!("receivers relayed, since switches could not copy: {reason}"));
    }
    for host in &report.hosts {
        if let Some(rate) = host.deferred_at {
            let rate = size::show(rate);
            say(format_args!(
                "{} held the others up ({rate}/s) and was set aside until they were done",
                host.name
            ));
        }
    }
}

/// What has happened to hosts decides.
pub fn exit(report: &PushReport, is_interrupted: bool) -> Exit {
    match report.published() {
        published if published == report.hosts.len() => Exit::Done,
        _ if is_interrupted => Exit::Interrupted,
        0 if report.hosts.iter().all(|host| matches!(host.state, HostState::Failed(_))) => {
            Exit::Failed
        }
        _ => Exit::Partly,
    }
}

/// A time with the digits that matter.
pub fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.2} s") } else { format!("{seconds:.1} s") }
}

/// Bytes per second at each receiver; none for an empty file, of which there is no telling.
pub fn bandwidth(bytes: u64, time: Duration) -> Option<f64> {
    let seconds = time.as_secs_f64();
    (bytes > 0 && seconds > 0.0).then(|| bytes as f64 / seconds)
}
