//! Small messages: relayed, and written to every receiver at once (DSN 2018 section 4.6).

mod simulated;

use plan::size;
use rdmc::{Algorithm, Fabric};
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    member::{Equipment, Job, why_through_sockets},
    member_processes::{Host, MemberProcesses},
    outcome::Outcome,
    report::{Cell, Output, Report, median, number},
    sweep::{Repeated, progress, sweep},
};
use simulated::OVERHEAD_NS;

/// How messages travel: relayed by blocks, or written to every receiver at once.
const PATHS: [&str; 2] = ["relayed", "written"];

/// In each repetition a single message is sent so many times, each in a group of its own.
const SINGLE_RUNS: usize = 5;

/// Of a series in virtual time.
const SIMULATED_MESSAGES_MAX: u64 = 100;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of the groups of processes, roots included
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "2,4,8,16,32",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    members: Vec<u32>,
    /// Sizes of the groups in virtual time
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "2,8,32,128,1024",
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    simulated: Vec<u32>,
    /// How many messages in a row are measured for their rate
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    messages: u64,
    /// Their lengths, each at most 64 KiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = length,
          default_value = "1B,1KiB,10KiB,64KiB")]
    bytes: Vec<u64>,
    /// The network that messages move over: tcp, or a libfabric provider (verbs, shm, ofi-tcp, ...)
    #[arg(long, default_value_t)]
    fabric: Fabric,
    /// How often each is measured, alternating; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

fn length(text: &str) -> Result<u64, String> {
    let bytes = size::parse_nonzero(text)?;
    if bytes <= 64 << 10 { Ok(bytes) } else { Err("use at most 64KiB".into()) }
}

/// The results of one path: times in seconds.
struct Path {
    all: f64,
    latency: f64,
    cpu_per_message: Option<f64>,
}

pub fn run(args: &Args) -> Outcome<()> {
    let what = format!(
        "small messages, members as processes of this host, fabric {}{}, and in virtual time; binomial \
         pipeline; median of {}",
        args.fabric,
        why_through_sockets(&args.fabric),
        args.repeats
    );
    let mut report = Report::new("small", what);
    let interrupt = Interrupt::watch()?;
    for &members in &args.members {
        let found = measure(args, members, &interrupt)?;
        for (&bytes, paths) in args.bytes.iter().zip(&found) {
            add(&mut report, "processes", [members.into(), bytes, args.messages], paths);
        }
    }
    for (done, &members) in args.simulated.iter().enumerate() {
        progress("virtual time", done + 1, args.simulated.len());
        let messages = args.messages.min(SIMULATED_MESSAGES_MAX);
        for &bytes in &args.bytes {
            let paths = [false, true].map(|written| {
                let times = simulated::measure(members, bytes, messages, written)?;
                Ok(Path { all: times.all, latency: times.latency, cpu_per_message: None })
            });
            let [relayed, written]: [Outcome<Path>; 2] = paths;
            let paths = [relayed?, written?];
            add(&mut report, "virtual", [members.into(), bytes, messages], &paths);
        }
    }
    report.note(format!(
        "rate: messages queued at once, until the last receiver has the last. latency: one message \
         alone, from the send to the last receiver. Processes share this host's cores. virtual: links of \
         100 Gbit/s, 5 us between members, and {} us for each block at both its ends and for each write at its source.",
        OVERHEAD_NS / 1_000
    ));
    report.print(&args.output);
    Ok(())
}

/// Measures each length with this many processes.
fn measure(args: &Args, members: u32, interrupt: &Interrupt) -> Outcome<Vec<[Path; 2]>> {
    let hosts = vec![Host::here(); members as usize];
    let equipment = Equipment { fabric: args.fabric.clone(), ..Equipment::default() };
    let mut processes = MemberProcesses::start_with(&hosts, interrupt, &equipment)?;
    let mut jobs = Vec::new();
    for &bytes in &args.bytes {
        let job = |small, messages| {
            let block_bytes = 64 << 10;
            let several = Job::several(Algorithm::BinomialPipeline, block_bytes, messages, bytes);
            Job { small, ..several }
        };
        for small in [false, true] {
            jobs.push(job(small, args.messages));
            jobs.extend(vec![job(small, 1); SINGLE_RUNS]);
        }
    }
    let results = sweep(&mut processes, &jobs, args.repeats, &format!("{members} members"))?;
    let path = |results: &[Repeated]| Path {
        all: results[0].seconds(),
        latency: median(results[1..].iter().flat_map(Repeated::all_seconds).collect()),
        cpu_per_message: Some(results[0].cpu_seconds() / args.messages as f64),
    };
    let of_length = results.chunks(2 * (1 + SINGLE_RUNS));
    Ok(of_length
        .map(|both| both.split_at(1 + SINGLE_RUNS))
        .map(|(one, other)| [path(one), path(other)])
        .collect())
}

/// Adds a row for both paths, of members, length and number of messages.
fn add(
    report: &mut Report,
    network: &str,
    [members, bytes, messages]: [u64; 3],
    paths: &[Path; 2],
) {
    for (path, name) in paths.iter().zip(PATHS) {
        let rate = messages as f64 / path.all;
        let cells: [Cell; 8] = [
            ("network", json!(network)),
            ("members", json!(members)),
            ("length", json!(size::show(bytes))),
            ("path", json!(name)),
            ("messages_per_s", number(rate)),
            ("of_the_rate_relayed", number(paths[0].all / path.all)),
            ("latency_us", number(path.latency * 1e6)),
            ("of_the_latency_relayed", number(path.latency / paths[0].latency)),
        ];
        let cpu = path.cpu_per_message.map(|seconds| number(seconds * 1e6));
        report.row(cells.into_iter().chain([("cpu_us_per_message", cpu.unwrap_or_default())]));
    }
}
