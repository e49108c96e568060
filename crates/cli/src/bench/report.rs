//! The report of a bench.

use std::{collections::BTreeSet, fmt, time::Duration};

use files::{HostPlan, PushError};
use measure::{BenchReport, CollectivePlan, Measurement, Subject};
use rdmc::Algorithm;
use serde::Serialize;

use super::{args::Args, collective::CollectiveRow};
use crate::{
    doctor::{self, Machine},
    failure::Exit,
};

/// The JSON document.
#[derive(Serialize)]
pub struct Document {
    /// This machine, as in `rdmc doctor`.
    pub machine: Machine,
    /// The protocol version.
    pub protocol: u16,
    pub settings: Settings,
    pub exit_code: Exit,
    /// One for each requested fabric.
    pub runs: Vec<Run>,
}

#[derive(Serialize)]
pub struct Settings {
    pub hosts: Vec<String>,
    pub local: bool,
    pub bytes: u64,
    /// The requested block size; `None` for the fastest.
    pub block_bytes: Option<u64>,
    /// The requested algorithm; `auto` for the fastest.
    pub algorithm: &'static str,
    /// The requested rate of one link.
    pub rate_bits_per_second: Option<u64>,
    /// The limit of each host.
    pub bwlimit_bits_per_second: Option<u64>,
    /// The requested window; `None` for the default of the block size.
    pub window: Option<u32>,
    pub streams: u8,
    pub completion: &'static str,
    pub protection: &'static str,
    pub repeats: u32,
    pub round_trips: u32,
    /// The requested collective operation, instead of all these.
    pub collective: Option<CollectivePlan>,
}

/// The measurements over one fabric.
#[derive(Serialize)]
pub struct Run {
    /// The requested fabric.
    pub asked: String,
    /// The fabric that was used; missing if none was chosen.
    pub fabric: Option<String>,
    /// Why the run ended early.
    pub error: Option<String>,
    /// Hosts that failed.
    pub failed: Vec<FailedHost>,
    pub measurements: Vec<Row>,
    /// Measurements of a collective operation.
    pub collectives: Vec<CollectiveRow>,
}

#[derive(Serialize)]
pub struct FailedHost {
    pub host: String,
    pub reason: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Latency,
    Unicast,
    Multicast,
}

/// One measurement.
#[derive(Serialize)]
pub struct Row {
    pub kind: Kind,
    /// The host; missing for all hosts together.
    pub host: Option<String>,
    pub bytes: u64,
    /// The number of members, including this machine.
    pub members: usize,
    pub algorithm: &'static str,
    pub block_bytes: u64,
    pub seconds: Spread,
    /// The bandwidth at each receiver; missing for latencies.
    pub bytes_per_second: Option<Spread>,
}

/// Median and range of several values.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    pub count: usize,
}

impl Spread {
    /// Median and range of at least one value; for an even number, the median is between the two in the middle.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let (&least, &most) = (values.first()?, values.last()?);
        let median = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
        Some(Self { median, least, most, count })
    }
}

impl Document {
    pub fn new(args: &Args, hosts: &[HostPlan]) -> Self {
        let settings = Settings {
            hosts: hosts.iter().map(|host| host.name.clone()).collect(),
            local: args.hosts.is_local(),
            bytes: args.size,
            block_bytes: args.transfer.block_size.0,
            algorithm: args.transfer.algorithm.0.map_or("auto", Algorithm::name),
            rate_bits_per_second: args.transfer.rate,
            bwlimit_bits_per_second: args.transfer.bwlimit,
            window: args.hosting.window,
            streams: args.hosting.streams,
            completion: args.hosting.completion.name(),
            protection: args.hosting.protection(args.hosts.is_local()).unwrap_or_default().name(),
            repeats: args.bandwidth_repeats(),
            round_trips: args.round_trips,
            collective: args.collective(),
        };
        Self {
            machine: doctor::this_machine(),
            protocol: session::PROTOCOL_VERSION,
            settings,
            exit_code: Exit::Done,
            runs: Vec::new(),
        }
    }

    pub fn exit(&self) -> Exit {
        let whole = |run: &Run| run.error.is_none() && run.failed.is_empty();
        let is_empty = |run: &Run| run.measurements.is_empty() && run.collectives.is_empty();
        if self.runs.iter().all(is_empty) {
            Exit::Failed
        } else if self.runs.iter().all(whole) {
            Exit::Done
        } else {
            Exit::Partly
        }
    }
}

