//! Broadcast and allreduce: teams beside other programs, the paper's figures, and where the time of a short allreduce
//! goes (docs/results/collectives.md).

mod beside;
mod cell;
mod contender;
mod contest;
mod figures;
mod fit;
mod layers;
mod member;
mod mpi;
mod pictures;
mod simulated;
mod site;
mod sizes;
mod team_member;
mod times;
mod two_sided;
mod wheels;

use std::{fs, path::PathBuf, thread};

use clap::{Parser as _, ValueEnum};
use rdmc::Fabric;

use self::{cell::Rule, contender::Tools, pictures::Pictures, wheels::Wheels};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    peers::workspace::Workspace,
    report::{Output, Report},
};

pub use self::member::{Args as MemberArgs, run as run_member};

/// Names that `--only` takes.
const NAMES: [&str; 7] = ["rdmc", "two-sided", "openmpi4", "openmpi5", "mpich4", "mpich5", "gloo"];

/// A part of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// rdmc beside send/receive, MPI and Gloo
    Peers,
    /// The figures of the paper: measured, by its model, and in a simulated network
    Figures,
    /// Where the time of an allreduce of 4 bytes goes
    Time,
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// What is measured
    #[arg(long, value_name = "PARTS", value_delimiter = ',', default_value = "peers,figures,time")]
    parts: Vec<Part>,
    /// Sizes of teams, beside peers
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,4,8,16",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    members: Vec<u32>,
    /// Lengths, beside peers: powers of two from 4 B to 16 MiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes::parse,
          default_value = "4,64,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB")]
    bytes: Vec<u64>,
    /// Only these programs
    #[arg(long, value_name = "NAMES", value_delimiter = ',',
          value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    only: Vec<String>,
    /// The networks of rdmc: tcp, or providers of libfabric
    #[arg(
        long = "fabric",
        value_name = "FABRICS",
        value_delimiter = ',',
        default_value = "tcp,ofi-tcp,shm"
    )]
    fabrics: Vec<Fabric>,
    /// The degree of rdmc's reductions, beside peers [default: the library's choice]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=63))]
    degree: Option<u32>,
    /// Numbers of members that are only simulated and predicted
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "512,1024",
          value_parser = clap::value_parser!(u32).range(17..=4096))]
    many: Vec<u32>,
    /// How many turns each has; medians are reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// After so many minutes beside peers no turn begins any more, but that each has one
    #[arg(long, value_name = "M", default_value_t = 18, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    minutes: u64,
    /// About how many milliseconds one operation with one length is repeated in a turn
    #[arg(long, value_name = "MS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    budget_ms: u64,
    /// Members on hosts of a lab, over links of a known rate (needs root)
    #[arg(long)]
    lab: bool,
    /// One turn, fewer lengths and members: minutes
    #[arg(long, conflicts_with_all = ["members", "bytes", "turns", "budget_ms"])]
    short: bool,
    /// Draw pictures into files with this beginning: FILE-broadcast.svg and others for FILE.svg
    #[arg(long, value_name = "FILE")]
    draw: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Args {
    /// With what `--short` stands for.
    fn shortened(&self) -> Outcome<Self> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let line = "short --members 2,4 --bytes 4,1KiB,4KiB,64KiB,1MiB --turns 1 --budget-ms 15";
        let args = Line::try_parse_from(line.split(' '))?.args;
        Ok(Self {
            parts: self.parts.clone(),
            only: self.only.clone(),
            fabrics: self.fabrics.clone(),
            degree: self.degree,
            many: self.many.clone(),
            lab: self.lab,
            draw: self.draw.clone(),
            output: self.output,
            short: true,
            ..args
        })
    }

    fn rule(&self) -> Rule {
        Rule { warm_up: 10, budget_us: self.budget_ms * 1_000, repeats_min: 3, repeats_max: 1_000 }
    }
}

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
    let mut pictures = Pictures::default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    if args.parts.contains(&Part::Peers) {
        beside::run(args, &mut tools, &interrupt, (&mut report, &mut pictures))?;
    }
    if args.parts.contains(&Part::Figures) {
        figures::run(args, &mut tools, &interrupt, (&mut report, &mut pictures))?;
    }
    if args.parts.contains(&Part::Time) {
        layers::run(args, &interrupt, &mut report)?;
    }
    notes(&mut report, &load, &tools);
    if let Some(file) = &args.draw {
        pictures.write(file)?;
    }
    report.print(&args.output);
    Ok(())
}

fn notes(report: &mut Report, load: &str, tools: &Tools) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let load: Vec<&str> = load.split(' ').take(3).collect();
    report.note(format!(
        "{cores} cores; load before the run (1, 5 and 15 minutes): {}. With more than {cores} members all programs \
         yield while they wait, and only ratios count.",
        load.join(", ")
    ));
    report.note(
        "A barrier before each repeat. average: a member's mean over repeats, averaged over members. deepest leaf: \
         from the root's start to the last other member's end. Who leaves the barrier last gets a broadcast soonest, so \
         that averages of broadcasts depend on the program's barrier; the deepest leaf is compared. p50, p99: of all \
         members' repeats.",
    );
    let wheels = tools.wheels.versions();
    let packages = crate::peers::versions(&["openmpi-bin", "mpich", "libgloo-dev"]);
    let installed: Vec<String> = packages.into_iter().chain(wheels).collect();
    if !installed.is_empty() {
        report.note(format!("Installed: {}.", installed.join(", ")));
    }
}
