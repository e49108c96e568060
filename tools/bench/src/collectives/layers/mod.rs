//! Where the time of an allreduce of 4 bytes between two members goes: the same exchange of two messages, layer by layer. Both
//! members write at once, and then wait for the other's.
//!
//! Over TCP members are threads; over fabrics of libfabric they are processes, as `shm` joins nothing else.

mod cache_line;
mod library_pair;
mod member;
mod over_fabrics;
mod over_tcp;
mod pair;
mod ping_pong;
mod team_pair;
mod writes;

use rdmc::Fabric;

pub use self::member::{Args as MemberArgs, run as run_member};
use super::args::Args;
use crate::{interrupt::Interrupt, outcome::Outcome, peers::workspace::Workspace, report::Report};

/// Measures all layers over each network, and adds a table of TCP and one of fabrics.
pub fn run(
    args: &Args,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Outcome<()> {
    let operations = if args.short { 2_000 } else { 20_000 };
    let turns = 2 * args.turns + 1;
    if args.fabrics.contains(&Fabric::Tcp) {
        over_tcp::run(operations, turns, interrupt, report)?;
    }
    let fabrics: Vec<&Fabric> = args.fabrics.iter().filter(|&it| *it != Fabric::Tcp).collect();
    if !fabrics.is_empty() {
        over_fabrics::run(&fabrics, operations, turns, (workspace, interrupt), report)?;
    }
    Ok(())
}
