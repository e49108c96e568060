//! A group beside other programs' connections over the same links: what each of them gets (DSN 2018
//! section 4.5 leaves that to the network).

use std::{thread, time::Duration};

use clap::ValueEnum;
use lab::{Host, Lab, LabSettings, Link, Rate};
use plan::size;
use rdmc::Algorithm;
use serde_json::{Value, json};

use crate::{
    flow::{Flow, Reading},
    interrupt::Interrupt,
    member::{Equipment, Job},
    member_processes::MemberProcesses,
    outcome::Outcome,
    report::{Cell, Output, Report, median, number},
    shaped::usual_rate,
    sweep::{algorithms, alternate},
};

/// For a flow to reach its rate, and for a measurement of flows alone.
const SETTLE: Duration = Duration::from_millis(500);
const ALONE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(4..=64))]
    members: u32,
    /// Rate of each link. Unless given: 4000 Mbit/s / members, at most 1000
    #[arg(long)]
    rate: Option<Rate>,
    /// Which other connections there are
    #[arg(long, value_delimiter = ',', default_value = "none,one,all")]
    flows: Vec<Flows>,
    /// Algorithms
    #[arg(long, value_delimiter = ',', value_parser = algorithms(), default_value = "binomial-pipeline,chain")]
    algorithms: Vec<Algorithm>,
    /// Length of the message
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    bytes: u64,
    /// Block sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_block,
          default_value = "64KiB,256KiB,1MiB")]
    blocks: Vec<u64>,
    /// Receives and sends that each member posts ahead. Unless given: what groups usually have
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: Option<u32>,
    /// TCP connections of the group to each neighbour
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    streams: u8,
    /// The hosts' net.ipv4.tcp_tso_rtt_log (usually 9). From about 20 on, packets that TCP hands to a link are as long
    /// for connections that were opened while it had a queue as for others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=31))]
    tso_rtt_log: Option<u8>,
    /// How often each is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Flows {
    None,
    /// From member 2 to member 3, both in the middle of a chain
    One,
    /// From each member to the next, and from the last to the first
    All,
}

impl Flows {
    fn start(self, hosts: &[Host]) -> Outcome<Vec<Flow>> {
        let count = hosts.len();
        let pairs = match self {
            Self::None => 0..0,
            Self::One => 2..3,
            Self::All => 0..count,
        };
        let flows: Outcome<Vec<Flow>> =
            pairs.map(|from| Flow::start(&hosts[from], &hosts[(from + 1) % count])).collect();
        thread::sleep(SETTLE);
        flows
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::One => "one",
            Self::All => "all",
        }
    }
}

/// One run: the message's time, if there was one, and each flow's rate meanwhile.
struct Run {
    seconds: Option<f64>,
    flow_mbit: Vec<f64>,
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let rate = args.rate.unwrap_or(usual_rate(args.members));
    let lab = Lab::create(&LabSettings::new(args.members, Link::of_rate(rate)))?;
    if let Some(log) = args.tso_rtt_log {
        lab.hosts().iter().try_for_each(|host| set_tso_rtt_log(host, log))?;
    }
    let equipment = Equipment { streams: Some(args.streams), ..Equipment::default() };
    let mut processes = MemberProcesses::start_with(&lab.hosts(), &interrupt, &equipment)?;
    let what = format!(
        "{} to {} members beside other TCP connections, links of {} Mbit/s; median of {}",
        size::show(args.bytes),
        args.members,
        rate.mbit(),
        args.repeats
    );
    let mut report = Report::new("foreign", what);
    let jobs = args.algorithms.iter().flat_map(|&algorithm| {
        let job = move |&block| {
            Job::one(algorithm, block, args.bytes).in_group(args.members, args.window)
        };
        args.blocks.iter().map(job)
    });
    // Flows alone come first, without a job.
    let jobs: Vec<Option<Job>> = std::iter::once(None).chain(jobs.map(Some)).collect();
    let mut undisturbed = vec![None; jobs.len()];
    for &flows in &args.flows {
        let mut running = flows.start(&lab.hosts())?;
        let results = alternate(jobs.len(), args.repeats, flows.name(), |index| {
            measure(&mut processes, jobs[index].as_ref(), &mut running)
        })?;
        for ((job, runs), undisturbed) in jobs.iter().zip(&results).zip(&mut undisturbed) {
            if job.is_some() || flows != Flows::None {
                report.row(row(flows, job.as_ref(), runs, rate, undisturbed));
            }
        }
    }
    report.note(
        "flow of rate: what each other connection carried while the message was sent, its median, lowest \
         and highest, as a share of a link's rate. of undisturbed: the message's time without other \
         connections / time.",
    );
    report.note(format!(
        "TCP connections of the group to each neighbour: {}. The hosts' net.ipv4.tcp_tso_rtt_log: {}.",
        args.streams,
        args.tso_rtt_log.map_or("the system's".into(), |log| log.to_string())
    ));
    report.print(&args.output);
    Ok(())
}

