//! Two racks joined by a long link, which delays packets and loses some: what a group reaches, beside
//! plain TCP connections over the same link.

use std::{cell::Cell, thread, time::Duration};

use lab::{Distance, Host, Lab, LabSettings, Link, LongLink, Rate};
use plan::size;
use rdmc::Algorithm;
use serde_json::json;

use crate::{
    flow::{Connections, Flow},
    interrupt::Interrupt,
    member::{Equipment, Job},
    member_processes::{Measured, MemberProcesses},
    outcome::Outcome,
    report::{Output, Report, median, number},
    sweep::{algorithms, alternate},
};

/// The part of a full packet on a link that is payload.
const PAYLOAD_PART: f64 = 1448.0 / 1514.0;
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
    #[arg(long, default_value = "400mbit")]
    rate: Rate,
    /// Rate of the long link, whose queue holds 50 ms at each end
    #[arg(long, default_value = "200mbit")]
    long_rate: Rate,
    /// Delays of the long link in one direction, in milliseconds
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "0,10,50", value_parser = clap::value_parser!(u64).range(0..=1_000))]
    delay_ms: Vec<u64>,
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
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    bytes: u64,
    /// Shorter messages, of at least 1 MiB, where a plain connection would take longer than this
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    longest_s: f64,
    /// Block sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_block, default_value = "256KiB")]
    blocks: Vec<u64>,
    /// Receives and sends that each member posts ahead. Unless given: what groups usually have
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: Option<u32>,
    /// How long plain connections are measured
    #[arg(long, value_name = "S", default_value_t = 2.0)]
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
    delay_ms: u64,
    loss_percent: f64,
    connections: Connections,
}

/// One run of a group.
struct Run {
    seconds: f64,
    /// Copies of the message that crossed the long link.
    crossed: f64,
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
    for &delay_ms in &args.delay_ms {
        for &loss_percent in &args.loss {
            measure(args, delay_ms, loss_percent, &interrupt, &mut report)?;
        }
    }
    report.note(
        "mbit_per_s: length / time. of_rate: of the long link's. of_plain: the same / what as many plain connections \
         between two hosts carry over the link. crossed: copies of the message that crossed the link, with \
         retransmissions. lost: of the packets on the link, warm-up included.",
    );
    report.print(&args.output);
    Ok(())
}

