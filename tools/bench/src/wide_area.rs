//! Two racks joined by a long link, which delays packets and loses some: what a group reaches, beside
//! plain TCP connections over the same link.

use std::{thread, time::Duration};

use lab::{Distance, Host, Lab, LabSettings, Link, LongLink, LongLinkCounts, Rate};
use plan::size;
use rdmc::Algorithm;
use serde_json::json;

use crate::{
    flow::{Connections, Flow},
    interrupt::Interrupt,
    member::{Equipment, Job},
    member_processes::{Measured, MemberProcesses},
    outcome::Outcome,
    report::{Cell, Output, Report, median, number},
    sweep::{algorithms, alternate},
};

/// The part of a full packet on a link that is payload.
const PAYLOAD_PART: f64 = 1448.0 / 1514.0;
/// The queue in front of the long link is one bandwidth-delay product, but not shorter than this: hosts send up to
/// 64 KiB at once.
const QUEUE_MIN: Duration = Duration::from_millis(5);
/// Messages are not made shorter than this.
const BYTES_MIN: u64 = 1 << 20;
/// The least time for plain connections to find their rate.
const SETTLE: Duration = Duration::from_millis(500);
/// That time in round trips.
const SETTLE_ROUND_TRIPS: u32 = 20;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included: half of it in each rack
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    members: u32,
    /// Rate of each host's link
    #[arg(long, default_value = "200mbit")]
    rate: Rate,
    /// Rate of the long link, whose queue holds one bandwidth-delay product, and 5 ms at least
    #[arg(long, default_value = "100mbit")]
    long_rate: Rate,
    /// Round trips over the long link, in milliseconds
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "1,10,50", value_parser = clap::value_parser!(u64).range(0..=2_000))]
    round_trip_ms: Vec<u64>,
    /// Percentages of packets that the long link loses
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,0.01,0.1,1", value_parser = percentage)]
    loss: Vec<f64>,
    /// Seed of the generator that chooses the lost packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Congestion controls, of the group's connections and of the plain ones
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "cubic,bbr")]
    congestion: Vec<String>,
    /// TCP connections to each neighbour, and plain ones
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4", value_parser = clap::value_parser!(u8).range(1..=8))]
    streams: Vec<u8>,
    /// Algorithms
    #[arg(long, value_delimiter = ',', value_parser = algorithms(),
          default_value = "chain,binomial-pipeline,racks-pipeline")]
    algorithms: Vec<Algorithm>,
    /// Length of the message
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "16MiB")]
    bytes: u64,
    /// Shorter messages, of at least 1 MiB, where a plain connection would take longer than this
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    longest_s: f64,
    /// Block sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_block, default_value = "256KiB")]
    blocks: Vec<u64>,
    /// Receives and sends that each member posts ahead. Unless given: what groups usually have
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: Option<u32>,
    /// How long plain connections are measured
    #[arg(long, value_name = "S", default_value_t = 1.5)]
    plain_s: f64,
    /// How often each is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

fn percentage(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| format!("\"{text}\" is not a number"))?;
    if (0.0..=50.0).contains(&percent) { Ok(percent) } else { Err("use 0 to 50".into()) }
}

/// What a row belongs to.
struct Place<'a> {
    lab: &'a Lab,
    link: &'a LongLink,
    round_trip: Duration,
    loss_percent: f64,
    connections: Connections,
}

/// One run of a group.
struct Run {
    seconds: f64,
    /// Copies of the message that crossed the long link, in the direction that more crossed.
    crossed: f64,
    /// The part of packets that the link lost, and that found its queue full.
    lost: f64,
    dropped: f64,
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "up to {} to {} members in two racks, links of {} Mbit/s, between the racks one of {} Mbit/s; median of {}",
        size::show(args.bytes),
        args.members,
        args.rate.mbit(),
        args.long_rate.mbit(),
        args.repeats
    );
    let mut report = Report::new("wide-area", what);
    for &round_trip_ms in &args.round_trip_ms {
        for &loss_percent in &args.loss {
            let round_trip = Duration::from_millis(round_trip_ms);
            measure(args, round_trip, loss_percent, &interrupt, &mut report)?;
        }
    }
    report.note(
        "limit: length / the long link's rate + half a round trip. of_limit: limit / time, and of plain connections \
         their rate / the link's. of_plain: length / time / what as many plain connections between two hosts carry \
         over the link. crossed: copies of the message that crossed the link, with retransmissions. lost, dropped: of \
         the packets offered to the link, by its loss and by its full queue.",
    );
    report.print(&args.output);
    Ok(())
}

