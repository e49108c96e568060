//! Measurements of rdmc. `./dev bench NAME` builds this in release mode and runs it.
//!
//! Commands that need members as processes share [`member_processes`], which runs [`member`] and
//! compares the members' times: all processes of a host share `CLOCK_MONOTONIC`. Commands that test
//! more than they measure, and fail if a promise is broken, are in [`faults`].

#![forbid(unsafe_code)]

mod block_sizes;
mod breakdown;
mod buffers;
mod clock;
mod collectives;
mod contents;
mod course;
mod delays;
mod faults;
mod file_limit;
mod flow;
mod foreign;
mod gpu_staging;
mod groups;
mod hosts;
mod in_switch;
mod interrupt;
mod load;
mod local;
mod member;
mod member_processes;
mod member_threads;
mod modes;
mod offload;
mod outcome;
mod overhead;
mod overlap;
mod overlapping;
mod peers;
mod procfs;
mod push;
mod push_command;
mod python;
mod racks;
mod random;
mod report;
mod robust;
mod running;
mod scale;
mod shaped;
mod sim;
mod small;
mod store;
mod summary;
mod sweep;
mod switch;
mod timeline;
mod traces;
mod trees;
mod wide_area;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use faults::{chaos, flood, lose, memory, verify};
use outcome::Outcome;

#[derive(Debug, Parser)]
#[command(name = "rdmc-bench", version, about = "Measure rdmc on this machine")]
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
    /// Every algorithm over loopback, members as processes of this host
    Local(local::Args),
    /// Members in network namespaces, over links of a known rate (needs root)
    Shaped(shaped::Args),
    /// Bandwidth by block size and length of the message (needs root)
    BlockSizes(block_sizes::Args),
    /// Racks with oversubscribed uplinks: time, and what crosses the uplinks (needs root)
    Racks(racks::Args),
    /// Multicast in the switch, fan-out and chains, in a simulated network of packets
    InSwitch(in_switch::Args),
    /// A slow link, a slow member, late programs: what they cost (over links needs root)
    Robust(robust::Args),
    /// Time with one, two and four messages in flight
    Overlap(overlap::Args),
    /// A simulated group in virtual time, with the real engine at every member
    Sim(sim::Args),
    /// Groups of up to 4,096 members, simulated by SimGrid, beside MPI_Bcast
    Scale(scale::Args),
    /// Hundreds of overlapping groups of a few members
    Groups(groups::Args),
    /// Pushes to a thousand receivers on this machine, and to ten thousand simulated hosts
    Hosts(hosts::Args),
    /// Objects of a replicated store, each to three of many members (needs root)
    Store(store::Args),
    /// Directories of large and of small files, beside rsync, tar and MPI (needs root)
    Trees(trees::Args),
    /// Several groups of the same members at once: bandwidth and fairness (needs root)
    Overlapping(overlapping::Args),
    /// A group beside other programs' connections over the same links (needs root)
    Foreign(foreign::Args),
    /// Two racks joined by a long link, which delays and loses packets (needs root)
    WideArea(wide_area::Args),
    /// Where the time of one transfer goes
    Breakdown(breakdown::Args),
    /// Bandwidth and processor time of the three completion modes
    Modes(modes::Args),
    /// Memory for messages, allocated when they arrive or posted ahead
    Buffers(buffers::Args),
    /// Small messages: how many in a second, and how long one takes
    Small(small::Args),
    /// Members that relay late, with and without offload
    Offload(offload::Args),
    /// `rdmc push` over links of a known rate: a switch copies, or receivers relay (needs root)
    Push(push::Args),
    /// What a switch that copies costs: in the kernel, in userspace, its logic alone (needs root)
    Switch(switch::Args),
    /// What rdmc's own code costs per block
    Overhead(overhead::Args),
    /// Messages that go up to a GPU while they arrive, or afterwards (needs a GPU)
    Gpu(gpu_staging::Args),
    /// Other broadcasts beside rdmc: MPI, Gloo, plain sockets, IP multicast
    Peers(peers::Args),
    /// Broadcast and allreduce of teams beside MPI and Gloo, and the paper's figures
    Collectives(collectives::Args),
    /// Arrays between processes in Python, beside torch.distributed and mpi4py, and the same in Rust
    Python(python::Args),
    /// Peak resident memory of `rdmc push` and its receivers
    Memory(memory::Args),
    /// Groups in which every receiver checks every byte
    Verify(verify::Args),
    /// `rdmc push` between hosts with faults: the others have copies (needs root)
    Chaos(chaos::Args),
    /// `rdmc push` while a hostile host floods every port (needs root)
    Flood(flood::Args),
    /// A member that dies in the middle of a message
    Lose(lose::Args),
    /// Which member waited for which, and how busy links were, by a trace file
    TraceSummary(summary::Args),
    /// One member of a peer; started by `peers`
    #[command(hide = true)]
    Peer(peers::PeerArgs),
    /// One member; started by `collectives`
    #[command(hide = true)]
    CollectiveMember(collectives::MemberArgs),
    /// One member in Rust; started by `python`
    #[command(hide = true)]
    PythonMember(python::MemberArgs),
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
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Outcome<()> {
    match command {
        Command::Local(args) => local::run(&args),
        Command::Shaped(args) => shaped::run(&args),
        Command::BlockSizes(args) => block_sizes::run(&args),
        Command::Racks(args) => racks::run(&args),
        Command::InSwitch(args) => in_switch::run(&args),
        Command::Robust(args) => robust::run(&args),
        Command::Overlap(args) => overlap::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Groups(args) => groups::run(&args),
        Command::Hosts(args) => hosts::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Trees(args) => trees::run(&args),
        Command::Overlapping(args) => overlapping::run(&args),
        Command::Foreign(args) => foreign::run(&args),
        Command::Flow(args) => flow::run(&args),
        Command::WideArea(args) => wide_area::run(&args),
        Command::Breakdown(args) => breakdown::run(&args),
        Command::Modes(args) => modes::run(&args),
        Command::Buffers(args) => buffers::run(&args),
        Command::Small(args) => small::run(&args),
        Command::Offload(args) => offload::run(&args),
        Command::Push(args) => push::run(&args),
        Command::Switch(args) => switch::run(&args),
        Command::Overhead(args) => overhead::run(&args),
        Command::Gpu(args) => gpu_staging::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Peer(args) => peers::run_peer(&args),
        Command::Collectives(args) => collectives::run(&args),
        Command::CollectiveMember(args) => collectives::run_member(&args),
        Command::Python(args) => python::run(&args),
        Command::PythonMember(args) => python::run_member(&args),
        Command::LayerMember(args) => collectives::run_layer_member(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Chaos(args) => chaos::run(&args),
        Command::Flood(args) => flood::run(&args),
        Command::Attack(args) => flood::attack(&args),
        Command::Bystander => flood::bystand(),
        Command::Lose(args) => lose::run(&args),
        Command::TraceSummary(args) => summary::run(&args),
        Command::Member(args) => member::run(&args),
    }
}
