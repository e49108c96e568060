//! The options of one member.

use std::{net::IpAddr, path::PathBuf};

use clap::ValueEnum;
use rdmc::Fabric;

use super::cell::{Cell, Rule};

/// By what a member communicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Way {
    /// A team of the library.
    Team,
    /// Sends and receives along a binomial tree.
    TwoSided,
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
    #[arg(long, default_value_t)]
    pub fabric: Fabric,
    /// The degree of all reductions; the library's choice unless given
    #[arg(long)]
    pub degree: Option<u32>,
    /// The length of slots; the library's unless given
    #[arg(long)]
    pub slot_bytes: Option<u32>,
}