fn set_tso_rtt_log(host: &Host, log: u8) -> Outcome<()> {
    let set = format!("echo {log} > /proc/sys/net/ipv4/tcp_tso_rtt_log");
    let status = host.command("sh").args(["-c", &set]).status()?;
    if status.success() { Ok(()) } else { Err(format!("{set}: {status}").into()) }
}

fn measure(processes: &mut MemberProcesses, job: Option<&Job>, flows: &mut [Flow]) -> Outcome<Run> {
    let read =
        |flows: &mut [Flow]| flows.iter_mut().map(Flow::read).collect::<Outcome<Vec<Reading>>>();
    let before = read(flows)?;
    let seconds = match job {
        Some(job) => Some(processes.run(job)?.seconds),
        None => {
            thread::sleep(if flows.is_empty() { Duration::ZERO } else { ALONE });
            None
        }
    };
    let after = read(flows)?;
    let flow_mbit = after.iter().zip(before).map(|(after, before)| after.mbit_since(before));
    Ok(Run { seconds, flow_mbit: flow_mbit.collect() })
}

fn row(
    flows: Flows,
    job: Option<&Job>,
    runs: &[Run],
    rate: Rate,
    undisturbed: &mut Option<f64>,
) -> impl IntoIterator<Item = Cell> {
    let seconds: Vec<f64> = runs.iter().filter_map(|run| run.seconds).collect();
    let seconds = (!seconds.is_empty()).then(|| median(seconds));
    let of_rate =
        seconds.zip(job).map(|(s, job)| job.message_bytes as f64 * 8e-6 / s / rate.mbit());
    let before = *undisturbed.get_or_insert(seconds.unwrap_or(f64::NAN));
    let flow = runs.iter().flat_map(|run| &run.flow_mbit).map(|mbit| mbit / rate.mbit());
    let flow: Vec<f64> = flow.collect();
    let of_flows = |what: fn(Vec<f64>) -> f64| match flow.is_empty() {
        true => Value::Null,
        false => number(what(flow.clone())),
    };
    let optional = |value: Option<f64>| value.map_or(Value::Null, number);
    [
        ("flows", json!(flows.name())),
        ("algorithm", json!(job.map_or("-", |job| job.algorithm.as_str()))),
        ("block", job.map_or(Value::Null, |job| json!(size::show(job.block_bytes)))),
        ("time_s", optional(seconds)),
        ("of_rate", optional(of_rate)),
        ("of_undisturbed", optional(seconds.map(|seconds| before / seconds))),
        ("flow_of_rate", of_flows(median)),
        ("lowest", of_flows(|all| all.into_iter().fold(f64::INFINITY, f64::min))),
        ("highest", of_flows(|all| all.into_iter().fold(0.0, f64::max))),
    ]
}
