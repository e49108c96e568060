//! Broadcast and allreduce: teams beside other programs, the paper's figures, and where the time of a short allreduce
//! goes (docs/results/collectives.md).
//!
//! The report has what is measured or simulated: `rows` (all programs beside each other), `times` (the paper's figures),
//! `layers` and `layers_over_fabrics`; with `times` also what [`collective::model`] computes. Ratios, gains, fitted
//! costs and the figures' tables are derived from them by tools/bench/collectives.py; `./dev bench collectives` runs
//! both.

mod args;
mod bare_memory;
mod barrier;
mod beside;
mod cell;
mod contender;
mod contest;
mod figures;
mod group;
mod layers;
mod member;
mod mpi;
mod simulated;
pub mod site;
mod team_member;
pub mod times;
mod two_sided;
mod wheels;

use std::{fs, thread};

use self::{args::Part, barrier::Barrier, contender::Tools, wheels::Wheels};
use crate::{interrupt::Interrupt, outcome::Outcome, peers::workspace::Workspace, report::Report};

pub use self::{
    args::Args,
    group::Args as MemberArgs,
    layers::{MemberArgs as LayerMemberArgs, run_member as run_layer_member},
    member::run as run_member,
};

pub fn run(args: &Args) -> Outcome<()> {
    let shortened;
    let args = if args.short {
        shortened = args.shortened()?;
        &shortened
    } else {
        args
    };
    let interrupt = Interrupt::watch()?;
    let mut tools = Tools { workspace: Workspace::open()?, wheels: Wheels::default() };
    let place = if args.lab { "hosts of a lab" } else { "this machine" };
    let what = format!(
        "broadcast and allreduce (f32 sum), a process per member on {place}, OSU's rules: average \
         over members, us; median of up to {} turns",
        args.turns
    );
    let mut report = Report::new("collectives", what);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    if args.parts.contains(&Part::Peers) {
        beside::run(args, &mut tools, &interrupt, &mut report)?;
    }
    if args.parts.contains(&Part::Figures) {
        figures::run(args, &mut tools, &interrupt, &mut report)?;
    }
    if args.parts.contains(&Part::Time) {
        layers::run(args, &mut tools.workspace, &interrupt, &mut report)?;
    }
    notes(&mut report, &load, &tools, args.barrier);
    report.print(&args.output);
    Ok(())
}

fn notes(report: &mut Report, load: &str, tools: &Tools, barrier: Barrier) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let load: Vec<&str> = load.split(' ').take(3).collect();
    report.note(format!(
        "{cores} cores; load before the run (1, 5 and 15 minutes): {}. With more than {cores} members all programs \
         yield while they wait, and only ratios count.",
        load.join(", ")
    ));
    report.note(
        "average: a member's mean over repeats, averaged over members. deepest leaf: from the root's start to the last other \
         member's end. p50, p99: of all members' repeats.",
    );
    report.note(match barrier {
        Barrier::Shared => {
            "Before each repeat members pass their program's barrier, then one in shared memory, the same for all programs but \
             Gloo, whose threads that would disturb."
        }
        Barrier::Own => {
            "Before each repeat members pass their program's barrier: what is left of it, and who leaves it first, are measured too."
        }
    });
    let wheels = tools.wheels.versions();
    let packages = crate::peers::versions(&["openmpi-bin", "mpich", "libgloo-dev"]);
    let installed: Vec<String> = packages.into_iter().chain(wheels).collect();
    if !installed.is_empty() {
        report.note(format!("Installed: {}.", installed.join(", ")));
    }
}
