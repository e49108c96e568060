//! Groups of processes in which every receiver checks every byte, over any fabric.

use std::net::IpAddr;

use plan::size;
use rdmc::Algorithm;
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    member::{Equipment, Job},
    member_processes::{Host, MemberProcesses},
    outcome::Outcome,
    report::{Output, Report, number},
    sweep::{algorithms, progress},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of groups, the root included
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4,8",
          value_parser = clap::value_parser!(u32).range(2..=256))]
    members: Vec<u32>,
    /// Lengths of messages; two of each are sent
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse,
          default_value = "0,1,65535,65536,65537,1MiB")]
    bytes: Vec<u64>,
    /// Algorithms; all of them if none is named
    #[arg(long, value_delimiter = ',', value_parser = algorithms())]
    algorithms: Vec<Algorithm>,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64KiB")]
    block: u64,
    /// Addresses of this host that members use in rotation; each chooses its device by its address
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1")]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    equipment: Equipment,
    #[command(flatten)]
    output: Output,
}

/// Errors: something did not arrive as it was sent.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "groups of processes of this host, {}, blocks of {}; all copies are whole",
        args.equipment.network(),
        size::show(args.block)
    );
    let mut report = Report::new("verify", what);
    let chosen =
        if args.algorithms.is_empty() { &Algorithm::RELAYING } else { &args.algorithms[..] };
    for &members in &args.members {
        let hosts = Host::here_at(&args.addresses, members);
        let mut processes = MemberProcesses::start_with(&hosts, &interrupt, &args.equipment)?;
        let jobs = jobs(chosen, &args.bytes, args.block);
        for (done, job) in (1..).zip(&jobs) {
            progress(&format!("{members} members"), done, jobs.len());
            let length = size::show(job.message_bytes);
            let measured = processes.run(job).map_err(|error| {
                format!("{members} members, {}, {length}: {error}", job.algorithm)
            })?;
            report.row([
                ("members", json!(members)),
                ("algorithm", json!(if job.small { "written at once" } else { &job.algorithm })),
                ("length", json!(length)),
                ("time_s", number(measured.seconds)),
            ]);
        }
    }
    report.note("time: from the root's send to the last receiver.");
    report.print(&args.output);
    Ok(())
}

fn jobs(algorithms: &[Algorithm], lengths: &[u64], block_bytes: u64) -> Vec<Job> {
    let job = |&algorithm: &Algorithm, message_bytes: u64, small: bool| Job {
        small,
        ..Job::several(algorithm, block_bytes, 2, message_bytes)
    };
    // Relayed by each algorithm, and small ones also written to all receivers.
    let bytes_max = rdmc::SmallMessages::default().bytes_max;
    let written = lengths.iter().filter(|&&length| length <= bytes_max.into());
    let written = written.zip(algorithms.first().into_iter().cycle());
    let of = |algorithm| lengths.iter().map(move |&length| job(algorithm, length, false));
    let relayed = algorithms.iter().flat_map(of);
    relayed.chain(written.map(|(&length, algorithm)| job(algorithm, length, true))).collect()
}
