//! Members in network namespaces over links of a known rate: what part of it each copy gets.

use lab::{Lab, LabSettings, Link, Rate};
use rdmc::{
    Algorithm, Fabric,
    choice::{Costs, Wish},
    size,
};
use serde_json::json;

use crate::{
    Outcome,
    crew::Crew,
    interrupt::Interrupt,
    member::Job,
    report::{Report, number},
    sweep::{Choice, Repeated, algorithms, sweep},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of groups, the root included
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4,8",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    members: Vec<u32>,
    /// Rate of each link in Mbit/s of TCP payload, one for each size of group, or one for all.
    /// Unless given: 4000 / members, at most 1000, which two cores can carry
    #[arg(long, value_name = "MBIT", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: Vec<u64>,
    /// Lengths of the message
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_nonzero,
          default_value = "256MiB,8MiB")]
    bytes: Vec<u64>,
    /// Algorithms
    #[arg(long, value_delimiter = ',', value_parser = algorithms(),
          default_value = "chain,binomial-pipeline")]
    algorithms: Vec<Algorithm>,
    /// Also what the cost model picks for each rate and length
    #[arg(long)]
    auto: bool,
    /// Links that let 18 kB through at once instead of 2 ms: bursts hide store-and-forward
    #[arg(long)]
    small_burst: bool,
    #[command(flatten)]
    choice: Choice,
}

/// The links of the group of this index, of one of these rates in Mbit/s; without any, of what two
/// cores can carry.
pub fn link(rates: &[u64], index: usize, members: u32, small_burst: bool) -> Link {
    let usual = u64::from(4_000 / members).min(1_000);
    let given = rates.get(index).or(rates.last());
    let link = Link::of_rate(Rate::from_mbit(given.copied().unwrap_or(usual)));
    if small_burst { link.with_small_burst() } else { link }
}

impl Args {
    /// What is measured; with `--auto` the model's choice comes first.
    fn jobs(&self, members: u32, message_bytes: u64, rate: Rate) -> Vec<Job> {
        let mut jobs = Vec::new();
        if self.auto {
            let wish = Wish { members, message_bytes, algorithm: None, block_bytes: None };
            let costs = Costs::of_fabric(&Fabric::Tcp, Some(rate.bits_per_s()));
            let picked = wish.choose(&costs.on_shared_processors(members));
            let choice = Choice { blocks: vec![picked.block_bytes], ..self.choice.clone() };
            jobs.extend(choice.jobs(&[picked.algorithm], members, message_bytes));
        }
        jobs.extend(self.choice.jobs(&self.algorithms, members, message_bytes));
        jobs
    }
}

/// A copy to one receiver for each block size of these jobs.
fn singles(jobs: &[Job]) -> Vec<Job> {
    let mut all: Vec<Job> = Vec::new();
    for job in jobs {
        if all.iter().all(|single| single.block_bytes != job.block_bytes) {
            all.push(Job { algorithm: Algorithm::Chain.to_string(), ..job.clone() });
        }
    }
    all
}

/// Measures and prints.
pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "one process per network namespace, links shaped at both ends, {}; median of {}",
        if args.small_burst { "burst 18 kB" } else { "burst 2 ms" },
        args.choice.repeats
    );
    let columns = [
        "members",
        "mbit",
        "length",
        "algorithm",
        "block",
        "time_s",
        "of_rate",
        "of_its_limit",
        "of_one_copy",
        "skew_s",
        "cpu_s",
    ];
    let mut report = Report::new("shaped", what, &columns);
    for (index, &members) in args.members.iter().enumerate() {
        let link = link(&args.rate, index, members, args.small_burst);
        let lab = Lab::create(&LabSettings::new(members, link))?;
        for &bytes in &args.bytes {
            let jobs = args.jobs(members, bytes, link.rate);
            // One copy, with the same block size, to compare with.
            let single_jobs = singles(&jobs);
            let singles = {
                let mut pair = Crew::start(&lab.hosts()[..2], &interrupt)?;
                sweep(&mut pair, &single_jobs, args.choice.repeats, "one copy")?
            };
            let mut crew = Crew::start(&lab.hosts(), &interrupt)?;
            let name = format!("{members} members, {}", size::show(bytes));
            let results = sweep(&mut crew, &jobs, args.choice.repeats, &name)?;
            for (index, (job, result)) in jobs.iter().zip(&results).enumerate() {
                let picked = args.auto && index == 0;
                let fraction = bytes as f64 * 8.0 / 1e6 / result.seconds() / link.rate.mbit();
                let steps = job.schedule(members)?.steps(job.blocks()) as f64;
                let single: Option<&Repeated> = single_jobs
                    .iter()
                    .position(|single| single.block_bytes == job.block_bytes)
                    .map(|index| &singles[index]);
                report.row(vec![
                    json!(members),
                    json!(link.rate.bits_per_s() / 1_000_000),
                    json!(size::show(bytes)),
                    json!(format!("{}{}", if picked { "auto: " } else { "" }, job.algorithm)),
                    json!(size::show(job.block_bytes)),
                    number(result.seconds()),
                    number(fraction),
                    number(fraction * steps / f64::from(job.blocks())),
                    single.map_or(json!(null), |one| number(result.seconds() / one.seconds())),
                    number(result.skew_seconds()),
                    number(result.cpu_seconds()),
                ]);
            }
        }
    }
    report.note(
        "of rate: length / time to the last receiver / rate. of its limit: the same as a share of \
         blocks / steps, what the schedule allows. of one copy: time for all receivers / time for one.",
    );
    report.print(args.choice.json);
    Ok(())
}
