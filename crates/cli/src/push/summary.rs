//! The summary of a push, as text and as JSON.

use std::{borrow::Cow, io::Write, path::PathBuf, time::Duration};

use files::{EntryNames, HostReport, HostState, PushError, PushReport, Source};
use plan::size;
use rdmc::{Fabric, Offload};
use serde::Serialize;

use super::changes::{self, Counted};
use crate::{
    failure::{Exit, print_message},
    json,
    network::{self, Network},
    output,
};

/// The maximum number of hosts that a line names; further hosts are counted.
const NAMES_MAX: usize = 4;

/// The pushed object.
pub struct Facts {
    file: PathBuf,
    bytes: u64,
    /// The number of directories, files and links of a tree.
    entries: Option<usize>,
    /// Patterns that matched nothing.
    unmatched: Vec<String>,
    /// The names of entries, if changes are listed.
    names: Option<EntryNames>,
    /// The limit of each host, in bits per second.
    bwlimit: Option<u64>,
}

#[derive(Serialize)]
struct Summary<'a> {
    /// The path of the source, or of the first one.
    file: Cow<'a, str>,
    bytes: u64,
    /// Directories, files and links of a tree; null for a file.
    entries: Option<usize>,
    /// Patterns of --exclude and --include that matched no entry that was read.
    unmatched_patterns: &'a [String],
    exit_code: Exit,
    /// The algorithm of the last group, if there was one.
    algorithm: Option<&'a str>,
    block_bytes: Option<u64>,
    /// The number of members of the last group, including this machine.
    members: usize,
    /// The network of the blocks.
    fabric: Option<String>,
    /// The network of this machine by which most hosts reached it, except loopback.
    network: Option<Network>,
    /// The limit of each host, if there was one.
    bwlimit_bits_per_second: Option<u64>,
    /// If requested: `used`, or `unavailable: ` and the reason.
    offload: Option<String>,
    /// Why receivers relayed instead of switches copying.
    fell_back: Option<&'a str>,
    /// From the start of sending until the last receiver had all bytes.
    seconds: Option<f64>,
    bandwidth_bytes_per_second: Option<f64>,
    /// The total time, including start, verification and writing to disk.
    total_seconds: f64,
    /// The peak memory of this process.
    peak_resident_bytes: Option<u64>,
    error: Option<String>,
    hosts: Vec<HostSummary<'a>>,
}

#[derive(Serialize)]
struct HostSummary<'a> {
    host: &'a str,
    /// The path of the copy, or of the directory that copies go into.
    destination: &'a str,
    /// `published`; `shares`: has the copy of another host on a shared file system; `failed`; `unknown`: was ordered to
    /// publish its copy and did not confirm; or `examined`, in a dry run.
    state: &'static str,
    /// The other host, if this host shares its copy.
    shares_with: Option<&'a str>,
    seconds: Option<f64>,
    /// From the start of the push until its copy was verified and on disk.
    published_seconds: Option<f64>,
    error: Option<&'a str>,
    /// The changes at the host; null if it has not reported them.
    changes: Option<changes::Summary>,
    /// Bytes that were not sent, as the host had them from an earlier session or in the existing file.
    resumed_bytes: u64,
    /// Whether the complete copy existed under its name; it was verified and kept.
    was_there: bool,
    /// Bytes that were sent again after other hosts were lost.
    repeated_bytes: u64,
    /// The rate of its group when the host was deferred, if it was.
    deferred_at_bytes_per_second: Option<u64>,
    /// The hosts that it could not connect to, if it got its copy separately, after the others.
    apart: Option<&'a str>,
    /// The host's share in the delay of its last group; the shares of all members, including the root, add up to 1.
    waiting_share: Option<f64>,
    peak_resident_bytes: Option<u64>,
}

