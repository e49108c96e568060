//! Options for the schedule and the block size.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use files::PushSettings;
use plan::size;
use rdmc::Algorithm;

/// A requested value; `None` for `auto`.
#[derive(Clone, Debug)]
pub struct OrAuto<T>(pub Option<T>);

#[derive(Debug, clap::Args)]
pub struct TransferOptions {
    /// Schedule of blocks
    ///
    /// auto: the fastest for this length, these hosts, their racks and --rate (see `rdmc plan --explain`). racks-pipeline,
    /// racks-chain, chain-of-racks and nested-pipelines need racks; in-switch needs switches that copy; otherwise
    /// receivers relay.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = algorithm_or_auto())]
    pub algorithm: OrAuto<Algorithm>,

    /// Size of the blocks that hosts relay
    ///
    /// Small blocks fill the pipeline sooner, large blocks need less processor time. auto: the fastest.
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = block_size_or_auto)]
    pub block_size: OrAuto<u64>,

    /// Rate of a link, such as 250mbit or 9.5gbit, for the choice of algorithm and block size
    ///
    /// Default: over TCP that of this host's interface, or 10gbit if the system does not know it; 100gbit over RDMA; with --local
    /// an estimate for this machine's processors.
    #[arg(long, value_name = "RATE", value_parser = size::parse_rate)]
    pub rate: Option<u64>,

    /// Burst of links limited by a token bucket at --rate, as on many rented machines
    ///
    /// A chain is then fastest for short messages.
    #[arg(long, value_name = "SIZE", requires = "rate", value_parser = size::parse, default_value = "0",
          hide_default_value = true)]
    pub burst: u64,

    /// Limit what each host sends, and what it receives, to RATE, such as 500mbit
    ///
    /// Applies to all links of a host together, and also to this machine. Implies the fabric tcp.
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    pub bwlimit: Option<u64>,
}

impl TransferOptions {
    /// Puts these options into the settings.
    pub fn apply(&self, settings: &mut PushSettings) {
        settings.algorithm = self.algorithm.0;
        settings.block_bytes = self.block_size.0;
        settings.rate_bits_per_second = self.rate;
        settings.burst_bytes = self.burst;
        settings.rate_max = self.rate_max();
    }

    /// The limit in bytes per second.
    pub fn rate_max(&self) -> Option<u64> {
        self.bwlimit.map(|bits| bits / 8)
    }

    /// Whether the algorithm is in-switch.
    pub fn is_in_switch(&self) -> bool {
        self.algorithm.0 == Some(Algorithm::InSwitch)
    }

    /// The requested algorithm, if it needs racks.
    pub fn needs_racks(&self) -> Option<Algorithm> {
        self.algorithm.0.filter(|algorithm| algorithm.needs_racks())
    }
}

fn algorithm_or_auto() -> impl TypedValueParser<Value = OrAuto<Algorithm>> {
    let names = ["auto"].into_iter().chain(Algorithm::ALL.map(Algorithm::name));
    // The parser has refused all other names.
    PossibleValuesParser::new(names).map(|name| OrAuto(name.parse().ok()))
}

fn block_size_or_auto(text: &str) -> Result<OrAuto<u64>, String> {
    if text == "auto" { Ok(OrAuto(None)) } else { size::parse_block(text).map(Some).map(OrAuto) }
}

/// Parses the oversubscription of racks. Errors: not a number, or not from 1 to 1000.
pub fn oversubscription(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(times) if (1.0..=1000.0).contains(&times) => Ok(times),
        _ => Err("must be a number from 1 to 1000".into()),
    }
}

/// Parses a rate limit, in bits per second. Errors: not a rate, or too low.
pub fn parse_limit(text: &str) -> Result<u64, String> {
    match size::parse_rate(text)? {
        bits if bits < 1_000_000 => Err("must be at least 1mbit".into()),
        bits => Ok(bits),
    }
}
