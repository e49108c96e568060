//! What is simulated.

use charts::{Line, Point};
use clap::ValueEnum;
use mcrdma_sim::{Config, Pattern};

use crate::report::{DrawnOutput, Report};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which of the paper's figures
    #[arg(value_enum)]
    pub figure: Figure,
    /// Seed of random numbers: the same seed, the same figures
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Simulate a part of the time or of the requests only, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub part: u64,
    /// Without congestion control: only pauses slow senders down
    #[arg(long)]
    pub without_dcqcn: bool,
    #[command(flatten)]
    pub output: DrawnOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// One client, three replicas: latency and bandwidth by length
    Fig4,
    /// Multicast and unicast flows that start one after another
    Fig5,
    /// A group with 1 to 7 congested members
    Fig6,
    /// Lost packets
    Fig7,
    /// Reads from a storage system that replicates writes
    Fig8,
    /// Parameter servers and their workers
    Fig9,
}

impl Args {
    pub fn config(&self) -> Config {
        self.apply(Config::default())
    }

    /// The options, applied to a network.
    pub fn apply(&self, mut config: Config) -> Config {
        config.seed = self.seed;
        if self.without_dcqcn {
            (config.ecn, config.requester.rate) = (None, None);
        }
        config
    }

    /// The part that is simulated, at least 1.
    pub fn part_of(&self, whole: u64) -> u64 {
        (whole * self.part / 100).max(1)
    }

    pub fn report(&self, what: &str) -> Report {
        let control = if self.without_dcqcn { ", without DCQCN" } else { "" };
        let what = format!("{what}; simulated, seed {}{control}", self.seed);
        Report::new("in-switch", what).without_machine()
    }
}

/// A line for each pattern.
pub fn lines<R>(
    rows: &[R],
    pattern: impl Fn(&R) -> Pattern,
    point: impl Fn(&R) -> (f64, f64),
) -> Vec<Line> {
    let line = |one: Pattern| {
        let own = rows.iter().filter(|row| pattern(row) == one);
        let points = own.map(&point).map(|(x, y)| Point::new(x, y)).collect();
        Line::new(one.name(), points)
    };
    Pattern::ALL.map(line).into()
}
