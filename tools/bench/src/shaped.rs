//! Members in network namespaces over links of a known rate: the share of it that each copy gets.

use lab::{Lab, LabSettings, Link, Rate};
use plan::{choice::ChoiceRequest, costs::Costs, size};
use rdmc::{Algorithm, Fabric, Protection};
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    member::{Equipment, Job},
    member_processes::MemberProcesses,
    outcome::Outcome,
    report::{Cell, Output, Report, deviation, mean, number},
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
    /// The network that blocks move over: tcp, or a libfabric provider over IP (ofi-tcp)
    #[arg(long, default_value_t)]
    fabric: Fabric,
    /// How blocks are protected: none, authenticate or encrypt
    #[arg(long, value_name = "HOW")]
    protect: Option<Protection>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    output: Output,
}

/// The highest rate of links that two cores can carry for this many members.
pub fn usual_rate(members: u32) -> Rate {
    Rate::from_mbit(u64::from(4_000 / members).min(1_000))
}

/// The links of the group of this index, of one of these rates in Mbit/s; without any, of what two
/// cores can carry.
pub fn link(rates: &[u64], index: usize, members: u32, small_burst: bool) -> Link {
    let given = rates.get(index).or(rates.last()).map(|&mbit| Rate::from_mbit(mbit));
    let link = Link::of_rate(given.unwrap_or(usual_rate(members)));
    if small_burst { link.with_small_burst() } else { link }
}

/// Input of the cost model for hosts that share this machine's processors.
pub fn costs(members: u32, link: Link) -> Costs {
    let costs = Fabric::Tcp.costs_between_hosts(Some(link.rate.bits_per_s()));
    Costs {
        burst_bytes: link.burst_bytes(),
        ..costs.on_shared_processors(members, Fabric::this_machine().processors)
    }
}

impl Args {
    /// What is measured; with `--auto` the model's choice comes first.
    fn jobs(&self, members: u32, message_bytes: u64, link: Link) -> Vec<Job> {
        let mut jobs = Vec::new();
        if self.auto {
            let request = ChoiceRequest {
                members,
                racks: &[],
                message_bytes,
                algorithm: None,
                block_bytes: None,
            };
            let picked = request.choose(&costs(members, link));
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

/// Which members share a rack, for the algorithms that ask: neighbours, four at a time.
fn racks(members: u32) -> Vec<u32> {
    (0..members).map(|rank| rank / 4).collect()
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "one process per network namespace, fabric {}, links shaped at both ends, {}; median of {}",
        args.fabric,
        if args.small_burst { "burst 18 kB" } else { "burst 2 ms" },
        args.choice.repeats
    );
    let mut report = Report::new("shaped", what);
    for (index, &members) in args.members.iter().enumerate() {
        let link = link(&args.rate, index, members, args.small_burst);
        let lab = Lab::create(&LabSettings::new(members, link))?;
        for &bytes in &args.bytes {
            for one in args.measure(&lab, bytes, &interrupt)? {
                report.row(one.row()?);
            }
        }
    }
    report.note(
        "of rate: length / time to the last receiver / rate. of its limit: the same as a share of \
         blocks / steps, what the schedule allows. of one copy: time for all receivers / time for one. \
         Rack algorithms have racks of 4.",
    );
    report.print(&args.output);
    Ok(())
}

/// The results of one algorithm with one block size.
struct Found {
    members: u32,
    rate: Rate,
    name: String,
    job: Job,
    result: Repeated,
    /// One copy, with the same block size.
    single_seconds: f64,
}

impl Found {
    fn mbit_per_s(&self, seconds: f64) -> f64 {
        self.job.message_bytes as f64 * 8.0 / 1e6 / seconds
    }

    fn row(&self) -> Outcome<impl IntoIterator<Item = Cell>> {
        let (result, seconds) = (&self.result, self.result.seconds());
        let all: Vec<f64> = result.all_seconds().collect();
        let fraction = self.mbit_per_s(seconds) / self.rate.mbit();
        let schedule = self.job.schedule_in(&racks(self.members))?;
        let steps = schedule.steps(self.job.blocks()) as f64;
        Ok([
            ("members", json!(self.members)),
            ("mbit", json!(self.rate.bits_per_s() / 1_000_000)),
            ("length", json!(size::show(self.job.message_bytes))),
            ("algorithm", json!(self.name)),
            ("block", json!(size::show(self.job.block_bytes))),
            ("time_s", number(seconds)),
            ("mean_s", number(mean(&all))),
            ("deviation_s", number(deviation(&all))),
            ("mbit_per_s", number(self.mbit_per_s(seconds))),
            ("of_rate", number(fraction)),
            ("of_its_limit", number(fraction * steps / f64::from(self.job.blocks()))),
            ("of_one_copy", number(seconds / self.single_seconds)),
            ("skew_s", number(result.skew_seconds())),
            ("cpu_s", number(result.cpu_seconds())),
        ])
    }
}

impl Args {
    /// All algorithms with all block sizes, for messages of one length.
    fn measure(&self, lab: &Lab, bytes: u64, interrupt: &Interrupt) -> Outcome<Vec<Found>> {
        let (members, link) = (lab.settings().hosts, lab.settings().link);
        let jobs = self.jobs(members, bytes, link);
        let single_jobs = singles(&jobs);
        let equipment = Equipment {
            fabric: self.fabric.clone(),
            protect: self.protect,
            racks: racks(members),
            ..Equipment::default()
        };
        let singles = {
            let equipment = Equipment { racks: Vec::new(), ..equipment.clone() };
            let mut pair = MemberProcesses::start_with(&lab.hosts()[..2], interrupt, &equipment)?;
            sweep(&mut pair, &single_jobs, self.choice.repeats, "one copy")?
        };
        let mut processes = MemberProcesses::start_with(&lab.hosts(), interrupt, &equipment)?;
        let name = format!("{members} members, {}", size::show(bytes));
        let results = sweep(&mut processes, &jobs, self.choice.repeats, &name)?;
        let found = jobs.into_iter().zip(results).enumerate().map(|(index, (job, result))| {
            let picked = self.auto && index == 0;
            let mut copies = single_jobs.iter().zip(&singles);
            let single = copies.find(|(single, _)| single.block_bytes == job.block_bytes);
            let single_seconds = single.map_or(f64::NAN, |(_, one)| one.seconds());
            let name = format!("{}{}", if picked { "auto: " } else { "" }, job.algorithm);
            Found { members, rate: link.rate, name, job, result, single_seconds }
        });
        Ok(found.collect())
    }
}
