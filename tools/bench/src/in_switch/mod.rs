//! Multicast in the switch beside fan-out and chains: the figures of the MC-RDMA paper's section
//! VII, in a simulated network of packets ([`mcrdma_sim`]).

mod congestion;
mod replication;
mod storage;

use std::path::PathBuf;

use clap::ValueEnum;
use mcrdma_sim::{Config, Pattern};

use crate::{
    Outcome,
    chart::{Line, Point},
    report::{Output, Report},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which of the paper's figures
    #[arg(value_enum)]
    figure: Figure,
    /// Where chance comes from: the same seed, the same figures
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Simulate a part of the time or of the requests only, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    part: u64,
    /// Without congestion control: pauses alone hold senders back
    #[arg(long)]
    without_dcqcn: bool,
    /// Draw into this file, as SVG
    #[arg(long, value_name = "FILE")]
    draw: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
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

/// Simulates and prints.
pub fn run(args: &Args) -> Outcome<()> {
    let (report, chart) = match args.figure {
        Figure::Fig4 => replication::single_client(args)?,
        Figure::Fig5 => congestion::fairness(args)?,
        Figure::Fig6 => congestion::notifications(args)?,
        Figure::Fig7 => replication::loss(args)?,
        Figure::Fig8 => storage::storage(args)?,
        Figure::Fig9 => replication::training(args)?,
    };
    report.print(&args.output);
    args.draw.as_ref().map_or(Ok(()), |path| chart.write(path))
}

impl Args {
    fn config(&self) -> Config {
        self.apply(Config::default())
    }

    /// What was asked for, in a network that is otherwise like this.
    fn apply(&self, mut config: Config) -> Config {
        config.seed = self.seed;
        if self.without_dcqcn {
            (config.ecn, config.requester.rate) = (None, None);
        }
        config
    }

    /// So much of it, at least 1.
    fn part_of(&self, whole: u64) -> u64 {
        (whole * self.part / 100).max(1)
    }

    /// Nothing in it depends on the machine that computes it.
    fn report(&self, what: &str, columns: &[&'static str]) -> Report {
        let control = if self.without_dcqcn { ", without DCQCN" } else { "" };
        let what = format!("{what}; simulated, seed {}{control}", self.seed);
        Report::new("in-switch", what, columns).of_the_past()
    }
}

/// A line for each pattern.
fn lines<R>(
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
