//! The options of `rdmc-bench collectives`.

use std::time::Instant;

use clap::{Parser as _, ValueEnum};
use plan::size;
use rdmc::Fabric;

use super::{barrier::Barrier, cell::Rule, contest::Rules};
use crate::{outcome::Outcome, report::Output};

/// Names that `--only` takes.
const NAMES: [&str; 8] =
    ["rdmc", "two-sided", "bare-memory", "openmpi4", "openmpi5", "mpich4", "mpich5", "gloo"];

/// A part of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// rdmc beside send/receive, MPI and Gloo
    Peers,
    /// The figures of the paper: measured, by its model, and in a simulated network
    Figures,
    /// Where the time of an allreduce of 4 bytes goes
    Time,
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// What is measured
    #[arg(long, value_name = "PARTS", value_delimiter = ',', default_value = "peers,figures,time")]
    pub parts: Vec<Part>,
    /// Sizes of teams, beside peers
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,4,8,16",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    pub members: Vec<u32>,
    /// Lengths, beside peers: powers of two from 4 B to 16 MiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = length,
          default_value = "4,64,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB")]
    pub bytes: Vec<u64>,
    /// Only these programs
    #[arg(long, value_name = "NAMES", value_delimiter = ',',
          value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    pub only: Vec<String>,
    /// The networks of rdmc: tcp, or providers of libfabric
    #[arg(
        long = "fabric",
        value_name = "FABRICS",
        value_delimiter = ',',
        default_value = "tcp,ofi-tcp,shm"
    )]
    pub fabrics: Vec<Fabric>,
    /// The degree of rdmc's reductions, beside peers [default: the library's choice]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=63))]
    pub degree: Option<u32>,
    /// Numbers of members that are only simulated and predicted
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "512,1024",
          value_parser = clap::value_parser!(u32).range(17..=4096))]
    pub many: Vec<u32>,
    /// How many turns each has; medians are reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub turns: u32,
    /// Begin no more turns beside peers after this many minutes; each number of members gets an equal share
    #[arg(long, value_name = "M", default_value_t = 18, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub minutes: u64,
    /// About how many milliseconds one operation with one length is repeated in a turn
    #[arg(long, value_name = "MS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub budget_ms: u64,
    /// What members pass before each measured operation
    #[arg(long, value_enum, default_value_t = Barrier::Shared)]
    pub barrier: Barrier,
    /// Members on hosts of a lab, over links of a known rate (needs root)
    #[arg(long)]
    pub lab: bool,
    /// One turn, fewer lengths and members: minutes
    #[arg(long, conflicts_with_all = ["members", "bytes", "turns", "budget_ms"])]
    pub short: bool,
    #[command(flatten)]
    pub output: Output,
}

impl Args {
    /// With what `--short` stands for.
    pub fn shortened(&self) -> Outcome<Self> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let line = "short --members 2,4 --bytes 4,1KiB,4KiB,64KiB,1MiB --turns 1 --budget-ms 15";
        let args = Line::try_parse_from(line.split(' '))?.args;
        Ok(Self {
            parts: self.parts.clone(),
            only: self.only.clone(),
            fabrics: self.fabrics.clone(),
            degree: self.degree,
            many: self.many.clone(),
            barrier: self.barrier,
            lab: self.lab,
            output: self.output,
            short: true,
            ..args
        })
    }

    /// How programs are measured; no turn begins after `until`.
    pub fn rules(&self, until: Instant) -> Rules {
        let budget_us = self.budget_ms * 1_000;
        let rule = Rule { warm_up: 10, budget_us, repeats_min: 3, repeats_max: 1_000 };
        Rules { rule, barrier: self.barrier, turns: self.turns, until }
    }
}

fn length(text: &str) -> Result<u64, String> {
    let bytes = size::parse_nonzero(text).map_err(|error| error.to_string())?;
    let is_valid = bytes.is_power_of_two() && (4..=16 << 20).contains(&bytes);
    is_valid.then_some(bytes).ok_or_else(|| "a power of two from 4 B to 16 MiB".to_owned())
}
