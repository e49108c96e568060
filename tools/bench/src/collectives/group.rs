//! One member: its options, and what every program of this crate that is measured can do.

use std::{net::IpAddr, path::PathBuf};

use clap::ValueEnum;
use rdmc::Fabric;

use super::cell::{Cell, Rule};
use crate::outcome::Outcome;

/// By what a member communicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Way {
    /// A team of the library.
    Team,
    /// Sends and receives along a binomial tree.
    TwoSided,
    /// Loads and stores of 4 bytes.
    BareMemory,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    pub way: Way,
    #[arg(long)]
    pub rank: u32,
    #[arg(long)]
    pub members: u32,
    /// Where this member listens
    #[arg(long)]
    pub address: IpAddr,
    /// The directory in which members find each other
    #[arg(long)]
    pub meeting: PathBuf,
    #[arg(long, value_delimiter = ',')]
    pub cells: Vec<Cell>,
    #[command(flatten)]
    pub rule: Rule,
    /// The memory of the barrier that all programs share; none unless given
    #[arg(long)]
    pub barrier: Option<PathBuf>,
    #[arg(long, default_value_t)]
    pub fabric: Fabric,
    /// Shares no memory with members on this machine
    #[arg(long)]
    pub through_sockets: bool,
    /// The degree of all reductions; the library's choice unless given
    #[arg(long)]
    pub degree: Option<u32>,
    /// The length of slots; the library's unless given
    #[arg(long)]
    pub slot_bytes: Option<u32>,
}

/// The operations of one member, on memory of its own.
pub trait Collectives {
    /// Replaces the first bytes of the memory.
    fn put(&mut self, contents: &[u8]) -> Outcome<()>;

    /// The first bytes of the memory.
    fn get(&mut self, bytes: usize) -> Outcome<Vec<u8>>;

    /// Runs an operation on the first bytes of the memory.
    fn run(&mut self, cell: Cell) -> Outcome<()>;

    fn barrier(&mut self) -> Outcome<()>;
}
