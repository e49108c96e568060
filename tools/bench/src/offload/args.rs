//! What is measured.

use plan::size;
use rdmc::{Algorithm, Fabric};

use crate::{report::Output, sweep::algorithms};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Measure over this fabric, such as sockets; without it, in virtual time
    #[arg(long, value_name = "NAME")]
    pub fabric: Option<Fabric>,
    /// Size of the group, the root included; 8 in virtual time and 3 over a fabric by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=1024))]
    pub members: Option<u32>,
    /// The member whose program is late
    #[arg(long, value_name = "RANK", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub late: u32,
    /// How many blocks the message has; 256 in virtual time and 64 over a fabric by default
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub blocks: Option<u32>,
    /// Block size, over a fabric
    #[arg(long, value_name = "SIZE", value_parser = size::parse_block, default_value = "64KiB")]
    pub block: u64,
    /// Algorithms
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "chain,binomial-pipeline",
          value_parser = algorithms())]
    pub algorithms: Vec<Algorithm>,
    /// How long the program pauses, in block times
    #[arg(
        long,
        value_name = "TIMES",
        value_delimiter = ',',
        default_value = "1,4,16,64",
        conflicts_with = "fabric"
    )]
    pub delays: Vec<f64>,
    /// How long the program pauses over a fabric, in milliseconds
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "16",
          value_parser = parse_delay_ms, requires = "fabric")]
    pub delays_ms: Vec<f64>,
    /// The probability of a pause each time when it has something to do; 0.01, 0.1 and 0.5 in virtual
    /// time, 0.1 and 0.5 over a fabric by default
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    pub probabilities: Option<Vec<f64>>,
    /// How many runs, each with its own delays, of which the median is reported; 11 in virtual time
    /// and 3 over a fabric by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: Option<u32>,
    #[command(flatten)]
    pub output: Output,
}

impl Args {
    /// A default in virtual time, and one over a fabric.
    pub fn either<T>(&self, simulated: T, real: T) -> T {
        if self.fabric.is_some() { real } else { simulated }
    }

    pub fn members(&self) -> u32 {
        self.members.unwrap_or(self.either(8, 3))
    }

    pub fn blocks(&self) -> u32 {
        self.blocks.unwrap_or(self.either(256, 64))
    }

    pub fn repeats(&self) -> u32 {
        self.repeats.unwrap_or(self.either(11, 3))
    }

    pub fn probabilities(&self) -> &[f64] {
        let usual: &[f64] = self.either(&[0.01, 0.1, 0.5], &[0.1, 0.5]);
        self.probabilities.as_deref().unwrap_or(usual)
    }
}

fn parse_delay_ms(text: &str) -> Result<f64, String> {
    let delay: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    let in_range = (0.0..=10_000.0).contains(&delay);
    in_range.then_some(delay).ok_or_else(|| "use 0 to 10000 milliseconds".into())
}