impl Facts {
    /// `lists`: whether changes at hosts are listed as text.
    pub fn new(source: &Source, bwlimit: Option<u64>, lists: bool) -> Self {
        let (bytes, entries) = (source.manifest().bytes, source.entries());
        let unmatched = source.unmatched().iter().map(|rule| rule.pattern().to_owned()).collect();
        let (file, names) = (source.path().to_owned(), lists.then(|| source.names()));
        Self { file, bytes, entries, unmatched, names, bwlimit }
    }

    /// The length, and the number of entries.
    fn amount(&self) -> String {
        let size = size::show(self.bytes);
        match self.entries {
            None => size,
            Some(1) => format!("{size} in 1 entry"),
            Some(entries) => format!("{size} in {entries} entries"),
        }
    }

    /// Prints failures to standard error, and the summary to standard output, as JSON or as text (unless `quiet`).
    /// Output errors do not change the exit code.
    pub fn print(&self, report: &PushReport, exit: Exit, json: bool, quiet: bool) {
        if !json && !quiet {
            remarks(report);
        }
        match &report.error {
            // A reason common to all hosts is printed once.
            Some(error) => {
                if !matches!(error, PushError::Cancelled) {
                    print_message(error);
                }
                report.hosts.iter().for_each(print_copy_state);
            }
            None => failures(report)
                .for_each(|(host, reason)| print_message(format_args!("{host}: {reason}"))),
        }
        if exit == Exit::Interrupted {
            let (published, all) = (report.published(), report.hosts.len());
            print_message(format_args!("interrupted; {published} of {all} hosts have a copy"));
        }
        let written = output::print(|out| {
            if json {
                return json::write_line(out, &self.summary(report, exit));
            }
            if quiet || report.examined() + report.published() == 0 {
                return Ok(());
            }
            if let Some(names) = &self.names {
                let hosts = report.hosts.iter().filter(|host| host.state.has_result());
                changes::write_listed(out, hosts, names)?;
            }
            if report.examined() > 0 {
                return self.write_lacking(out, report);
            }
            writeln!(out, "{}", self.text(report))
        });
        if let Err(failure) = written {
            print_message(failure);
        }
    }

    /// Writes what would be sent to which host.
    fn write_lacking(&self, out: &mut impl Write, report: &PushReport) -> std::io::Result<()> {
        writeln!(out, "of {} hosts lack:", self.amount())?;
        for host in report.hosts.iter().filter(|host| host.state == HostState::Examined) {
            let (name, destination) = (&host.name, &host.destination);
            let counted = host.changes.as_ref().map(Counted);
            let amount = match self.bytes - host.resumed_bytes {
                0 if counted.as_ref().is_some_and(Counted::is_nothing) => "nothing".to_owned(),
                0 => "no data".to_owned(),
                lacks => size::show(lacks),
            };
            let counted = counted.map_or(String::new(), |counted| format!(": {counted}"));
            writeln!(out, "{name}: {amount} at {destination}{counted}")?;
        }
        Ok(())
    }

    fn text(&self, report: &PushReport) -> String {
        let (published, all) = (report.published(), report.hosts.len());
        let hosts = match all {
            1 => "1 host".to_owned(),
            _ if published == all => format!("{all} hosts"),
            _ => format!("{published} of {all} hosts"),
        };
        let there = were_there(report);
        // Other hosts may have failed long after the last copy was published.
        let last_published = report.last_published().unwrap_or(report.total);
        if there.len() == published {
            let (amount, time) = (self.amount(), seconds(last_published));
            let how = match self.entries {
                None => "verified in",
                Some(_) => "only the list was sent; compared in",
            };
            return format!("{amount} existed already at {hosts}; {how} {time}");
        }
        let mut text = format!("{} to {hosts}", self.amount());
        if let Some(time) = report.replication {
            text += &format!(" in {}", seconds(time));
            if let Some(bandwidth) = bandwidth(self.bytes, time) {
                text += &format!(" ({} each)", size::show_rate((bandwidth * 8.0) as u64));
            }
        }
        let in_part = report.hosts.iter().filter(|host| host.state.has_copy() && !host.was_there);
        let resumed: u64 = in_part.map(|host| host.resumed_bytes).sum();
        if resumed > 0 {
            let all_bytes = size::show(self.bytes * published as u64);
            let resumed = size::show(resumed);
            text += &match published {
                0 | 1 => format!(", {resumed} of which existed already"),
                _ => format!(", {resumed} of {all_bytes} at these hosts existed already"),
            };
        }
        match &there[..] {
            [] => {}
            few if few.len() <= NAMES_MAX => {
                text += &format!(", {} had it already", few.join(", "))
            }
            many => text += &format!(", {} hosts had it already", many.len()),
        }
        if let Some(network) = used_network(report) {
            text += &format!(", over {network}");
        }
        if let Some(limit) = self.bwlimit {
            text += &format!(", limited to {}", size::show_rate(limit));
        }
        if report.offload == Some(Offload::Used) {
            text += ", relayed by the network";
        }
        format!("{text}; verified and on disk after {}", seconds(last_published))
    }

