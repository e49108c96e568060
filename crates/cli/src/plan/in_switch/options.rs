//! Options of `rdmc plan --in-switch`.

use super::source::Source;

/// The end of `rdmc help plan`.
pub const EXAMPLES: &str = "\
Examples:
  rdmc plan --members 8 --blocks 3
  rdmc plan --explain --members 16 --bytes 8GiB --rate 100gbit
  rdmc plan --in-switch racks:4x2 --tor-only --sender a1 --receivers d1,a2
  rdmc plan --in-switch fat-tree:6 --members 27
  rdmc plan --in-switch topology.toml --json

A topology.toml (docs/in-switch.md):
  [[switch]]
  name = \"spine\"
  copies = false

  [[switch]]
  name = \"tor-a\"
  copies = true
  hosts = [\"a1\", \"a2\"]
  links = [\"spine\"]";

/// Options that say nothing about switches. Where one of them stands, the parser would not miss
/// `--in-switch`; so each option that needs that one names them.
const OF_SCHEDULES: [&str; 11] = [
    "blocks",
    "algorithm",
    "root",
    "racks",
    "explain",
    "bytes",
    "block_size",
    "rate",
    "burst",
    "local",
    "svg",
];

/// Where switches copy.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Switches that copy")]
pub struct Options {
    /// Show instead where switches copy a message of a group, and how often it crosses links:
    /// racks:RACKSxHOSTS (hosts a1, a2, ..., b1, ...), fat-tree:PORTS or fat-tree:PORTSxHOSTS
    /// (three layers of switches, hosts h0, h1, ...), or a file
    #[arg(long, value_name = "TOPOLOGY", conflicts_with_all = OF_SCHEDULES)]
    pub in_switch: Option<Source>,

    /// Only switches that hosts are linked to can copy
    #[arg(long, requires = "in_switch", conflicts_with_all = OF_SCHEDULES)]
    pub tor_only: bool,

    /// The host that has the message at the start [default: the first]
    #[arg(long, value_name = "HOST", requires = "in_switch", conflicts_with_all = OF_SCHEDULES)]
    pub sender: Option<String>,

    /// The hosts that need it, in the order of a chain
    /// [default: the first others, as many as --members says or a group can have]
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
    /// Whether this is what was asked for.
    pub const fn are_given(&self) -> bool {
        self.in_switch.is_some()
    }
}
