//! Options of `rdmc plan`.

use clap::{
    ArgGroup,
    builder::{PossibleValuesParser, TypedValueParser},
};
use plan::size;
use schedule::{Algorithm, MAX_MEMBERS};

use super::{arrivals::Arrivals, in_switch, operation};
use crate::{
    failure::Failure,
    help::{EXPERTS, USUAL},
};

/// Show the transfers of each step of a schedule, the writes of a collective operation, or where switches copy
#[derive(Debug, clap::Args)]
#[command(after_long_help = in_switch::EXAMPLES, next_help_heading = USUAL)]
#[command(group = ArgGroup::new("of_a_length").args(["explain", "collective"]).multiple(true))]
pub struct Args {
    /// Number of members, including the root [default: those of --racks]
    #[arg(
        long,
        value_name = "N",
        required_unless_present_any = ["in_switch", "racks"],
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_MEMBERS))
    )]
    pub members: Option<u32>,

    /// Number of blocks of the message
    #[arg(long, value_name = "K", required_unless_present_any = ["explain", "in_switch", "collective"])]
    pub blocks: Option<u32>,

    /// Schedule [default: binomial-pipeline; with --explain: any]
    ///
    /// racks-pipeline, racks-chain, chain-of-racks and nested-pipelines need --racks. For in-switch each copy is shown as a step,
    /// although switches make all copies of a block from one transmission.
    #[arg(long, value_name = "NAME", value_parser = algorithms())]
    pub algorithm: Option<Algorithm>,

    /// Rank of the sender
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub root: u32,

    /// Size of each rack, in rank order: 4,4,2 puts ranks 0-3, 4-7 and 8-9 into one rack each
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub racks: Option<Vec<u32>>,

    /// Print which algorithm and block size `auto` chooses for --bytes, and why, instead of a schedule
    ///
    /// With --collective, compare all ways.
    #[arg(long, requires = "bytes", conflicts_with_all = ["blocks", "root"])]
    pub explain: bool,

    /// Oversubscription of racks: hosts of a rack can send N times what its uplink carries [default: 4]
    #[arg(long, value_name = "N", requires_all = ["explain", "racks"], help_heading = EXPERTS,
          value_parser = crate::transfer::oversubscription)]
    pub oversubscription: Option<f64>,

    /// Length of the message
    #[arg(long, value_name = "SIZE", requires = "of_a_length", value_parser = size::parse)]
    pub bytes: Option<u64>,

    /// Consider only this block size
    #[arg(long, value_name = "SIZE", requires = "explain", value_parser = size::parse_block, help_heading = EXPERTS)]
    pub block_size: Option<u64>,

    /// Rate of a link, such as 250mbit or 9.5gbit [default: 10gbit]
    #[arg(long, value_name = "RATE", requires = "explain", value_parser = size::parse_rate)]
    pub rate: Option<u64>,

    /// Burst of links limited by a token bucket at --rate
    #[arg(long, value_name = "SIZE", requires = "rate", value_parser = size::parse, default_value = "0",
          help_heading = EXPERTS)]
    pub burst: u64,

    /// All members share this machine, as with `rdmc push --local`
    #[arg(long, requires = "explain", conflicts_with = "rate", help_heading = EXPERTS)]
    pub local: bool,

    /// Hosts that fetch: when each of --members, but the server, comes and is done
    ///
    /// together; every=STEPS: one after so many steps; poisson=HOSTS: at random, HOSTS in the time of one copy on average. In a
    /// step a member sends and receives one block at most.
    #[arg(long, value_name = "ARRIVALS", requires_all = ["members", "blocks"],
          conflicts_with_all = ["algorithm", "root", "racks", "explain", "collective"])]
    pub fetch: Option<Arrivals>,

    /// How many steps a host that fetches sends its copy to others [default: 0: it leaves when it is done]
    #[arg(long, value_name = "STEPS", requires = "fetch", help_heading = EXPERTS)]
    pub share: Option<u64>,

    /// Print one JSON object instead of the table (`./dev plot` of the repository draws it)
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub operation: operation::Options,

    #[command(flatten)]
    pub in_switch: in_switch::Options,
}

impl Args {
    /// The number of members: that of `--members`, or of the racks; unused with `--in-switch`.
    ///
    /// Errors: the racks have no members, or too many.
    pub fn members(&self) -> Result<u32, Failure> {
        match (self.members, &self.racks) {
            (Some(members), _) => Ok(members),
            (None, None) => Ok(1),
            (None, Some(sizes)) => {
                let total: u64 = sizes.iter().copied().map(u64::from).sum();
                match u32::try_from(total) {
                    Ok(members @ 1..=MAX_MEMBERS) => Ok(members),
                    _ => Err(Failure::Usage(format!(
                        "--racks has {total} members, but a group has 1 to {MAX_MEMBERS}"
                    ))),
                }
            }
        }
    }
}

fn algorithms() -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new(Algorithm::ALL.map(Algorithm::name)).try_map(|name| name.parse())
}
