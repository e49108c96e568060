//! Options of `rdmc bench`.

use std::path::PathBuf;

use plan::size;
use rdmc::Fabric;

use crate::{
    hosting::{Hosting, parse_fabric},
    transfer::{OrAuto, TransferOptions},
};

const EXAMPLES: &str = "\
Examples:
  rdmc bench node[01-04]
      this machine and four hosts, by ssh (rdmc has to be installed there)
  rdmc bench node[01-04] --fabric verbs --fabric tcp --json > bench.json
      one fabric after the other, as JSON for a bug report
  rdmc bench a:7000,b:7000 --secret-file secret
      with receivers started by `rdmc receive --listen`
  rdmc bench --local 3
      with three receivers on this machine, as a test

Latency is half of a round trip between applications. Bandwidth is a message's length over the time
until the confirmation that it is in the memory of the host (unicast) or of all hosts (multicast).
No file is read or written. The first message of each measurement does not count.

Exit codes:
  0    everything was measured
  1    nothing could be measured
  2    invalid arguments
  3    some hosts could not be measured; standard error names them
  4    everything was measured, but the report or --trace could not be written
  130  interrupted (SIGINT, SIGTERM, SIGHUP)

With --json standard output has one object in any case. Its exit_code is the same number.";

/// Measure latency and bandwidth between this machine and others
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("where").required(true).multiple(true))]
pub struct Args {
    /// Hosts, with ranges: node[01-16],login. HOST:PORT is a receiver that listens
    #[arg(value_name = "HOST", group = "where")]
    pub to: Vec<String>,

    /// A file of hosts, one or a list on each line; # starts a comment
    #[arg(long, value_name = "FILE", group = "where")]
    pub hosts_file: Option<PathBuf>,

    /// Start N receivers on this machine, named local-1 to local-N
    #[arg(long, value_name = "N", group = "where", conflicts_with_all = ["to", "hosts_file"],
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub local: Option<u16>,

    /// Network for blocks, as for `rdmc push`; may be given several times
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_fabric)]
    pub fabric: Vec<OrAuto<Fabric>>,

    /// Length of messages for bandwidth
    #[arg(long, default_value = "256MiB", value_parser = size::parse)]
    pub size: u64,

    /// Number of measurements of each bandwidth
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeats: u32,

    /// Number of measurements of each latency
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub round_trips: u32,

    #[command(flatten)]
    pub transfer: TransferOptions,

    /// Print one JSON object, including the machine data of `rdmc doctor`
    #[arg(long)]
    pub json: bool,

    /// Print no progress
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten)]
    pub hosting: Hosting,
}
