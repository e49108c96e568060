//! Options of `rdmc plan --in-switch`.

use super::source::Source;

/// The examples of `rdmc help plan`.
pub const EXAMPLES: &str = "\
Examples:
  rdmc plan --members 8 --blocks 3
  rdmc plan --explain --members 16 --bytes 8GiB --rate 100gbit
  rdmc plan --collective allreduce --members 32 --degree 3
  rdmc plan --collective allreduce --members 16 --bytes 4 --explain
  rdmc plan --fetch poisson=4 --members 16 --blocks 1000 --share 1000
  rdmc plan --in-switch racks:4x2 --tor-only --sender a1 --receivers d1,a2
  rdmc plan --in-switch fat-tree:6 --members 27
  rdmc plan --in-switch topology.toml --json

A topology.toml (docs/internals/in-switch.md):
  [[switch]]
  name = \"spine\"
  copies = false

  [[switch]]
  name = \"tor-a\"
  copies = true
  hosts = [\"a1\", \"a2\"]
  links = [\"spine\"]";

/// Options of schedules and of collective operations. They exclude `--in-switch`, so options that require it must conflict with
/// them too; otherwise the parser would not report that it is missing.
const OF_SCHEDULES: [&str; 15] = [
    "blocks",
    "fetch",
    "share",
    "algorithm",
    "root",
    "racks",
    "explain",
    "bytes",
    "block_size",
    "rate",
    "burst",
    "local",
    "collective",
    "degree",
    "costs",
];

/// Options for switches that copy.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Switches that copy")]
pub struct Options {
    /// Show where the switches of this topology copy a message instead, and how often it crosses each link:
    /// racks:RACKSxHOSTS (hosts a1, a2, ..., b1, ...), fat-tree:PORTS or fat-tree:PORTSxHOSTS (three
    /// layers of switches, hosts h0, h1, ...), or a file
    #[arg(long, value_name = "TOPOLOGY", conflicts_with_all = OF_SCHEDULES)]
    pub in_switch: Option<Source>,

    /// Only switches with hosts can copy
    #[arg(long, requires = "in_switch", conflicts_with_all = OF_SCHEDULES)]
    pub tor_only: bool,

    /// The sending host [default: the first]
    #[arg(long, value_name = "HOST", requires = "in_switch", conflicts_with_all = OF_SCHEDULES)]
    pub sender: Option<String>,

    /// The receiving hosts, in the order of a chain
    /// [default: the first other hosts, up to --members or the largest group]
    #[arg(
        long,
        value_name = "HOSTS",
        value_delimiter = ',',
        requires = "in_switch",
        conflicts_with = "members",
        conflicts_with_all = OF_SCHEDULES
    )]
    pub receivers: Option<Vec<String>>,
}

impl Options {
    /// Whether `--in-switch` was given.
    pub const fn are_given(&self) -> bool {
        self.in_switch.is_some()
    }
}