/// Adds the rows of one distance.
fn measure(
    args: &Args,
    round_trip: Duration,
    loss_percent: f64,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Outcome<()> {
    let link = Link::of_rate(args.rate);
    let settings =
        LabSettings { racks: 2, uplink: Some(link), ..LabSettings::new(args.members, link) };
    let lab = Lab::create(&settings)?;
    for host in lab.hosts() {
        forget_connections(&host)?;
    }
    let distance = Distance {
        delay: round_trip / 2,
        queue: round_trip.max(QUEUE_MIN),
        loss: loss_percent / 100.0,
        seed: args.seed,
    };
    let link = LongLink::between_racks(&lab, link.at_rate(args.long_rate), &distance)?;
    for congestion in &args.congestion {
        for &count in &args.streams {
            let connections = Connections { count, congestion: Some(congestion.clone()) };
            let place = Place { lab: &lab, link: &link, round_trip, loss_percent, connections };
            place.measure(args, interrupt, report)?;
        }
    }
    match link.counts().map(|counts| counts.merged + counts.refused) {
        [0, 0] => Ok(()),
        wrong => Err(format!("the long link did not treat packets one by one: {wrong:?}").into()),
    }
}

/// Has new connections of a host begin like the first: without what earlier ones to the same host found out.
fn forget_connections(host: &Host) -> Outcome<()> {
    let set = "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save";
    let status = host.command("sh").args(["-c", set]).status()?;
    if status.success() { Ok(()) } else { Err(format!("{set}: {status}").into()) }
}

impl Place<'_> {
    fn measure(&self, args: &Args, interrupt: &Interrupt, report: &mut Report) -> Outcome<()> {
        let plain_mbit = self.plain_mbit(args.plain_s)?;
        let fits = (plain_mbit * 1e6 / 8.0 * args.longest_s) as u64;
        let bytes = if fits < args.bytes { (fits >> 20 << 20).max(BYTES_MIN) } else { args.bytes };
        let bytes = bytes.min(args.bytes);
        report.row(self.row(None, plain_mbit / args.long_rate.mbit(), 1.0, None));
        let mut processes = self.start(interrupt)?;
        let job = |algorithm, block| {
            Job::one(algorithm, block, bytes).in_group(args.members, args.window)
        };
        let jobs = args
            .algorithms
            .iter()
            .flat_map(|&algorithm| args.blocks.iter().map(move |&block| job(algorithm, block)));
        let jobs: Vec<Job> = jobs.collect();
        let results = alternate(jobs.len(), args.repeats, "wide-area", |index| {
            self.run(&mut processes, &jobs[index])
        })?;
        let limit = bytes as f64 * 8.0 / args.long_rate.bits_per_s() as f64
            + self.round_trip.as_secs_f64() / 2.0;
        for (job, runs) in jobs.iter().zip(results) {
            let of = |what: fn(&Run) -> f64| median(runs.iter().map(what).collect());
            let run = Run {
                seconds: of(|run| run.seconds),
                crossed: of(|run| run.crossed),
                lost: of(|run| run.lost),
                dropped: of(|run| run.dropped),
            };
            let of_plain = bytes as f64 * 8e-6 / run.seconds / plain_mbit;
            report.row(self.row(Some(job), limit / run.seconds, of_plain, Some(&run)));
        }
        Ok(())
    }

    fn row(
        &self,
        job: Option<&Job>,
        of_limit: f64,
        of_plain: f64,
        run: Option<&Run>,
    ) -> impl IntoIterator<Item = Cell> + use<> {
        let of = |what: fn(&Run) -> f64| run.map_or(json!(null), |run| number(what(run)));
        let of_job =
            |what: fn(&Job) -> u64| job.map_or(json!("-"), |job| json!(size::show(what(job))));
        [
            ("round_trip_ms", json!(self.round_trip.as_millis() as u64)),
            ("loss_percent", json!(self.loss_percent)),
            ("congestion", json!(self.connections.congestion)),
            ("streams", json!(self.connections.count)),
            ("algorithm", json!(job.map_or("plain TCP", |job| job.algorithm.as_str()))),
            ("block", of_job(|job| job.block_bytes)),
            ("bytes", of_job(|job| job.message_bytes)),
            ("time_s", of(|run| run.seconds)),
            ("of_limit", number(of_limit)),
            ("of_plain", number(of_plain)),
            ("crossed", of(|run| run.crossed)),
            ("lost", of(|run| run.lost)),
            ("dropped", of(|run| run.dropped)),
        ]
    }

    fn start(&self, interrupt: &Interrupt) -> Outcome<MemberProcesses> {
        let hosts = self.lab.hosts();
        let equipment = Equipment {
            racks: (0..hosts.len() as u32).map(|host| self.lab.rack_of(host)).collect(),
            congestion: self.connections.congestion.clone(),
            streams: Some(self.connections.count),
            ..Equipment::default()
        };
        MemberProcesses::start_with(&hosts, interrupt, &equipment)
    }

    /// What plain connections carry from the first host to the last, which is in the other rack.
    fn plain_mbit(&self, seconds: f64) -> Outcome<f64> {
        let hosts = self.lab.hosts();
        let (first, last) = hosts.first().zip(hosts.last()).ok_or("there are no hosts")?;
        let mut flow = Flow::start_with(first, last, &self.connections)?;
        thread::sleep(SETTLE.max(self.round_trip * SETTLE_ROUND_TRIPS));
        let before = flow.read()?;
        thread::sleep(Duration::from_secs_f64(seconds));
        let mbit = flow.read()?.mbit_since(before);
        drop(flow);
        // What is under way arrives, and is refused.
        thread::sleep(SETTLE.max(self.round_trip * 2));
        Ok(mbit)
    }

    fn run(&self, processes: &mut MemberProcesses, job: &Job) -> Outcome<Run> {
        let mut before = [LongLinkCounts::default(); 2];
        let all = processes.run_after(job, || {
            before = self.link.counts();
            Ok(())
        })?;
        let after = self.link.counts();
        let grown = |what: fn(&LongLinkCounts) -> u64| {
            let of = |direction: usize| (what(&after[direction]) - what(&before[direction])) as f64;
            [of(0), of(1)]
        };
        let sum = |what| grown(what).iter().sum::<f64>();
        let [there, back] = grown(|counts| counts.carried_bytes);
        let (lost, dropped) = (sum(|counts| counts.lost), sum(|counts| counts.dropped));
        let offered = lost + dropped + sum(|counts| counts.carried);
        Ok(Run {
            seconds: Measured::of(&all)?.seconds,
            crossed: there.max(back) * PAYLOAD_PART / job.message_bytes as f64,
            lost: lost / offered,
            dropped: dropped / offered,
        })
    }
}
