//! The replication layer of a store: objects of very different lengths from one member to three
//! others, in one of all groups that there can be (DSN 2018 section 5.2.2, Fig. 9).

use lab::{Lab, LabSettings, Link, Rate};
use plan::size;
use rdmc::{Algorithm, Window};
use serde_json::{Value, json};

use crate::{
    groups::all_groups,
    interrupt::Interrupt,
    member::{Object, Workload},
    member_processes::{Flight, MemberProcesses, Stored},
    outcome::Outcome,
    random::Random,
    report::{Cell, Output, Report, mean, median, number},
    sweep::{algorithms, progress},
};

/// The source and the three targets of an object.
const GROUP_MEMBERS: u32 = 4;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Members; the first is the source of all objects, and each three of the others are one group
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(4..=20))]
    members: u32,
    /// Rate of each link; four members carry an object
    #[arg(long, default_value = "1gbit")]
    rate: Rate,
    /// Algorithms
    #[arg(long, value_delimiter = ',', value_parser = algorithms(),
          default_value = "sequential,binomial-tree,binomial-pipeline")]
    algorithms: Vec<Algorithm>,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64KiB")]
    block: u64,
    /// How many objects each algorithm sends
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    objects: u32,
    /// How many of them are in flight at the same time; each member has memory for this many of the longest
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,4",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    in_flight: Vec<u32>,
    #[command(flatten)]
    lengths: Lengths,
    #[command(flatten)]
    output: Output,
}

/// A log-normal distribution: the mean is exp(sigma^2 / 2) medians.
#[derive(Clone, Debug, clap::Args)]
struct Lengths {
    /// Median of the objects' lengths, which are log-normally distributed
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "12MB")]
    median: u64,
    /// Their mean, at least the median
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "29MB")]
    mean: u64,
    /// What is shorter is made this long
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "300B")]
    shortest: u64,
    /// What is longer is made this long
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "400MB")]
    longest: u64,
    /// The same seed, the same lengths and groups
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Lengths {
    /// This many objects in random groups.
    fn draw(&self, objects: u32, groups: usize) -> Outcome<Vec<Object>> {
        if self.mean < self.median || self.longest < self.shortest {
            return Err(
                "--mean must be at least --median, and --longest at least --shortest".into()
            );
        }
        let sigma = (2.0 * (self.mean as f64 / self.median as f64).ln()).sqrt();
        let mut random = Random::new(self.seed);
        let mut object = || {
            let bytes = self.median as f64 * (sigma * random.normal()).exp();
            let group = (random.part() * groups as f64) as usize;
            Object { group, bytes: (bytes as u64).clamp(self.shortest, self.longest) }
        };
        Ok((0..objects).map(|_| object()).collect())
    }
}

/// The results of one algorithm.
struct Found {
    algorithm: Algorithm,
    /// How many objects were in flight at the same time.
    in_flight: u32,
    /// From the send to the last target, in seconds, the shortest first.
    latencies: Vec<f64>,
    /// While at least one object was in transit.
    busy_seconds: f64,
    cpu_seconds: f64,
}

pub fn run(args: &Args) -> Outcome<()> {
    let groups = all_groups(args.members);
    let objects = args.lengths.draw(args.objects, groups.len())?;
    let interrupt = Interrupt::watch()?;
    let lab = Lab::create(&LabSettings::new(args.members, Link::of_rate(args.rate)))?;
    let mut processes = MemberProcesses::start(&lab.hosts(), &interrupt)?;
    let mut found = Vec::new();
    let runs = args.in_flight.iter().flat_map(|&n| args.algorithms.iter().map(move |&a| (n, a)));
    for (done, (in_flight, algorithm)) in runs.enumerate() {
        progress("store", done + 1, args.in_flight.len() * args.algorithms.len());
        let workload = Workload {
            number: 0,
            algorithm: algorithm.to_string(),
            block_bytes: args.block,
            window: Window::for_group(args.block, GROUP_MEMBERS).receives,
            groups: groups.clone(),
            objects: objects.clone(),
            in_flight: in_flight as usize,
        };
        found.push(Found::of(algorithm, in_flight, &processes.store(&workload)?));
    }
    let report = args.report(&found, &objects, groups.len());
    report.print(&args.output);
    Ok(())
}

impl Found {
    fn of(algorithm: Algorithm, in_flight: u32, stored: &Stored) -> Self {
        let seconds =
            |flight: &Flight| flight.arrived_ns.saturating_sub(flight.sent_ns) as f64 / 1e9;
        let mut latencies: Vec<f64> = stored.flights.iter().map(seconds).collect();
        latencies.sort_by(f64::total_cmp);
        let busy_seconds = busy_ns(&stored.flights) as f64 / 1e9;
        Self { algorithm, in_flight, latencies, busy_seconds, cpu_seconds: stored.cpu_seconds }
    }

