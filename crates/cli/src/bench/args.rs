//! Options of `rdmc bench`.

use measure::{COLLECTIVE_REPEATS_MAX, Collective, CollectivePlan};
use plan::size;
use rdmc::Fabric;

use crate::{
    config,
    help::{EXPERTS, MEASURING, USUAL},
    hosting::{Hosting, parse_fabric},
    named_hosts::NamedHosts,
    transfer::{OrAuto, TransferOptions},
};

const EXAMPLES: &str = "\
Examples:
  rdmc bench --to node[01-04]
      this machine and four hosts, over ssh (rdmc must be installed there)
  rdmc bench --to node[01-04] --fabric verbs --fabric tcp --json > bench.json
      one fabric after the other, as JSON for a bug report
  rdmc bench --to a:7000,b:7000 --secret-file secret
      with receivers started by `rdmc receive --listen ... --bench`
  rdmc bench --local 3
      with three receivers on this machine, as a test
  rdmc bench --to node[01-04] --collective allreduce --sizes 4,1KiB,64KiB
      a sum over this machine and four hosts, by the rules of the OSU benchmarks

Latency is half of a round trip between applications. Bandwidth is a message's length divided by the
time until the confirmation that it is in the memory of the host (unicast) or of all hosts (multicast).
No file is read or written. The first message of each measurement does not count.

With --collective, this machine (rank 0) and the hosts form a team. Each member times its calls, with a barrier after each,
after a tenth as many calls for warming up. avg, min and max are over the members' averages, p50 and p99 over all calls of all
members. One result of each length is checked. If a member fails, the measurement ends, and the member is named.

Exit codes:
  0    everything was measured
  1    nothing could be measured
  2    invalid arguments
  3    some hosts could not be measured; standard error names them
  4    everything was measured, but the report or --trace could not be written
  130  interrupted (SIGINT, SIGTERM, SIGHUP)

With --json, standard output always has one object. Its exit_code is the exit code.";

/// Measure latency and bandwidth between this machine and others
#[derive(Debug, clap::Args)]
#[command(after_long_help = config::help(EXAMPLES), next_help_heading = USUAL)]
#[command(group = clap::ArgGroup::new("where").required(true).multiple(true))]
pub struct Args {
    #[command(flatten)]
    pub hosts: NamedHosts,

    /// Network for blocks, as for `rdmc push`; may be given several times
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_fabric)]
    pub fabric: Vec<OrAuto<Fabric>>,

    /// Length of messages for bandwidth
    #[arg(long, default_value = "256MiB", value_parser = size::parse)]
    pub size: u64,

    /// Number of measurements per result
    ///
    /// [default: 5 per bandwidth; with --collective 1,000 per length up to 8 KiB, 100 above]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(COLLECTIVE_REPEATS_MAX)))]
    pub repeats: Option<u32>,

    /// Measure a collective operation of a team instead: broadcast, allreduce
    #[arg(long, value_name = "NAME")]
    pub collective: Option<Collective>,

    /// Print one JSON object, including the machine data of `rdmc doctor`
    #[arg(long)]
    pub json: bool,

    /// Print no progress
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten)]
    pub hosting: Hosting,

    /// Number of measurements per latency
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000),
          help_heading = MEASURING)]
    pub round_trips: u32,

    /// Lengths of messages for --collective [default: 4 bytes to 1 MiB by powers of 4]
    #[arg(long, value_name = "SIZE,..", requires = "collective", value_delimiter = ',', value_parser = size::parse,
          help_heading = MEASURING)]
    pub sizes: Vec<u64>,

    /// Degree of the reduction tree for --collective allreduce [default: chosen by the library]
    #[arg(long, value_name = "K", requires = "collective", value_parser = clap::value_parser!(u32).range(1..=65_536),
          help_heading = MEASURING)]
    pub degree: Option<u32>,

    #[command(flatten, next_help_heading = EXPERTS)]
    pub transfer: TransferOptions,
}

impl Args {
    /// Number of measurements per bandwidth.
    pub fn bandwidth_repeats(&self) -> u32 {
        self.repeats.unwrap_or(5)
    }

    /// The measurement of a collective operation, if one is requested.
    pub fn collective(&self) -> Option<CollectivePlan> {
        let defaults = (1..=10).map(|power| 1 << (2 * power));
        let is_given = !self.sizes.is_empty();
        let sizes = if is_given { self.sizes.clone() } else { defaults.collect() };
        let Self { repeats, degree, .. } = *self;
        self.collective.map(|operation| CollectivePlan { operation, sizes, repeats, degree })
    }
}
