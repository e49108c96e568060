//! The cost of waiting for completions, by mode (DSN 2018 section 5.2.3).

use charts::{Axis, Chart, Line, Panel, Point, Unit};
use plan::size;
use rdmc::{Algorithm, CompletionMode, Fabric};
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    member::{Equipment, Job},
    member_processes::{Host, MemberProcesses},
    outcome::Outcome,
    report::{DrawnOutput, Report, number},
    sweep::sweep,
};

/// How many messages of which length: small, middle and large, as in the paper's Fig. 11.
const LOADS: [(u64, u64); 3] = [(400, 10_000), (40, 1_000_000), (2, 100_000_000)];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    members: u32,
    /// The network that blocks move over: tcp, or a libfabric provider (verbs, shm, ofi-tcp, ...)
    #[arg(long, default_value_t)]
    fabric: Fabric,
    /// Addresses of this host that members use in rotation; each chooses its device by its address
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1")]
    addresses: Vec<std::net::IpAddr>,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "256KiB")]
    block: u64,
    /// Divides the number and the length of messages, for slow networks
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    less: u64,
    /// How often each is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: DrawnOutput,
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "completion modes: {} members as processes of this host, fabric {}, binomial pipeline, \
         blocks of {}; median of {}",
        args.members,
        args.fabric,
        size::show(args.block),
        args.repeats
    );
    let mut report = Report::new("modes", what);
    let (mut bandwidth, mut load) = (Vec::new(), Vec::new());
    let hosts = Host::here_at(&args.addresses, args.members);
    for completion in CompletionMode::ALL {
        let fabric = args.fabric.clone();
        let equipment = Equipment { fabric, completion, ..Equipment::default() };
        let mut processes = MemberProcesses::start_with(&hosts, &interrupt, &equipment)?;
        let jobs = LOADS.map(|(messages, message_bytes)| {
            let is_long = message_bytes > 1_000_000;
            let bytes = if is_long { message_bytes / args.less } else { message_bytes };
            let messages = (messages / args.less).max(1);
            Job::several(Algorithm::BinomialPipeline, args.block, messages, bytes)
        });
        let results = sweep(&mut processes, &jobs, args.repeats, completion.name())?;
        let line = || Line::new(completion.name(), Vec::new());
        bandwidth.push(line());
        load.push(line());
        for (job, result) in jobs.iter().zip(&results) {
            let seconds = result.seconds();
            let mb_per_s = (job.messages * job.message_bytes) as f64 / seconds / 1e6;
            let share = result.cpu_seconds() / seconds / f64::from(args.members);
            for (lines, value) in [(&mut bandwidth, mb_per_s), (&mut load, share)] {
                let point = Point::new(job.message_bytes as f64 / 1e3, value);
                lines.last_mut().into_iter().for_each(|line| line.points.push(point));
            }
            report.row([
                ("completion", json!(completion.name())),
                ("messages", json!(job.messages)),
                ("length", json!(size::show(job.message_bytes))),
                ("time_s", number(seconds)),
                ("MB_per_s", number(mb_per_s)),
                ("cpu_s", number(result.cpu_seconds())),
                ("cpu_share_per_member", number(share)),
            ]);
        }
    }
    report.note(
        "cpu share per member: processor time of a member's process divided by the time that the \
         messages took; 1 is a whole core. Members share this host's cores: those that poll take \
         them from the others.",
    );
    args.output.print(&report, || chart(bandwidth, load))
}

fn chart(bandwidth: Vec<Line>, load: Vec<Line>) -> Chart {
    let panel =
        |title: &str, unit, lines| Panel { title: title.into(), y: Axis::linear(unit), lines };
    Chart {
        title: "Bandwidth and processor time by completion mode".into(),
        x: Axis::powers("length of a message in kB", 10.0, Unit::Number),
        panels: vec![
            panel("Bandwidth", "MB/s", bandwidth),
            panel("Processor time", "cores per member", load),
        ],
    }
}