    /// `pipeline`: the pipeline's mean with as many in flight; `rate_mbit`: that of the source's link.
    fn row(
        &self,
        objects: &[Object],
        pipeline: Option<f64>,
        rate_mbit: f64,
    ) -> impl IntoIterator<Item = Cell> {
        let bytes: u64 = objects.iter().map(|object| object.bytes).sum();
        let mbit_per_s = bytes as f64 * 8e-6 / self.busy_seconds;
        let mean = mean(&self.latencies);
        [
            ("in_flight", json!(self.in_flight)),
            ("algorithm", json!(self.algorithm.name())),
            ("mean_s", number(mean)),
            ("median_s", number(median(self.latencies.clone()))),
            ("p90_s", number(percentile(&self.latencies, 90))),
            ("p99_s", number(percentile(&self.latencies, 99))),
            ("max_s", number(percentile(&self.latencies, 100))),
            (
                "of_the_pipelines_mean",
                pipeline.map_or(Value::Null, |pipeline| number(mean / pipeline)),
            ),
            ("mbit_per_s", number(mbit_per_s)),
            ("of_the_sources_link", number(mbit_per_s / rate_mbit)),
            ("delivered_mbit_per_s", number(mbit_per_s * Workload::TARGETS as f64)),
            ("cpu_s", number(self.cpu_seconds)),
        ]
    }
}

impl Args {
    fn report(&self, found: &[Found], objects: &[Object], groups: usize) -> Report {
        let what = format!(
            "{} objects, each to 3 of {} members in one of {groups} groups, blocks of {}, one process \
             per network namespace, links of {} Mbit/s",
            self.objects,
            self.members - 1,
            size::show(self.block),
            self.rate.mbit()
        );
        let mut report = Report::new("store", what);
        for one in found {
            let is_pipeline = |other: &&Found| {
                other.algorithm == Algorithm::BinomialPipeline && other.in_flight == one.in_flight
            };
            let pipeline = found.iter().find(is_pipeline).map(|pipeline| mean(&pipeline.latencies));
            report.row(one.row(objects, pipeline, self.rate.mbit()));
        }
        let lengths: Vec<f64> = objects.iter().map(|object| object.bytes as f64 / 1e6).collect();
        report.note(format!(
            "Lengths: log-normal around {} with a mean of {}, cut to {} .. {}, seed {}; of those drawn, \
             the median is {:.3} MB, the mean {:.3} MB and the longest {:.3} MB.",
            decimal(self.lengths.median),
            decimal(self.lengths.mean),
            decimal(self.lengths.shortest),
            decimal(self.lengths.longest),
            self.lengths.seed,
            median(lengths.clone()),
            mean(&lengths),
            lengths.iter().copied().fold(0.0, f64::max),
        ));
        report.note(
            "Latency: from the send to the last of the three targets. mbit per s: objects' lengths / \
             time with an object in transit; delivered: three times that. p99: of fewer than 100 \
             objects the longest. Groups are made and warm before; targets check contents after \
             the time is taken, and not as part of cpu.",
        );
        report.data("latencies");
        for one in found {
            for (index, &seconds) in one.latencies.iter().enumerate() {
                report.row([
                    ("in_flight", json!(one.in_flight)),
                    ("algorithm", json!(one.algorithm.name())),
                    ("latency_ms", number(seconds * 1e3)),
                    ("share", number((index + 1) as f64 / one.latencies.len() as f64)),
                ]);
            }
        }
        report
    }
}

/// In decimal units, as in the paper.
fn decimal(bytes: u64) -> String {
    match bytes {
        0..100_000 => format!("{bytes} B"),
        _ => format!("{} MB", bytes as f64 / 1e6),
    }
}

/// How long at least one of them was in transit.
fn busy_ns(flights: &[Flight]) -> u64 {
    let mut spans: Vec<_> =
        flights.iter().map(|flight| (flight.sent_ns, flight.arrived_ns)).collect();
    spans.sort_unstable();
    let mut until = 0;
    let mut busy = 0;
    for (start, end) in spans {
        busy += end.saturating_sub(start.max(until));
        until = until.max(end);
    }
    busy
}

/// The least of these sorted values that this percentage of them do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths() -> Lengths {
        let (median, mean) = (12_000_000, 29_000_000);
        Lengths { median, mean, shortest: 300, longest: 400_000_000, seed: 1 }
    }

    #[test]
    fn lengths_have_the_median_and_the_mean_that_are_asked_for() {
        let objects = lengths().draw(20_000, 455).unwrap();
        let bytes: Vec<f64> = objects.iter().map(|object| object.bytes as f64).collect();
        assert!((median(bytes.clone()) / 12e6 - 1.0).abs() < 0.05);
        // What is cut off at 400 MB is some of it.
        assert!((0.9..1.03).contains(&(mean(&bytes) / 29e6)), "{}", mean(&bytes));
        assert!(objects.iter().all(|object| (300..=400_000_000).contains(&object.bytes)));
        assert_eq!(objects.iter().map(|object| object.group).max(), Some(454));
        assert_eq!(objects[..50], lengths().draw(50, 455).unwrap());
        assert_ne!(objects[..50], Lengths { seed: 2, ..lengths() }.draw(50, 455).unwrap());
        assert!(Lengths { mean: 1, ..lengths() }.draw(1, 1).is_err());
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=60).map(f64::from).collect();
        assert_eq!(percentile(&values, 90), 54.0);
        assert_eq!(percentile(&values, 99), 60.0);
        assert_eq!(percentile(&[7.0], 50), 7.0);
    }

    #[test]
    fn time_with_two_objects_in_transit_counts_once() {
        let flight = |sent_ns, arrived_ns| Flight { sent_ns, arrived_ns, ..Flight::default() };
        assert_eq!(busy_ns(&[flight(40, 50), flight(10, 20), flight(15, 30), flight(16, 18)]), 30);
    }
}
