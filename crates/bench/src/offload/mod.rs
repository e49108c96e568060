//! Members that relay late, with and without offload (DSN 2018 section 5.2.3 and Fig. 12).

mod simulated;

use clap::ValueEnum;
use rdmc::Algorithm;

use crate::{Outcome, sweep::algorithms};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where it runs: in virtual time
    #[arg(long, value_enum, default_value_t = Where::Sim)]
    transport: Where,
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(3..=1024))]
    members: u32,
    /// The member whose program is late
    #[arg(long, value_name = "RANK", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    late: u32,
    /// How many blocks the message has
    #[arg(long, value_name = "K", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    blocks: u32,
    /// How blocks travel
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "chain,binomial-pipeline",
          value_parser = algorithms())]
    algorithms: Vec<Algorithm>,
    /// How long the program stands still, in block times
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "1,4,16,64")]
    delays: Vec<f64>,
    /// How probable that is each time when it has something to do
    #[arg(long, value_name = "PARTS", value_delimiter = ',', default_value = "0.01,0.1,0.5")]
    probabilities: Vec<f64>,
    /// How many runs, each with its own delays; the median is reported
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Where {
    /// The simulated network
    Sim,
}

/// Measures and prints.
pub fn run(args: &Args) -> Outcome<()> {
    if args.late >= args.members {
        return Err(format!("there is no member {} of {}", args.late, args.members).into());
    }
    match args.transport {
        Where::Sim => simulated::run(args),
    }
}
