//! What is measured.

use clap::ValueEnum;
use lab::Rate;
use plan::size;
use rdmc::Algorithm;

use crate::{report::Output, sweep};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(4..=64))]
    pub members: u32,
    /// Sizes of further groups with one slow link, in virtual time
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "64",
          value_parser = clap::value_parser!(u32).range(4..=1024))]
    pub slow_link_members: Vec<u32>,
    /// Over shaped links, in virtual time, or both
    #[arg(long, value_delimiter = ',', default_value = "links,virtual")]
    pub networks: Vec<Network>,
    /// How many times slower the slow link and the slow member are
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=100))]
    pub times_slower: u32,
    /// Algorithms
    #[arg(long, value_delimiter = ',', value_parser = sweep::algorithms(),
          default_value = "binomial-pipeline,chain")]
    pub algorithms: Vec<Algorithm>,
    /// Rate of each link. Unless given: 4000 Mbit/s / members, at most 1000
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Length of the message over links
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    pub bytes: u64,
    /// Block size over links
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64KiB")]
    pub block: u64,
    /// Blocks of the message in virtual time
    #[arg(long, value_name = "K", default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=100_000))]
    pub blocks: u32,
    /// How often each is measured, and how many seeds random delays have; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// Processes in network namespaces (needs root)
    Links,
    /// The real engines over a simulated network
    Virtual,
}
