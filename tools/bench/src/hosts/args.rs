//! Options of the measurement.

use std::path::PathBuf;

use plan::size;

use crate::report::Output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many receivers run on this machine, one after the other; 0: none
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "64,300,1000")]
    pub(super) receivers: Vec<usize>,
    /// The same for streams, whose receivers each have a shell and a command besides
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "64,300")]
    pub(super) stream_receivers: Vec<usize>,
    /// How many hosts are simulated
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        default_value = "64,300,1000,10000"
    )]
    pub(super) simulated: Vec<usize>,
    /// Length of what is pushed
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "1MiB")]
    pub(super) bytes: u64,
    /// Length of a longer stream, of which receivers keep nothing
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "64MiB")]
    pub(super) stream_bytes: u64,
    /// Where copies go; needs room for all of them
    #[arg(long, value_name = "DIRECTORY", default_value = "/dev/shm")]
    pub(super) directory: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
}