/// Adds the rows of one distance.
fn measure(
    args: &Args,
    delay_ms: u64,
    loss_percent: f64,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Outcome<()> {
    let link = Link::of_rate(args.rate);
    let uplink = Some(link.at_rate(args.long_rate));
    let settings = LabSettings { racks: 2, uplink, ..LabSettings::new(args.members, link) };
    let lab = Lab::create(&settings)?;
    for host in lab.hosts() {
        forget_connections(&host)?;
    }
    let delay = Duration::from_millis(delay_ms);
    let distance = Distance { delay, loss: loss_percent / 100.0, seed: args.seed };
    let link = LongLink::between_racks(&lab, &distance)?;
    for congestion in &args.congestion {
        for &count in &args.streams {
            let connections = Connections { count, congestion: Some(congestion.clone()) };
            let place = Place { lab: &lab, link: &link, delay_ms, loss_percent, connections };
            place.measure(args, interrupt, report)?;
        }
    }
    match link.counts().merged {
        0 => Ok(()),
        merged => Err(format!("{merged} packets on the long link were merged ones").into()),
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
        let rate_mbit = args.long_rate.mbit();
        let fits = (plain_mbit * 1e6 / 8.0 * args.longest_s) as u64;
        let bytes = if fits < args.bytes { (fits >> 20 << 20).max(BYTES_MIN) } else { args.bytes };
        let bytes = bytes.min(args.bytes);
        let mut row = |algorithm: &str, block: Option<u64>, mbit: f64, run: Option<(&Run, f64)>| {
            report.row([
                ("delay_ms", json!(self.delay_ms)),
                ("loss_percent", json!(self.loss_percent)),
                ("congestion", json!(self.connections.congestion)),
                ("streams", json!(self.connections.count)),
                ("algorithm", json!(algorithm)),
                ("block", block.map_or(json!("-"), |block| json!(size::show(block)))),
                ("bytes", run.map_or(json!("-"), |_| json!(size::show(bytes)))),
                ("time_s", run.map_or(json!(null), |(run, _)| number(run.seconds))),
                ("mbit_per_s", number(mbit)),
                ("of_rate", number(mbit / rate_mbit)),
                ("of_plain", number(mbit / plain_mbit)),
                ("crossed", run.map_or(json!(null), |(run, _)| number(run.crossed))),
                ("lost", run.map_or(json!(null), |(_, lost)| number(lost))),
            ]);
        };
        row("plain TCP", None, plain_mbit, None);
        let racks: Vec<u32> = (0..args.members).map(|host| self.lab.rack_of(host)).collect();
        let equipment = Equipment {
            racks,
            congestion: self.connections.congestion.clone(),
            streams: Some(self.connections.count),
            ..Equipment::default()
        };
        let mut processes = MemberProcesses::start_with(&self.lab.hosts(), interrupt, &equipment)?;
        let job = |algorithm, block| {
            Job::one(algorithm, block, bytes).in_group(args.members, args.window)
        };
        let jobs = args
            .algorithms
            .iter()
            .flat_map(|&algorithm| args.blocks.iter().map(move |&block| job(algorithm, block)));
        let jobs: Vec<Job> = jobs.collect();
        let results = alternate(jobs.len(), args.repeats, "wide-area", |index| {
            let before = self.link.counts();
            let run = self.run(&mut processes, &jobs[index])?;
            let after = self.link.counts();
            let lost = (after.lost - before.lost) as f64;
            Ok((run, lost / (lost + (after.carried - before.carried) as f64)))
        })?;
        for (job, runs) in jobs.iter().zip(results) {
            let seconds = median(runs.iter().map(|(run, ..)| run.seconds).collect());
            let crossed = median(runs.iter().map(|(run, ..)| run.crossed).collect());
            let lost = median(runs.iter().map(|(_, lost)| *lost).collect());
            let mbit = bytes as f64 * 8e-6 / seconds;
            row(
                &job.algorithm,
                Some(job.block_bytes),
                mbit,
                Some((&Run { seconds, crossed }, lost)),
            );
        }
        Ok(())
    }

    /// What plain connections carry from the first host to the last, which is in the other rack.
    fn plain_mbit(&self, seconds: f64) -> Outcome<f64> {
        let hosts = self.lab.hosts();
        let (first, last) = hosts.first().zip(hosts.last()).ok_or("there are no hosts")?;
        let mut flow = Flow::start_with(first, last, &self.connections)?;
        let round_trip = Duration::from_millis(2 * self.delay_ms);
        thread::sleep(SETTLE.max(round_trip * SETTLE_ROUND_TRIPS));
        let before = flow.read()?;
        thread::sleep(Duration::from_secs_f64(seconds));
        let mbit = flow.read()?.mbit_since(before);
        drop(flow);
        // What is under way arrives, and is refused.
        thread::sleep(SETTLE.max(round_trip * 2));
        Ok(mbit)
    }

    fn run(&self, processes: &mut MemberProcesses, job: &Job) -> Outcome<Run> {
        let before = Cell::new(Vec::new());
        let all = processes.run_after(job, || {
            before.set(self.lab.uplink_bytes()?);
            Ok(())
        })?;
        let before = before.into_inner();
        let leaving = before
            .iter()
            .zip(self.lab.uplink_bytes()?)
            .map(|(before, after)| after.leaving - before.leaving);
        let crossed = leaving.max().unwrap_or(0) as f64 * PAYLOAD_PART / job.message_bytes as f64;
        Ok(Run { seconds: Measured::of(&all)?.seconds, crossed })
    }
}
