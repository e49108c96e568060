//! Options that say how blocks travel.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use files::PushSettings;
use plan::size;
use rdmc::Algorithm;

/// What was asked for; `None` for `auto`.
#[derive(Clone, Debug)]
pub struct OrAuto<T>(pub Option<T>);

#[derive(Debug, clap::Args)]
pub struct Way {
    /// How blocks travel. auto: what should be fastest for this length, these hosts and --rate;
    /// `rdmc plan --explain` says what that is. chain-of-racks and nested-pipelines need racks,
    /// in-switch needs switches that copy; where they cannot, receivers relay
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = algorithm_or_auto())]
    pub algorithm: OrAuto<Algorithm>,

    /// The relay unit: small ones fill the pipeline sooner, large ones cost less processor time.
    /// auto: what should be fastest
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = block_size_or_auto)]
    pub block_size: OrAuto<u64>,

    /// What one link carries, such as 250mbit or 10gbit, for the choice of algorithm and block size.
    /// Unless given: 10gbit over TCP, 100gbit over RDMA, and what this machine's processors can do
    /// with --local
    #[arg(long, value_name = "RATE", value_parser = size::parse_rate)]
    pub rate: Option<u64>,

    /// What links let through at once above --rate, as token buckets do, such as those of rented
    /// machines: short messages then take a chain
    #[arg(long, value_name = "SIZE", requires = "rate", value_parser = size::parse, default_value = "0",
          hide_default_value = true)]
    pub burst: u64,
}

impl Way {
    /// Puts all of it into the settings.
    pub fn apply(&self, settings: &mut PushSettings) {
        settings.algorithm = self.algorithm.0;
        settings.block_bytes = self.block_size.0;
        settings.rate_bits_per_second = self.rate;
        settings.burst_bytes = self.burst;
    }

    /// Whether switches are to copy.
    pub fn is_in_switch(&self) -> bool {
        self.algorithm.0 == Some(Algorithm::InSwitch)
    }

    /// The algorithm, if one was asked for that cannot do without racks.
    pub fn needs_racks(&self) -> Option<Algorithm> {
        self.algorithm.0.filter(|algorithm| algorithm.needs_racks())
    }
}

fn algorithm_or_auto() -> impl TypedValueParser<Value = OrAuto<Algorithm>> {
    let names = ["auto"].into_iter().chain(Algorithm::ALL.map(Algorithm::name));
    // Any other name has been refused by then.
    PossibleValuesParser::new(names).map(|name| OrAuto(name.parse().ok()))
}

fn block_size_or_auto(text: &str) -> Result<OrAuto<u64>, String> {
    if text == "auto" { Ok(OrAuto(None)) } else { size::parse_block(text).map(Some).map(OrAuto) }
}
