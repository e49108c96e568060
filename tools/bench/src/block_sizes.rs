//! Bandwidth by block size and length of the message (DSN 2018 section 5.2.1, Fig. 6).

use lab::{Lab, LabSettings, Link, Rate};
use plan::{choice::ChoiceRequest, size};
use rdmc::Algorithm;
use serde_json::json;

use crate::{
    interrupt::Interrupt,
    member::Job,
    member_processes::MemberProcesses,
    outcome::Outcome,
    report::{Output, Report, number},
    shaped,
    sweep::{algorithms, sweep},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    members: u32,
    /// Rate of each link
    #[arg(long, default_value = "1gbit")]
    rate: Rate,
    /// Links that let 18 kB through at once instead of 2 ms: bursts hide store-and-forward
    #[arg(long)]
    small_burst: bool,
    /// Algorithm
    #[arg(long, value_parser = algorithms(), default_value = "binomial-pipeline")]
    algorithm: Algorithm,
    /// Block sizes; those that are longer than a message are left out for it
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_nonzero,
          default_value = "16KiB,64KiB,256KiB,1MiB,4MiB,16MiB")]
    blocks: Vec<u64>,
    /// Lengths of the message
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_nonzero,
          default_value = "16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB,128MiB")]
    bytes: Vec<u64>,
    /// Receives and sends that each member posts ahead [default: half a megabyte of blocks, 8 to 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: Option<u32>,
    /// How often each is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &Args) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let lab = Lab::create(&LabSettings::new(args.members, args.link()))?;
    let mut processes = MemberProcesses::start(&lab.hosts(), &interrupt)?;
    let mut report = args.report();
    for &bytes in &args.bytes {
        let jobs = args.jobs(bytes);
        let results = sweep(&mut processes, &jobs, args.repeats, &size::show(bytes))?;
        let picked = size::show(args.picked(bytes));
        for (job, result) in jobs.iter().zip(&results) {
            let mbit_per_s = bytes as f64 * 8.0 / 1e6 / result.seconds();
            let steps = job.schedule(args.members)?.steps(job.blocks()) as f64;
            let of_rate = mbit_per_s / args.rate.mbit();
            report.row([
                ("length", json!(size::show(bytes))),
                ("block", json!(size::show(job.block_bytes))),
                ("blocks", json!(job.blocks())),
                ("time_s", number(result.seconds())),
                ("mbit_per_s", number(mbit_per_s)),
                ("of_rate", number(of_rate)),
                ("of_its_limit", number(of_rate * steps / f64::from(job.blocks()))),
                ("model_picks", json!(picked)),
            ]);
        }
    }
    report.print(&args.output);
    Ok(())
}

impl Args {
    fn link(&self) -> Link {
        let link = Link::of_rate(self.rate);
        if self.small_burst { link.with_small_burst() } else { link }
    }

    fn report(&self) -> Report {
        let what = format!(
            "{} to {} members, one process per network namespace, links of {} Mbit/s, burst {}; \
             median of {}",
            self.algorithm,
            self.members,
            self.rate.mbit(),
            if self.small_burst { "18 kB" } else { "2 ms" },
            self.repeats
        );
        let mut report = Report::new("block-sizes", what);
        report.note(
            "mbit per s: length / time to the last receiver. of rate: the same as a share of the \
             links' rate, and of its limit: of the rate x blocks / steps, what the schedule allows; \
             what the links let through at once makes short messages faster than the rate. model \
             picks: the block size that the cost model takes for this length.",
        );
        report
    }

    /// With the blocks that are no longer than the message; with the shortest if all are.
    fn jobs(&self, bytes: u64) -> Vec<Job> {
        let shortest = self.blocks.iter().min().copied();
        let fitting = |&block: &u64| block <= bytes || Some(block) == shortest;
        let job =
            |block| Job::one(self.algorithm, block, bytes).in_group(self.members, self.window);
        let mut blocks = self.blocks.clone();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.into_iter().filter(fitting).map(job).collect()
    }

    /// What the cost model takes.
    fn picked(&self, message_bytes: u64) -> u64 {
        let algorithm = Some(self.algorithm);
        let request = ChoiceRequest {
            members: self.members,
            racks: &[],
            message_bytes,
            algorithm,
            block_bytes: None,
        };
        request.choose(&shaped::costs(self.members, Link::of_rate(self.rate))).block_bytes
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn blocks_are_not_longer_than_the_message() {
        let args = Cli::parse_from(["", "--blocks", "1MiB,64KiB,16KiB"]).args;
        let blocks = |bytes| args.jobs(bytes).iter().map(|job| job.blocks()).collect::<Vec<_>>();
        assert_eq!(blocks(1 << 20), [64, 16, 1]);
        assert_eq!(blocks(64 << 10), [4, 1]);
        assert_eq!(blocks(1), [1]);
    }

    #[test]
    fn the_model_picks_a_block_for_each_length() {
        let args = Cli::parse_from([""]).args;
        assert!(args.picked(16 << 10) <= 16 << 10);
        assert!(args.picked(128 << 20) > 16 << 10);
    }
}
