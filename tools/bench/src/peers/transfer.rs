//! One member of a peer that is part of this program: its options, and what differs between such peers.

use std::{net::IpAddr, path::PathBuf};

use clap::ValueEnum;

use crate::outcome::Outcome;

/// How an object gets to all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// From the root to all members at once, over one TCP connection each.
    Copies,
    /// Over plain TCP from each member to the next, as with `tee`.
    Chain,
    /// By udp-sender and udp-receiver over IP multicast.
    Udpcast,
    /// By uftp and uftpd over IP multicast, from a file to files.
    Uftp,
}

impl Way {
    /// The program that it needs, and the package that has it.
    pub fn needs(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Copies | Self::Chain => None,
            Self::Udpcast => Some(("udp-sender", "udpcast")),
            Self::Uftp => Some(("uftp", "uftp")),
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    pub way: Way,
    #[arg(long)]
    pub rank: u32,
    #[arg(long)]
    pub members: u32,
    /// This member's own address
    #[arg(long)]
    pub address: IpAddr,
    /// The network device that has it
    #[arg(long)]
    pub device: String,
    /// The directory in which members find each other
    #[arg(long)]
    pub meeting: PathBuf,
    /// Where files are kept that ought to be in memory
    #[arg(long)]
    pub memory: PathBuf,
    /// Rate of the links in kbit/s
    #[arg(long)]
    pub rate_kbit: u64,
    #[arg(long)]
    pub bytes: usize,
    #[arg(long)]
    pub repeats: u32,
}

/// What differs between the ways.
pub trait Transfer {
    /// Done by all members before the clock starts.
    fn prepare(&mut self, _object: &[u8]) -> Outcome<()> {
        Ok(())
    }
    /// At the root: sends the object. At others: receives it. Returns when that began, by
    /// `CLOCK_MONOTONIC`.
    fn transfer(&mut self, object: &mut [u8]) -> Outcome<u64>;
    /// Done after the clock has stopped.
    fn finish(&mut self, _object: &mut [u8]) -> Outcome<()> {
        Ok(())
    }
    /// Processor time so far of the process that carries the object.
    fn cpu_ns(&self) -> Outcome<u64>;
}
