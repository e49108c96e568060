//! Members as processes of this host, connected by loopback: bound by processors and memory.

use std::net::SocketAddr;

use plan::size;
use rdmc::{Algorithm, ContextSettings, GroupSettings, Secret};
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    member::{Equipment, Job},
    member_processes::{Host, MemberProcesses},
    outcome::Outcome,
    report::{Output, Report, number},
    sweep::{Choice, algorithms, sweep},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of groups, the root included
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u32).range(2..=256))]
    members: Vec<u32>,
    /// Length of the message
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "256MiB")]
    bytes: u64,
    /// Algorithms; all of them if none is named
    #[arg(long, value_delimiter = ',', value_parser = algorithms())]
    algorithms: Vec<Algorithm>,
    /// Also what a group takes whose members say nothing but this length
    #[arg(long)]
    auto: bool,
    /// Each with and without comparing every message with the root's, in alternating order
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    equipment: Equipment,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    output: Output,
}

impl Args {
    /// What is measured; with `--auto` the library's choice comes first.
    fn jobs(&self, algorithms: &[Algorithm], members: u32) -> Vec<Job> {
        let mut jobs = Vec::new();
        if self.auto {
            let here = SocketAddr::from(([127, 0, 0, 1], 0));
            let settings =
                GroupSettings::new(1, vec![here; members as usize], 0).message_bytes(self.bytes);
            let context = ContextSettings::new(here, Secret::from_bytes([0; 32]));
            let picked = settings.choose(&context.fabric(self.equipment.fabric.clone()));
            let choice = Choice { blocks: vec![picked.block_bytes], ..self.choice.clone() };
            jobs.extend(choice.jobs(&[picked.algorithm], members, self.bytes));
        }
        jobs.extend(self.choice.jobs(algorithms, members, self.bytes));
        jobs
    }
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "{} from memory to memory on this host, {}, one process per member; median of {}",
        size::show(args.bytes),
        args.equipment.network(),
        args.choice.repeats
    );
    let mut report = Report::new("local", what);
    let chosen =
        if args.algorithms.is_empty() { &Algorithm::RELAYING } else { &args.algorithms[..] };
    for &members in &args.members {
        let hosts = vec![Host::here(); members as usize];
        let mut processes = MemberProcesses::start_with(&hosts, &interrupt, &args.equipment)?;
        let jobs = args.jobs(chosen, members);
        let verify = if args.verify { &[false, true][..] } else { &[false] };
        let with_each = |job: Job| verify.iter().map(move |&verify| Job { verify, ..job.clone() });
        let jobs: Vec<Job> = jobs.into_iter().flat_map(with_each).collect();
        let name = format!("{members} members");
        let results = sweep(&mut processes, &jobs, args.choice.repeats, &name)?;
        for (index, (job, result)) in jobs.iter().zip(results).enumerate() {
            let auto = if args.auto && index == 0 { "auto: " } else { "" };
            let (fastest, slowest) = result.range();
            let verify = args.verify.then(|| ("verify", json!(job.verify)));
            let head = [
                ("members", json!(members)),
                ("algorithm", json!(format!("{auto}{}", job.algorithm))),
                ("block", json!(size::show(job.block_bytes))),
            ];
            let times = [
                ("time_s", number(result.seconds())),
                ("fastest_s", number(fastest)),
                ("slowest_s", number(slowest)),
                ("skew_s", number(result.skew_seconds())),
                ("cpu_s", number(result.cpu_seconds())),
            ];
            report.row(head.into_iter().chain(verify).chain(times));
        }
    }
    report.note(
        "time: from the root's send to the last receiver. skew: from the first receiver to the last. \
         cpu: processor time of all members.",
    );
    report.print(&args.output);
    Ok(())
}
