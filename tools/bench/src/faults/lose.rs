//! A member that fails in the middle of a message: all others have to report it in time.

use std::net::IpAddr;

use plan::size;
use rdmc::Algorithm;
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    member::{Equipment, Fault, Job, PlannedFault},
    member_processes::{Host, MemberProcesses, Reported},
    outcome::Outcome,
    report::{Output, Report, number},
    sweep::algorithms,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=256))]
    members: u32,
    /// Which member; not 0, the root
    #[arg(long, value_name = "RANK", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    victim: u32,
    /// Its fault when it has half the message: `kill`, `stop`, or a shell command that it runs
    #[arg(long, value_name = "FAULT", default_value = "kill", value_parser = parse_fault)]
    fault: Fault,
    /// Until when all others must have reported the failure
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    within: u32,
    /// Length of the message
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "4MiB")]
    bytes: u64,
    /// Block size
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64KiB")]
    block: u64,
    /// Algorithms
    #[arg(long, value_delimiter = ',', value_parser = algorithms(),
          default_value = "binomial-pipeline,chain")]
    algorithms: Vec<Algorithm>,
    /// Addresses of this host that members use in rotation; each chooses its device by its address
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1")]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    equipment: Equipment,
    #[command(flatten)]
    output: Output,
}

fn parse_fault(text: &str) -> Result<Fault, String> {
    match text {
        "" => Err("use kill, stop, or a command".into()),
        "kill" => Ok(Fault::Kill),
        "stop" => Ok(Fault::Stop),
        command => Ok(Fault::Run(command.to_owned())),
    }
}

/// Errors: a member did not report the failure in time, or blamed another member.
pub fn run(args: &Args) -> Outcome<()> {
    if args.victim >= args.members {
        return Err(format!("there is no member {} among {}", args.victim, args.members).into());
    }
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "member {} of {} fails ({:?}) in the middle of {}, {}",
        args.victim,
        args.members,
        args.fault,
        size::show(args.bytes),
        args.equipment.network()
    );
    let mut report = Report::new("lose", what);
    for algorithm in &args.algorithms {
        let reported =
            lose(args, *algorithm, &interrupt).map_err(|error| format!("{algorithm}: {error}"))?;
        let report_of_last = reported.failures.last().map(|(_, failure)| failure);
        report.row([
            ("algorithm", json!(algorithm.to_string())),
            ("time_s", number(reported.seconds)),
            ("a_report", json!(report_of_last)),
        ]);
    }
    report
        .note("time: from the fault until all other members have reported that the group failed.");
    report.print(&args.output);
    Ok(())
}

fn lose(args: &Args, algorithm: Algorithm, interrupt: &Interrupt) -> Outcome<Reported> {
    let hosts = Host::here_at(&args.addresses, args.members);
    let mut processes = MemberProcesses::start_with(&hosts, interrupt, &args.equipment)?;
    let job = Job::one(algorithm, args.block, args.bytes);
    let after_blocks = u64::from(job.blocks()).div_ceil(2);
    let fault = PlannedFault { after_blocks, fault: args.fault.clone() };
    let reported = processes.lose(&job, args.victim as usize, &fault)?;
    if reported.seconds > f64::from(args.within) {
        let late = format!("the others reported it after {:.1} s", reported.seconds);
        return Err(late.into());
    }
    // Where the network is broken, members may rightly blame different ones.
    let blames = |failure: &str| failure.contains(&format!("member {} ", args.victim));
    let wrong = reported.failures.iter().find(|(_, failure)| !blames(failure));
    match (wrong, &args.fault) {
        (Some((rank, failure)), Fault::Kill | Fault::Stop) => {
            Err(format!("member {rank} does not blame {}: {failure}", args.victim).into())
        }
        _ => Ok(reported),
    }
}
