//! Settings of figure 8.

use clap::ValueEnum;

#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "fig8")]
pub struct StorageArgs {
    /// How long messages are [default: web-search]
    #[arg(long, value_enum, value_name = "SIZES", value_delimiter = ',')]
    pub sizes: Vec<Sizes>,
    /// Hosts at a lowest switch, which has three links up [default: both]
    #[arg(long, value_enum, value_name = "LAYOUT", value_delimiter = ',')]
    pub layouts: Vec<Hosts>,
    /// Groups of each store, each with queue pairs of its own [default: 1,32]
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=32))]
    pub groups: Vec<u16>,
    /// Bytes that clients ask to read and write / what the links above their lowest switches carry
    /// [default: 0.4]
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub loads: Vec<f64>,
    /// Which switches copy [default: all]
    #[arg(long, value_enum, value_name = "WHICH", value_delimiter = ',')]
    pub switches: Vec<Switches>,
    /// Virtual time before requests are measured [default: 50]
    #[arg(long, value_name = "MS")]
    pub warm_up_ms: Option<u64>,
    /// Virtual time in which they are [default: 100]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub duration_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sizes {
    AlibabaStorage,
    WebSearch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hosts {
    /// A fat tree with as much bandwidth at each layer
    ThreePerEdge,
    /// A third of the bandwidth above
    NinePerEdge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switches {
    All,
    /// Those above send on copies that others made
    Lowest,
}