    fn summary<'a>(&'a self, report: &'a PushReport, exit: Exit) -> Summary<'a> {
        Summary {
            file: self.file.to_string_lossy(),
            bytes: self.bytes,
            entries: self.entries,
            unmatched_patterns: &self.unmatched,
            exit_code: exit,
            algorithm: report.choice.map(|choice| choice.algorithm.name()),
            block_bytes: report.choice.map(|choice| choice.block_bytes),
            members: report.members,
            fabric: report.fabric.as_ref().map(ToString::to_string),
            network: used_network(report),
            bwlimit_bits_per_second: self.bwlimit,
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

/// The network of this machine that carried blocks, if known: over TCP, and not only within this machine.
fn used_network(report: &PushReport) -> Option<Network> {
    let address = report.address.filter(|_| report.fabric == Some(Fabric::Tcp))?;
    network::own().ok()?.into_iter().find(|network| network.address == address)
}

/// After a push that ended early: reports that a host has a copy, or may have one.
fn print_copy_state(host: &HostReport) {
    match &host.state {
        HostState::Published => print_message(format_args!("{}: has its copy", host.name)),
        HostState::Unknown(reason) => {
            print_message(format_args!("{}: unknown whether it has its copy: {reason}", host.name));
        }
        _ => {}
    }
}

/// The state of a host after a push, and the reason if it failed, as in JSON.
pub fn state_and_error(state: &HostState) -> (&'static str, Option<&str>) {
    match state {
        HostState::Failed(reason) => ("failed", Some(reason.as_str())),
        HostState::Unknown(reason) => ("unknown", Some(reason.as_str())),
        HostState::Examined => ("examined", None),
        HostState::Shares(_) => ("shares", None),
        _ => ("published", None),
    }
}

fn host_summary(host: &HostReport) -> HostSummary<'_> {
    let (state, error) = state_and_error(&host.state);
    HostSummary {
        host: &host.name,
        destination: &host.destination,
        state,
        shares_with: match &host.state {
            HostState::Shares(other) => Some(other),
            _ => None,
        },
        seconds: host.replication.map(|time| time.as_secs_f64()),
        published_seconds: host.published.map(|time| time.as_secs_f64()),
        error,
        changes: host.changes.as_ref().map(changes::Summary::of),
        resumed_bytes: host.resumed_bytes,
        was_there: host.was_there,
        repeated_bytes: host.repeated_bytes,
        deferred_at_bytes_per_second: host.deferred_at,
        apart: host.apart.as_deref(),
        waiting_share: host.waiting_share,
        peak_resident_bytes: host.peak_resident_bytes,
    }
}

/// Hosts that already had the copy and still have it at the end.
fn were_there(report: &PushReport) -> Vec<&str> {
    let there = report.hosts.iter().filter(|host| host.state.has_copy() && host.was_there);
    there.map(|host| host.name.as_str()).collect()
}

/// Hosts without a confirmed copy, with the reasons.
pub fn failures(report: &PushReport) -> impl Iterator<Item = (&str, &str)> {
    report.hosts.iter().filter_map(|host| match &host.state {
        HostState::Failed(reason) | HostState::Unknown(reason) => {
            Some((host.name.as_str(), reason.as_str()))
        }
        _ => None,
    })
}

/// Prints why a host has no copy of its own.
pub fn print_shared(name: &str, other: &str) {
    print_message(format_args!("{name} shares the copy of {other}: both use the same file system"));
}

/// Prints messages in addition to the summary.
fn remarks(report: &PushReport) {
    if let Some(Offload::Unavailable(reason)) = report.offload {
        print_message(format_args!("continued without --offload: {reason}"));
    }
    if let Some(reason) = &report.fell_back {
        print_message(format_args!("receivers relayed because switches could not copy: {reason}"));
    }
    for host in &report.hosts {
        if let HostState::Shares(other) = &host.state {
            print_shared(&host.name, other);
        }
        let others = changes::others_directories(host).filter(|_| host.state.has_result());
        if let Some(others) = others {
            print_message(format_args!("{}: {others}", host.name));
        }
        if let Some(rate) = host.deferred_at {
            let rate = size::show_rate(rate.saturating_mul(8));
            print_message(format_args!(
                "{} delayed the others ({rate}) and was deferred until they were done",
                host.name
            ));
        }
        if let Some(why) = host.apart.as_ref().filter(|_| host.state.has_copy()) {
            let name = &host.name;
            print_message(format_args!("{name} got its copy separately, after the others: {why}"));
        }
    }
}

/// The exit code for the states of the hosts.
pub fn exit(report: &PushReport, is_interrupted: bool) -> Exit {
    match report.published() + report.examined() {
        published if published == report.hosts.len() => Exit::Done,
        _ if is_interrupted => Exit::Interrupted,
        0 if report.hosts.iter().all(|host| matches!(host.state, HostState::Failed(_))) => {
            Exit::Failed
        }
        _ => Exit::Partly,
    }
}

/// A time in seconds with one or two decimals.
pub fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.2} s") } else { format!("{seconds:.1} s") }
}

