//! Progress as lines, for logs and programs.

use std::time::Duration;

use plan::size;
use serde::Serialize;

use super::hosts::{Host, Hosts, Overview, Stage};
use crate::json;

/// The time between plain lines.
const PLAIN_PERIOD: Duration = Duration::from_secs(10);
/// The time between JSON objects.
const JSON_PERIOD: Duration = Duration::from_secs(1);

/// The format of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Plain,
    Json,
}

/// Lines at regular times. Times are since the start.
pub struct Lines {
    format: Format,
    /// The time of the last line.
    last: Duration,
}

/// The JSON object.
#[derive(Serialize)]
struct Line<'a> {
    /// The time since the start.
    seconds: f64,
    phase: &'static str,
    /// Length of the file.
    bytes: u64,
    /// The bytes that every host has, without failed and deferred ones.
    received_bytes: u64,
    /// The mean rate of the hosts that received anything since the last object.
    rate_bits_per_second: u64,
    hosts: usize,
    hosts_done: usize,
    hosts_failed: usize,
    /// The slowest of the hosts that the others wait for.
    slowest: Option<Slowest<'a>>,
}

#[derive(Serialize)]
struct Slowest<'a> {
    host: &'a str,
    state: &'static str,
    received_bytes: u64,
}

impl Lines {
    pub const fn new(format: Format) -> Self {
        Self { format, last: Duration::ZERO }
    }

    pub const fn format(&self) -> Format {
        self.format
    }

    /// When the next line is due.
    pub fn due(&self) -> Duration {
        self.last.saturating_add(match self.format {
            Format::Plain => PLAIN_PERIOD,
            Format::Json => JSON_PERIOD,
        })
    }

    /// The line at this time, without its end.
    pub fn line(&mut self, now: Duration, hosts: &mut Hosts) -> String {
        let rate = hosts.take_rate(now.saturating_sub(self.last));
        self.last = now;
        match self.format {
            Format::Plain => plain_line(hosts, rate),
            Format::Json => json_line(now, hosts, rate),
        }
    }
}

fn plain_line(hosts: &Hosts, rate: u64) -> String {
    let Overview { received, done, failed, slowest } = hosts.overview();
    let (all, bytes) = (hosts.all().len(), hosts.bytes());
    let percent = if bytes == 0 { 100 } else { u128::from(received) * 100 / u128::from(bytes) };
    let (phase, received, bytes) = (hosts.phase().name(), size::show(received), size::show(bytes));
    let mut line = format!("{phase}: {percent}%, {received} of {bytes} at every host");
    if rate > 0 {
        line += &format!(", {} each", size::show_rate(rate));
    }
    line += &format!(", {done} of {all} hosts done");
    if failed > 0 {
        line += &format!(", {failed} failed");
    }
    if let Some(host) = slowest {
        line += &format!(", slowest {}", name_with_state(host));
    }
    line
}

/// A host and its progress: `node07 (1.25 GiB)`, `node07 (preparing)`.
pub fn name_with_state(host: &Host) -> String {
    match host.stage {
        Stage::Receiving => format!("{} ({})", host.name, size::show(host.received)),
        stage => format!("{} ({})", host.name, stage.name()),
    }
}

fn json_line(now: Duration, hosts: &Hosts, rate: u64) -> String {
    let Overview { received, done, failed, slowest } = hosts.overview();
    let slowest = slowest.map(|host| Slowest {
        host: &host.name,
        state: host.stage.name(),
        received_bytes: host.received,
    });
    let line = Line {
        seconds: now.as_secs_f64(),
        phase: hosts.phase().name(),
        bytes: hosts.bytes(),
        received_bytes: received,
        rate_bits_per_second: rate,
        hosts: hosts.all().len(),
        hosts_done: done,
        hosts_failed: failed,
        slowest,
    };
    json::to_line(&line)
}

#[cfg(test)]
mod tests {
    use files::{HostState, PushEvent};

    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn two_hosts() -> Hosts {
        let mut hosts = Hosts::new(&["a".into(), "b".into()], 10 << 20);
        for host in 0..2 {
            hosts.note(&PushEvent::Host { host, state: HostState::Ready });
            hosts.note(&PushEvent::Progress { host, bytes: 0 });
        }
        hosts.note(&PushEvent::Round { members: 3 });
        hosts
    }

    #[test]
    fn plain_lines_come_each_ten_seconds() {
        let mut hosts = two_hosts();
        let mut lines = Lines::new(Format::Plain);
        assert_eq!(lines.due(), at(10));
        hosts.note(&PushEvent::Progress { host: 0, bytes: 5 << 20 });
        hosts.note(&PushEvent::Progress { host: 1, bytes: 2_500_000 });
        assert_eq!(
            lines.line(at(10), &mut hosts),
            "replicating: 23%, 2.38 MiB of 10 MiB at every host, 3.1mbit each, 0 of 2 hosts done, \
             slowest b (2.38 MiB)"
        );
        assert_eq!(lines.due(), at(20));
        // A line is due even without progress; a late line delays the next one.
        hosts.note(&PushEvent::Host { host: 0, state: HostState::Published });
        hosts.note(&PushEvent::Retry { host: 1, start: 1, reason: "it died".into() });
        let line = lines.line(at(23), &mut hosts);
        assert!(line.ends_with("1 of 2 hosts done, slowest b (lost)"), "{line}");
        assert_eq!(lines.due(), at(33));
        hosts.note(&PushEvent::Host { host: 1, state: HostState::Failed("it died".into()) });
        let line = lines.line(at(33), &mut hosts);
        assert!(line.ends_with("10 MiB at every host, 1 of 2 hosts done, 1 failed"), "{line}");
    }

    #[test]
    fn json_lines_are_objects_with_a_version() {
        let mut hosts = two_hosts();
        let mut lines = Lines::new(Format::Json);
        assert_eq!(lines.due(), at(1));
        hosts.note(&PushEvent::Progress { host: 1, bytes: 1000 });
        let line = lines.line(at(2), &mut hosts);
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "schema": 1,
            "seconds": 2.0,
            "phase": "replicating",
            "bytes": 10 << 20,
            "received_bytes": 0,
            "rate_bits_per_second": 4000,
            "hosts": 2,
            "hosts_done": 0,
            "hosts_failed": 0,
            "slowest": {"host": "a", "state": "receiving", "received_bytes": 0},
        });
        assert_eq!(parsed, expected);
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn an_empty_file_is_complete() {
        let mut hosts = Hosts::new(&["a".into()], 0);
        let line = Lines::new(Format::Plain).line(at(10), &mut hosts);
        assert!(line.starts_with("starting: 100%, 0 B of 0 B"), "{line}");
    }
}