impl Run {
    /// The run of a fabric that cannot be used here.
    pub fn refused(asked: String, error: &PushError) -> Self {
        let error = Some(error.to_string());
        let (failed, measurements, collectives) = (Vec::new(), Vec::new(), Vec::new());
        Self { asked, fabric: None, error, failed, measurements, collectives }
    }

    pub fn of(asked: String, names: &[String], report: &BenchReport) -> Self {
        let failed = names.iter().zip(&report.failures).filter_map(|(host, reason)| {
            Some(FailedHost { host: host.clone(), reason: reason.clone()? })
        });
        Self {
            asked,
            fabric: report.fabric.as_ref().map(ToString::to_string),
            error: report.error.as_ref().map(ToString::to_string),
            failed: failed.collect(),
            measurements: report.measurements.iter().filter_map(|m| row(m, names)).collect(),
            collectives: report.collectives.iter().filter_map(CollectiveRow::of).collect(),
        }
    }

    /// Lines for standard error; a reason that is the same for all hosts is printed once.
    pub fn failures(&self) -> impl Iterator<Item = impl fmt::Display> {
        let own = self.error.iter().map(|error| format!("{}: {error}", self.asked));
        let reasons: BTreeSet<&str> = self.failed.iter().map(|host| host.reason.as_str()).collect();
        let same = self.error.is_some() && reasons.len() == 1;
        let hosts = self.failed.iter().filter(move |_| !same);
        own.chain(hosts.map(|failed| format!("{}: {}", failed.host, failed.reason)))
    }
}

fn row(measurement: &Measurement, names: &[String]) -> Option<Row> {
    let (kind, host) = match measurement.subject {
        Subject::Latency(host) => (Kind::Latency, Some(host)),
        Subject::Unicast(host) => (Kind::Unicast, Some(host)),
        Subject::Multicast => (Kind::Multicast, None),
    };
    let bytes = measurement.bytes;
    let seconds = || measurement.times.iter().map(Duration::as_secs_f64);
    let bandwidths = seconds().filter(|&time| time > 0.0).map(|time| bytes as f64 / time);
    Some(Row {
        kind,
        host: host.map(|host| names[host].clone()),
        bytes,
        members: measurement.members,
        algorithm: measurement.choice.algorithm.name(),
        block_bytes: measurement.choice.block_bytes,
        seconds: Spread::of(seconds())?,
        bytes_per_second: if kind == Kind::Latency { None } else { Spread::of(bandwidths) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        let median = |values: &[f64]| Spread::of(values.iter().copied()).map(|s| s.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        let spread = Spread::of([2.0, 4.0, 1.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, least: 1.0, most: 4.0, count: 4 });
    }

    #[test]
    fn exit_codes_depend_on_what_was_measured() {
        let row = || Row {
            kind: Kind::Multicast,
            host: None,
            bytes: 1,
            members: 2,
            algorithm: "chain",
            block_bytes: 1,
            seconds: Spread::of([1.0]).unwrap(),
            bytes_per_second: None,
        };
        let run = |measured: bool, failed: bool| Run {
            asked: "tcp".into(),
            fabric: None,
            error: failed.then(|| "no".into()),
            failed: Vec::new(),
            measurements: measured.then(row).into_iter().collect(),
            collectives: Vec::new(),
        };
        let code = |runs| {
            let settings = Settings {
                hosts: Vec::new(),
                local: true,
                bytes: 1,
                block_bytes: None,
                algorithm: "auto",
                rate_bits_per_second: None,
                bwlimit_bits_per_second: None,
                window: None,
                streams: 1,
                completion: "event",
                protection: "none",
                repeats: 1,
                round_trips: 1,
                collective: None,
            };
            let (machine, exit_code) = (Machine::default(), Exit::Done);
            Document { machine, protocol: 1, settings, exit_code, runs }.exit()
        };
        assert_eq!(code(vec![run(true, false)]), Exit::Done);
        assert_eq!(code(vec![run(false, true)]), Exit::Failed);
        assert_eq!(code(vec![run(true, false), run(false, true)]), Exit::Partly);
        assert_eq!(code(vec![run(true, true)]), Exit::Partly);
    }
}
