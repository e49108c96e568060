//! The cost of waiting for completions, by mode (DSN 2018 section 5.2.3).

use plan::size;
use rdmc::{Algorithm, CompletionMode, Fabric};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    member::{Equipment, Job, why_through_sockets},
    member_processes::{Host, MemberProcesses},
    outcome::Outcome,
    report::{Cell, Output, Report, number},
    sweep::{Repeated, sweep},
};

/// How many messages of which length: small, middle and large, as in the paper's Fig. 11.
const LOADS: [(u64, u64); 3] = [(400, 10_000), (40, 1_000_000), (2, 100_000_000)];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of the groups, roots included
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    members: Vec<u32>,
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
    output: Output,
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "completion modes: members as processes of this host, fabric {}{}, binomial pipeline, blocks of \
         {}; median of {}",
        args.fabric,
        why_through_sockets(&args.fabric),
        size::show(args.block),
        args.repeats
    );
    let mut report = Report::new("modes", what);
    for &members in &args.members {
        let hosts = hosts(args, members);
        for completion in CompletionMode::ALL {
            let fabric = args.fabric.clone();
            let equipment = Equipment { fabric, completion, ..Equipment::default() };
            let mut processes = MemberProcesses::start_with(&hosts, &interrupt, &equipment)?;
            let jobs = LOADS.map(|load| args.job(load));
            let name = format!("{members} members, {completion}");
            let results = sweep(&mut processes, &jobs, args.repeats, &name)?;
            for (job, result) in jobs.iter().zip(&results) {
                report.row(row(members, completion, job, result));
            }
        }
    }
    report.note(
        "cpu share per member: processor time of a member's process divided by the time that the \
         messages took; 1 is a whole core. own core: each member ran on a core of its own. Where \
         members share this host's cores, those that poll take them from the others.",
    );
    report.print(&args.output);
    Ok(())
}

/// This host once for each member, each on a core of its own if there are enough.
fn hosts(args: &Args, members: u32) -> Vec<Host> {
    let hosts = Host::here_at(&args.addresses, members);
    match own_cores(members) {
        Some(cores) => {
            hosts.into_iter().zip(cores).map(|(host, core)| host.on_core(core)).collect()
        }
        None => hosts,
    }
}

/// A core for each member, of those that this process may use; `None` if there are too few.
fn own_cores(members: u32) -> Option<Vec<usize>> {
    let usable = sched_getaffinity(None).ok()?;
    let cores = (0..CpuSet::MAX_CPU).filter(|&core| usable.is_set(core));
    let cores: Vec<usize> = cores.take(members as usize).collect();
    (cores.len() == members as usize).then_some(cores)
}

impl Args {
    fn job(&self, (messages, message_bytes): (u64, u64)) -> Job {
        let is_long = message_bytes > 1_000_000;
        let bytes = if is_long { message_bytes / self.less } else { message_bytes };
        let messages = (messages / self.less).max(1);
        Job::several(Algorithm::BinomialPipeline, self.block, messages, bytes)
    }
}

fn row(
    members: u32,
    completion: CompletionMode,
    job: &Job,
    result: &Repeated,
) -> impl IntoIterator<Item = Cell> {
    let seconds = result.seconds();
    let mb_per_s = (job.messages * job.message_bytes) as f64 / seconds / 1e6;
    let share = result.cpu_seconds() / seconds / f64::from(members);
    let length = size::show(job.message_bytes);
    [
        ("members", json!(members)),
        ("own_core", json!(own_cores(members).is_some())),
        ("completion", json!(completion.name())),
        ("messages", json!(job.messages)),
        ("length", json!(length)),
        ("time_s", number(seconds)),
        ("MB_per_s", number(mb_per_s)),
        ("cpu_s", number(result.cpu_seconds())),
        ("cpu_share_per_member", number(share)),
    ]
}
