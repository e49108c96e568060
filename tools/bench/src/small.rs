//! Messages of one byte: relayed, and written to every receiver at once (DSN 2018 section 4.6).

use charts::{Axis, Chart, Point};
use plan::size;
use rdmc::{Algorithm, Fabric};
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    member::{Equipment, Job},
    member_processes::{Host, MemberProcesses},
    outcome::Outcome,
    report::{DrawnOutput, Report, number},
    sweep::sweep,
};

/// How messages travel: relayed by blocks, or written to every receiver at once.
const PATHS: [&str; 2] = ["relayed", "written"];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of the groups, roots included
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,4,8,16",
          value_parser = clap::value_parser!(u32).range(2..=16))]
    members: Vec<u32>,
    /// How many messages in a row are measured for their rate
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    messages: u64,
    /// Their length, at most 10 KiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "1")]
    bytes: u64,
    /// The network that messages move over: tcp, or a libfabric provider (verbs, shm, ofi-tcp, ...)
    #[arg(long, default_value_t)]
    fabric: Fabric,
    /// How often each is measured, alternating; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: DrawnOutput,
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "messages of {}, members as processes of this host, fabric {}, binomial pipeline; median \
         of {}",
        size::show(args.bytes),
        args.fabric,
        args.repeats
    );
    let mut report = Report::new("small", what);
    let panel = format!("Messages of {}", size::show(args.bytes));
    let mut points = Vec::new();
    let equipment = Equipment { fabric: args.fabric.clone(), ..Equipment::default() };
    for &members in &args.members {
        let hosts = vec![Host::here(); members as usize];
        let mut processes = MemberProcesses::start_with(&hosts, &interrupt, &equipment)?;
        let block_bytes = rdmc::BLOCK_BYTES_DEFAULT;
        let job = |small, messages| Job {
            small,
            ..Job::several(Algorithm::BinomialPipeline, block_bytes, messages, args.bytes)
        };
        let jobs =
            [job(false, args.messages), job(true, args.messages), job(false, 1), job(true, 1)];
        let results = sweep(&mut processes, &jobs, args.repeats, &format!("{members} members"))?;
        for (index, path) in PATHS.into_iter().enumerate() {
            let (many, one) = (&results[index], &results[index + 2]);
            let rate = args.messages as f64 / many.seconds();
            points.push((panel.clone(), path.to_owned(), Point::new(members.into(), rate)));
            report.row([
                ("members", json!(members)),
                ("path", json!(path)),
                ("messages_per_s", number(rate)),
                ("of_the_rate_relayed", number(results[0].seconds() / many.seconds())),
                ("latency_us", number(one.seconds() * 1e6)),
                ("cpu_us_per_message", number(many.cpu_seconds() * 1e6 / args.messages as f64)),
            ]);
        }
    }
    report.note(
        "rate: messages queued at once, until the last receiver has the last. latency: one message \
         alone, from the send to the last receiver. Members share this host's cores.",
    );
    args.output.print(&report, || {
        let title = "Messages per second against the number of members";
        Chart::grouped(title, Axis::counted("members"), Axis::linear("messages/s"), points)
    })
}
