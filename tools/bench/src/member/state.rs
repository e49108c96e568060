//! One member of a session: the addresses of all members, and what it keeps between jobs.

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::mpsc::Receiver,
    time::Duration,
};

use rdmc::{
    Context, RegionPool, Secret,
    bootstrap::{Deadline, rendezvous},
};

use super::{
    lines::next_line,
    orders::{Equipment, PlannedFault},
};
use crate::outcome::Outcome;

/// For anything but a transfer.
pub const TIMEOUT: Duration = Duration::from_secs(60);
pub const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    pub rank: u32,
    #[arg(long)]
    pub members: u32,
    /// Where this member listens
    #[arg(long)]
    pub listen: IpAddr,
    #[command(flatten)]
    pub equipment: Equipment,
    /// The file for its part of a trace
    #[arg(long = "trace-to", requires = "trace_part")]
    pub trace_to: Option<PathBuf>,
    /// Which part that is, in JSON
    #[arg(long)]
    pub trace_part: Option<String>,
}

/// Exchanges addresses with all members.
pub fn meet(
    args: &Args,
    secret: &Secret,
    own: SocketAddr,
    orders: &Receiver<String>,
) -> Outcome<Vec<SocketAddr>> {
    let deadline = Deadline::after(TIMEOUT);
    if args.rank == 0 {
        let listener = TcpListener::bind((args.listen, 0))?;
        println!("{}", listener.local_addr()?);
        return Ok(rendezvous::host(&listener, secret, args.members, own, deadline)?);
    }
    let address: SocketAddr = next_line(orders)?.parse()?;
    Ok(rendezvous::join(address, secret, Some(args.rank), own, deadline)?.1)
}

pub struct Member<'a> {
    pub args: &'a Args,
    pub addresses: Vec<SocketAddr>,
    pub context: Context,
    /// Memory of the last job, kept because touching fresh pages takes longer than a transfer.
    pub pool: Option<RegionPool>,
    /// Of the next group.
    pub fault: Option<PlannedFault>,
}

impl Member<'_> {
    /// A touched region for each message; those of the job before, if they fit.
    pub fn memory_for(&mut self, count: usize, message_bytes: u64) -> RegionPool {
        let bytes = message_bytes as usize;
        let fits = |pool: &RegionPool| pool.region_bytes() == bytes && pool.available() >= count;
        let pool = match self.pool.take().filter(fits) {
            Some(pool) => pool,
            None => RegionPool::new(count, bytes),
        };
        self.pool = Some(pool.clone());
        pool
    }
}
