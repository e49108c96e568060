//! Options of `rdmc bench`.

use std::path::PathBuf;

use plan::size;
use rdmc::Fabric;

use crate::{
    hosting::{Hosting, parse_fabric},
    way::{OrAuto, Way},
};

const EXAMPLES: &str = "\
Examples:
  rdmc bench node[01-04]
      this machine and four hosts, by ssh (rdmc has to be installed there)
  rdmc bench node[01-04] --fabric verbs --fabric tcp --json > bench.json
      one fabric after the other, for an issue
  rdmc bench a:7000,b:7000 --secret-file secret
      with receivers that were started by `rdmc receive --listen`
  rdmc bench --local 3
      with three receivers on this machine, to try it out

Latency is half of the way to a host and back, between applications. Bandwidth is a message's length
over the time until this machine hears that all of it is in the memory of the host (unicast) or of
all hosts (multicast). No file is read or written. The first message of each kind is not counted.

Exit codes:
  0    everything was measured
  1    nothing could be measured
  2    the arguments make no sense
  3    not all hosts could be measured; the others are named
  4    everything was measured, but the report or --trace could not be written
  130  interrupted (SIGINT, SIGTERM, SIGHUP); all receivers were told to end

With --json there is one object on standard output in any case. Its exit_code is the same number.";

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

    /// N receivers on this machine, named local-1 to local-N
    #[arg(long, value_name = "N", group = "where", conflicts_with_all = ["to", "hosts_file"],
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub local: Option<u16>,

    /// The network that blocks move over, as for `rdmc push`; may be given several times
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_fabric)]
    pub fabric: Vec<OrAuto<Fabric>>,

    /// How long the messages are that measure bandwidth
    #[arg(long, default_value = "256MiB", value_parser = size::parse)]
    pub size: u64,

    /// How often each bandwidth is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeats: u32,

    /// How often each latency is measured
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub round_trips: u32,

    #[command(flatten)]
    pub way: Way,

    /// Print one JSON object, with what `rdmc doctor` knows of this machine
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten)]
    pub hosting: Hosting,
}
