//! What is simulated.

use clap::ValueEnum;
use mcrdma_sim::{Config, Dcqcn, Ecn};

use super::storage_args::StorageArgs;
use crate::{
    outcome::Outcome,
    report::{Output, Report, name},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which of the paper's figures
    #[arg(value_enum)]
    pub figure: Figure,
    /// Seed of random numbers: the same seed, the same figures
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// fig6, fig8 and fig9: mean over this many seeds, from --seed on, with a confidence interval [default: 5; fig6: 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: Option<u64>,
    /// Simulate a part of the time or of the requests only, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub part: u64,
    /// Congestion control; fig8 and fig9 compare several [default: endpoint; fig8: paper,hpcc; fig9: all but paper]
    #[arg(long, value_enum, value_name = "VARIANT", value_delimiter = ',')]
    pub dcqcn: Vec<Control>,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// One client, three replicas: latency and bandwidth by length
    Fig4,
    /// Multicast and unicast flows that start one after another
    Fig5,
    /// A group with 1 to 7 congested members
    Fig6,
    /// That group, when another member's link becomes the tightest
    Fig6Change,
    /// Lost packets
    Fig7,
    /// A storage system that replicates writes: takes hours unless settings are chosen
    Fig8,
    /// Parameter servers and their workers
    Fig9,
}

/// Congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Control {
    /// DCQCN as rdmc's endpoints have it
    Endpoint,
    /// DCQCN as in its paper
    Paper,
    /// DCQCN of HPCC's public simulator, with marks when packets leave queues
    Hpcc,
    /// The same with a notification in 50 µs at most
    HpccPaced,
    /// Only pauses slow senders down
    None,
}

impl Control {
    pub fn apply(self, mut config: Config) -> Config {
        let line_bits_per_s = config.host_link.bits_per_s as f64;
        config.dcqcn = match self {
            Self::Endpoint | Self::None => None,
            Self::Paper => Some(Dcqcn::paper(line_bits_per_s)),
            Self::Hpcc => Some(Dcqcn::hpcc(line_bits_per_s)),
            Self::HpccPaced => Some(Dcqcn::hpcc_paced(line_bits_per_s)),
        };
        match self {
            Self::None => (config.ecn, config.requester.rate) = (None, None),
            Self::Hpcc | Self::HpccPaced => {
                config.ecn = config.ecn.map(|ecn| Ecn { marks_leaving: true, ..ecn });
            }
            Self::Endpoint | Self::Paper => {}
        }
        config
    }
}

impl Args {
    /// Refuses settings of other figures.
    pub fn check(&self) -> Outcome<()> {
        let compares = matches!(self.figure, Figure::Fig8 | Figure::Fig9);
        if !compares && self.dcqcn.len() > 1 {
            return Err("fig8 and fig9 alone compare variants of DCQCN".into());
        }
        if matches!(self.figure, Figure::Fig4 | Figure::Fig5 | Figure::Fig7) && self.seeds.is_some()
        {
            return Err("fig4, fig5 and fig7 take one seed".into());
        }
        if self.figure != Figure::Fig8 && self.storage != StorageArgs::default() {
            return Err(
                "sizes, layouts, groups, loads, switches and times are settings of fig8".into()
            );
        }
        Ok(())
    }

    /// For figures of one seed and one variant.
    pub fn config(&self) -> Config {
        self.config_of(self.seed)
    }

    /// For figures of one variant, of which several seeds are run.
    pub fn config_of(&self, seed: u64) -> Config {
        let control = self.dcqcn.first().copied().unwrap_or(Control::Endpoint);
        control.apply(Config { seed, ..Config::default() })
    }

    pub fn seeds(&self) -> Vec<u64> {
        let default = if matches!(self.figure, Figure::Fig6 | Figure::Fig6Change) { 3 } else { 5 };
        (0..self.seeds.unwrap_or(default)).map(|index| self.seed + index).collect()
    }

    /// The part that is simulated, at least 1.
    pub fn part_of(&self, whole: u64) -> u64 {
        (whole * self.part / 100).max(1)
    }

    /// Of one seed and one variant.
    pub fn report(&self, what: &str) -> Report {
        let control = self
            .dcqcn
            .first()
            .map_or(String::new(), |control| format!(", DCQCN: {}", name(control)));
        let what = format!("{what}; simulated, seed {}{control}", self.seed);
        Report::new("in-switch", what).without_machine()
    }

    /// Of several seeds.
    pub fn report_of_seeds(&self, what: &str) -> Report {
        let seeds = self.seeds();
        let what = format!("{what}; simulated, {} seeds from {}", seeds.len(), self.seed);
        Report::new("in-switch", what).without_machine()
    }
}
