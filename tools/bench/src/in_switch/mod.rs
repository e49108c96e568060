//! Multicast in the switch beside fan-out and chains: the figures of the MC-RDMA paper's section
//! VII, in a simulated network of packets ([`mcrdma_sim`]).

mod args;
mod confidence;
mod congestion;
mod replication;
mod storage;
mod storage_args;
mod training;

use crate::outcome::Outcome;
use args::Figure;

pub use args::Args;

pub fn run(args: &Args) -> Outcome<()> {
    args.check()?;
    let report = match args.figure {
        Figure::Fig4 => replication::single_client(args)?,
        Figure::Fig5 => congestion::fairness(args)?,
        Figure::Fig6 => congestion::notifications(args)?,
        Figure::Fig6Change => congestion::reaction(args)?,
        Figure::Fig7 => replication::loss(args)?,
        Figure::Fig8 => storage::storage(args)?,
        Figure::Fig9 => training::training(args)?,
    };
    report.print(&args.output);
    Ok(())
}
