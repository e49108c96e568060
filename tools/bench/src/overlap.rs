//! The gain when the head of a message overlaps the tail of the one before.

use lab::{Lab, LabSettings, Link, Rate};
use plan::size;
use rdmc::{Algorithm, Fabric};
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    member::{Job, why_through_sockets},
    member_processes::{Host, MemberProcesses},
    outcome::Outcome,
    report::{Output, Report, number},
    sweep::{algorithms, sweep},
};

/// Messages in flight that are compared; with 1 nothing overlaps, as in the original RDMC.
const IN_FLIGHT: [u32; 3] = [1, 2, 4];
/// How many messages of which length.
const LOADS: [(u64, u64); 2] = [(32, 1 << 20), (8, 16 << 20)];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    members: u32,
    /// Algorithms
    #[arg(long, value_delimiter = ',', value_parser = algorithms(),
          default_value = "binomial-pipeline,chain")]
    algorithms: Vec<Algorithm>,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64KiB")]
    block: u64,
    /// Over links of this many Mbit/s, in network namespaces, instead of loopback (needs root)
    #[arg(long, value_name = "MBIT")]
    rate: Option<u64>,
    /// How often each is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let lab = match args.rate {
        Some(mbit) => {
            let link = Link::of_rate(Rate::from_mbit(mbit));
            Some(Lab::create(&LabSettings::new(args.members, link))?)
        }
        None => None,
    };
    let hosts = match &lab {
        Some(lab) => lab.hosts(),
        None => vec![Host::here(); args.members as usize],
    };
    let loopback = || format!("loopback{}", why_through_sockets(&Fabric::Tcp));
    let over = args.rate.map_or_else(loopback, |mbit| format!("links of {mbit} Mbit/s"));
    let what = format!(
        "several messages queued at once, {} members, blocks of {}, over {over}; median of {}",
        args.members,
        size::show(args.block),
        args.repeats
    );
    let mut report = Report::new("overlap", what);
    let mut processes = MemberProcesses::start(&hosts, &interrupt)?;
    let loads = |algorithm: &Algorithm| LOADS.map(|load| (*algorithm, load));
    for (algorithm, (messages, message_bytes)) in args.algorithms.iter().flat_map(loads) {
        let jobs = IN_FLIGHT.map(|messages_in_flight| Job {
            messages_in_flight,
            ..Job::several(algorithm, args.block, messages, message_bytes)
        });
        let results = sweep(&mut processes, &jobs, args.repeats, &size::show(message_bytes))?;
        for (job, result) in jobs.iter().zip(&results) {
            report.row([
                ("algorithm", json!(job.algorithm)),
                ("messages", json!(messages)),
                ("length", json!(size::show(message_bytes))),
                ("in_flight", json!(job.messages_in_flight)),
                ("time_s", number(result.seconds())),
                ("of_the_time_with_1", number(result.seconds() / results[0].seconds())),
                ("cpu_s", number(result.cpu_seconds())),
            ]);
        }
    }
    report.note("time: from the first send to the last receiver's last message.");
    report.print(&args.output);
    Ok(())
}