/// Bytes per second at each receiver; `None` for an empty file.
pub fn bandwidth(bytes: u64, time: Duration) -> Option<f64> {
    let seconds = time.as_secs_f64();
    (bytes > 0 && seconds > 0.0).then(|| bytes as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_with_a_copy_count_as_having_had_data() {
        let host = |state, resumed_bytes, was_there| HostReport {
            name: "n".into(),
            published: (state == HostState::Published).then_some(Duration::from_secs(1)),
            state,
            destination: String::new(),
            replication: None,
            resumed_bytes,
            changes: None,
            was_there,
            repeated_bytes: 0,
            deferred_at: None,
            apart: None,
            waiting_share: None,
            peak_resident_bytes: None,
        };
        let failed = || HostState::Failed("lost".into());
        let hosts = vec![
            host(HostState::Published, 0, false),
            host(failed(), 500, false),
            host(failed(), 1000, true),
        ];
        let mut report = PushReport {
            hosts,
            members: 4,
            choice: None,
            fabric: None,
            address: None,
            offload: None,
            fell_back: None,
            replication: None,
            total: Duration::from_secs(60),
            error: None,
        };
        let (file, bytes, unmatched) = (PathBuf::new(), 1000, Vec::new());
        let facts = Facts { file, bytes, entries: None, unmatched, names: None, bwlimit: None };
        let text = facts.text(&report);
        assert!(text.contains("to 1 of 3 hosts;") && !text.contains("already"), "{text}");
        assert!(
            text.ends_with("on disk after 1.00 s"),
            "not the 60 s until others had failed: {text}"
        );
        report.hosts[0].resumed_bytes = 400;
        let text = facts.text(&report);
        assert!(text.contains("400 B of which existed already"), "{text}");
        report.hosts[1] = host(HostState::Published, 1000, false);
        let text = facts.text(&report);
        assert!(text.contains("1.37 KiB of 1.95 KiB at these hosts existed already"), "{text}");
    }
}
