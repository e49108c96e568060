//! Measurements of rdmc. `./dev bench NAME` builds this in release mode and runs it; what only starts programs and times them is in
//! tools/compare.
//!
//! Commands that need members as processes share [`member_processes`], which runs [`member`] and
//! compares the members' times: all processes of a host share `CLOCK_MONOTONIC`. Commands that test
//! more than they measure, and fail if a promise is broken, are in [`faults`].

#![forbid(unsafe_code)]

mod breakdown;
mod clock;
mod collectives;
mod contents;
mod course;
mod delays;
mod experiment;
mod faults;
mod file_limit;
mod flow;
mod gpu_staging;
mod groups;
mod in_switch;
mod interrupt;
mod jobs;
mod links;
mod load;
mod many_hosts;
mod member;
mod member_processes;
mod member_threads;
mod offload;
mod outcome;
mod overhead;
mod peers;
mod procfs;
mod push_command;
mod random;
mod report;
mod robust;
mod running;
mod scale;
mod sim;
mod small_virtual;
mod store;
mod summary;
mod sweep;
mod switch;
mod timeline;
mod traces;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use faults::{chaos, flood, lose, memory, verify};
use outcome::{Outcome, Usage};

#[derive(Debug, Parser)]
#[command(name = "rdmc-bench", version, about = "Measure rdmc on this machine", after_help = experiments())]
struct Cli {
    /// Write what each member does when, for ui.perfetto.dev or chrome://tracing; for
    /// commands that run members as processes
    #[arg(long, value_name = "FILE", global = true)]
    trace: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Multicast in the switch, fan-out and chains, in a simulated network of packets
    InSwitch(in_switch::Args),
    /// A slow link, a slow member, late programs: what they cost (over links needs root)
    Robust(robust::Args),
    /// A simulated group in virtual time, with the real engine at every member
    Sim(sim::Args),
    /// Groups of up to 4,096 members, simulated by SimGrid, beside MPI_Bcast
    Scale(scale::Args),
    /// Hundreds of overlapping groups of a few members
    Groups(groups::Args),
    /// Pushes to ten thousand simulated hosts
    ManyHosts(many_hosts::Args),
    /// Objects of a replicated store, each to three of many members (needs root)
    Store(store::Args),
    /// Small messages in virtual time: how many in a second, and how long one takes
    SmallVirtual(small_virtual::Args),
    /// Where the time of one transfer goes
    Breakdown(breakdown::Args),
    /// Members that relay late, with and without offload
    Offload(offload::Args),
    /// What a switch that copies costs: in the kernel, in userspace, its logic alone (needs root)
    Switch(switch::Args),
    /// What rdmc's own code costs per block
    Overhead(overhead::Args),
    /// Messages that go up to a GPU while they arrive, or afterwards (needs a GPU)
    Gpu(gpu_staging::Args),
    /// Broadcast and allreduce of teams beside MPI and Gloo, and the paper's figures
    Collectives(collectives::Args),
    /// Peak resident memory of `rdmc push` and its receivers
    Memory(memory::Args),
    /// Groups in which every receiver checks every byte
    Verify(verify::Args),
    /// `rdmc push` between hosts with faults: the others have copies (needs root)
    Chaos(chaos::Args),
    /// `rdmc fetch` on hosts that are killed, and from servers that are: the others have copies (needs root)
    ChaosFetch(chaos::FetchArgs),
    /// `rdmc push` while a hostile host floods every port (needs root)
    Flood(flood::Args),
    /// A member that dies in the middle of a message
    Lose(lose::Args),
    /// Which member waited for which, and how busy links were, by a trace file
    TraceSummary(summary::Args),
    /// Configuration of rdmc's members beside other programs; started by `./dev bench peers`
    #[command(hide = true)]
    Jobs(jobs::Args),
    /// One member; started by `collectives`, and by `./dev bench python`
    #[command(hide = true)]
    CollectiveMember(collectives::MemberArgs),
    /// One of two members that exchange messages; started by `collectives`
    #[command(hide = true)]
    LayerMember(collectives::LayerMemberArgs),
    /// The hostile host; started by `flood`
    #[command(hide = true)]
    Attack(flood::AttackArgs),
    /// A host that takes no part; started by `flood`
    #[command(hide = true)]
    Bystander,
    /// One end of a connection; started by `foreign` and `wide-area`
    #[command(hide = true)]
    Flow(flow::FlowArgs),
    /// One member; started by the other commands
    #[command(hide = true)]
    Member(member::Args),
    /// A measurement that a file describes
    #[command(external_subcommand)]
    Experiment(Vec<String>),
}

fn experiments() -> String {
    format!(
        "Measurements that files in tools/bench/experiments describe (NAME --help lists their options):\n  {}",
        experiment::names()
    )
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let begun = cli.trace.as_deref().map_or(Ok(()), traces::begin);
    let outcome = begun.and_then(|()| run(cli.command));
    let finished = traces::finish();
    match outcome.and(finished) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rdmc-bench: {error}");
            if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(command: Command) -> Outcome<()> {
    match command {
        Command::InSwitch(args) => in_switch::run(&args),
        Command::Robust(args) => robust::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Groups(args) => groups::run(&args),
        Command::ManyHosts(args) => many_hosts::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Flow(args) => flow::run(&args),
        Command::SmallVirtual(args) => small_virtual::run(&args),
        Command::Breakdown(args) => breakdown::run(&args),
        Command::Offload(args) => offload::run(&args),
        Command::Switch(args) => switch::run(&args),
        Command::Overhead(args) => overhead::run(&args),
        Command::Gpu(args) => gpu_staging::run(&args),
        Command::Jobs(args) => jobs::run(&args),
        Command::Collectives(args) => collectives::run(&args),
        Command::CollectiveMember(args) => collectives::run_member(&args),
        Command::LayerMember(args) => collectives::run_layer_member(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Chaos(args) => chaos::run(&args),
        Command::ChaosFetch(args) => chaos::run_fetches(&args),
        Command::Flood(args) => flood::run(&args),
        Command::Attack(args) => flood::attack(&args),
        Command::Bystander => flood::bystand(),
        Command::Lose(args) => lose::run(&args),
        Command::TraceSummary(args) => summary::run(&args),
        Command::Member(args) => member::run(&args),
        Command::Experiment(words) => experiment::run(&words),
    }
}
