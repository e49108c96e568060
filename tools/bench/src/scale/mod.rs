//! Groups of up to thousands of members, in SimGrid's network model.
//!
//! `rdmc-schedule` determines what each member sends and in which order, SimGrid the time that this takes over links of
//! 100 Gbit/s. On the same network its MPI library broadcasts by the choices of
//! other MPI libraries, and, for some sizes, the real engine delivers the message over `transport-sim`.
//!
//! - [`plan`]: the schedule's transfers, in a file.
//! - [`platform`]: the network.
//! - [`simgrid`]: compiles and runs `simgrid/replay.cpp` and `simgrid/bcast.c`.

mod plan;
mod platform;
mod simgrid;

use std::time::{Duration, Instant};

use ::plan::size;
use rdmc::Algorithm;
use serde_json::{Value, json};

use self::{
    plan::Plan,
    platform::{Platform, RACK, Shape},
    simgrid::SimGrid,
};
use crate::{
    member::blocks,
    outcome::Outcome,
    report::{Cell, Output, Report, name, number},
    sim::{self, World},
    sweep::{algorithms, progress},
};

/// Of a member's link: 100 Gbit/s.
const RATE_BYTES_PER_S: f64 = 12.5e9;
/// How far SimGrid and the engine may be apart.
const AGREEMENT: f64 = 0.02;
/// Receives and sends that members of the engine post ahead.
const WINDOW: u32 = 2;
const LINKS_BETWEEN_RACKS: f64 = 4.0;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sizes of groups, the root included
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          default_value = "2,4,8,16,32,64,128,256,512,1024,2048,4096",
          value_parser = clap::value_parser!(u32).range(2..=65_536))]
    members: Vec<u32>,
    /// Length of the message, below 2 GiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "256MiB")]
    bytes: u64,
    /// Size of a block
    #[arg(long, value_name = "SIZE", value_parser = size::parse_nonzero, default_value = "1MiB")]
    block: u64,
    /// Algorithms; the rack algorithms use the racks of the network
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = algorithms(),
          default_values_t = Algorithm::RELAYING)]
    algorithms: Vec<Algorithm>,
    /// Networks
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',',
          default_values_t = [Shape::FatTree, Shape::Racks])]
    platform: Vec<Shape>,
    /// How many times more a rack's hosts can send than its uplink carries
    #[arg(long, value_name = "N", default_value_t = 4.0, value_parser = crate::links::oversubscription)]
    oversubscription: f64,
    /// MPI libraries whose choices MPI_Bcast makes, by their names in SimGrid: mvapich2, mpich, ompi, impi,
    /// default; `none` for no MPI_Bcast
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "mvapich2,mpich,ompi"
    )]
    selectors: Vec<String>,
    /// The largest group for MPI_Bcast: libraries that scatter and gather make simulating take time
    /// that grows with the square of the members
    #[arg(long, value_name = "N", default_value_t = 512)]
    mpi_members_max: u32,
    /// Sizes of groups in which the real engine relays too, over a full-bisection network
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "512,4096")]
    engine: Vec<u32>,
    /// Latency of a link, in nanoseconds; a block passes two links inside a rack, else four
    #[arg(long, value_name = "NS", default_value_t = 250, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    latency_ns: u32,
    /// Blocks in transit to one member at once: 1 admits them one by one, as scheduled; more share
    /// the member's link in equal parts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    receives: u32,
    /// Longest time for one simulation, in seconds; this size is left out then, and a schedule's larger ones
    #[arg(long, value_name = "S", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit_s: u64,
    /// The same for MPI_Bcast, where some algorithms of SimGrid's MPI take very long for some sizes
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    mpi_limit_s: u64,
    #[command(flatten)]
    output: Output,
}

/// What is simulated.
#[derive(Clone, PartialEq, Debug)]
enum Contender {
    Schedule(Algorithm),
    Mpi(String),
}

/// The result of one simulation.
struct Simulated {
    members: u32,
    /// Until the last member has all.
    seconds: f64,
    /// Between the first and the last receiver, where that is known.
    skew_seconds: Option<f64>,
    wall: Duration,
}

/// Errors: SimGrid is not installed, a simulation fails, or the engine and SimGrid do not agree.
pub fn run(args: &Args) -> Outcome<()> {
    if args.bytes > i32::MAX as u64 || blocks(args.bytes, args.block) > 1_000_000 {
        return Err(
            "--bytes must be below 2 GiB and at most 1,000,000 blocks; use a larger --block".into(),
        );
    }
    let simgrid = SimGrid::new()?;
    let mut report = args.report();
    let mut of_the_pipeline = Vec::new();
    let contenders = args.contenders();
    for (place, &shape) in args.platform.iter().enumerate() {
        for (index, contender) in contenders.iter().enumerate() {
            let done = place * contenders.len() + index + 1;
            progress("scale", done, contenders.len() * args.platform.len());
            let results = args.simulate(&simgrid, shape, contender, &mut report)?;
            for result in &results {
                report.row(args.row(shape, contender, result)?);
            }
            if shape == Shape::FatTree && *contender == PIPELINE {
                of_the_pipeline = results;
            }
        }
    }
    let apart = args.compare(&mut report, &of_the_pipeline)?;
    report.print(&args.output);
    apart.map_or(Ok(()), |what| Err(what.into()))
}

const PIPELINE: Contender = Contender::Schedule(Algorithm::BinomialPipeline);

impl Contender {
    fn name(&self) -> String {
        match self {
            Self::Schedule(algorithm) => algorithm.name().to_owned(),
            Self::Mpi(selector) => format!("MPI_Bcast as {selector}"),
        }
    }

    /// With the case that is simulated, for notes.
    fn at(&self, members: u32, shape: Shape) -> String {
        format!("{}, {members} members, {}", self.name(), name(&shape))
    }

    fn is_mpi(&self) -> bool {
        matches!(self, Self::Mpi(_))
    }
}

impl Args {
    fn report(&self) -> Report {
        let what = format!(
            "{} bytes in blocks of {} to groups over links of 100 Gbit/s and {} ns, simulated by SimGrid",
            self.bytes, self.block, self.latency_ns
        );
        let mut report = Report::new("scale", what);
        report.note(
            "time: until the last member has the message. limit: message time / (steps x block time), \
             what the schedule allows without latency, as part of the rate. skew: between the first and \
             the last receiver. wall: how long simulating took.",
        );
        report
    }

    fn contenders(&self) -> Vec<Contender> {
        let schedules = self.algorithms.iter().copied().map(Contender::Schedule);
        let selectors = self.selectors.iter().filter(|name| *name != "none").cloned();
        schedules.chain(selectors.map(Contender::Mpi)).collect()
    }

    /// By number of members, until one takes too long.
    fn simulate(
        &self,
        simgrid: &SimGrid,
        shape: Shape,
        contender: &Contender,
        report: &mut Report,
    ) -> Outcome<Vec<Simulated>> {
        let mut members = self.members.clone();
        members.sort_unstable();
        members.retain(|&members| !contender.is_mpi() || members <= self.mpi_members_max);
        let limit = if contender.is_mpi() { self.mpi_limit_s } else { self.limit_s };
        let limit = Duration::from_secs(limit);
        let mut results = Vec::new();
        for members in members {
            let latency_ns = f64::from(self.latency_ns);
            let platform = Platform {
                shape,
                members,
                rate_bytes_per_s: RATE_BYTES_PER_S,
                latency_ns,
                oversubscription: self.oversubscription,
            };
            let start = Instant::now();
            let times = match contender {
                Contender::Schedule(algorithm) => {
                    let schedule = sim::schedule(*algorithm, members, RACK)?;
                    let plan = Plan::new(&schedule, self.bytes, self.block);
                    simgrid.replay(platform, &plan, self.receives, limit)?
                }
                Contender::Mpi(selector) => {
                    // An error of its MPI library concerns this row only.
                    simgrid.bcast(platform, self.bytes, selector, limit).unwrap_or_else(|error| {
                        let what = contender.at(members, shape);
                        report.note(format!("{what}: {error}"));
                        None
                    })
                }
            };
            let Some(times) = times else {
                report.note(format!("{}: not simulated.", contender.at(members, shape)));
                // A library may use another algorithm for the next size; a schedule only takes longer.
                if contender.is_mpi() { continue } else { break }
            };
            let seconds = times.iter().copied().fold(0.0, f64::max);
            let first = times.iter().copied().skip(1).reduce(f64::min);
            let skew_seconds = first.map(|first| seconds - first);
            results.push(Simulated { members, seconds, skew_seconds, wall: start.elapsed() });
        }
        Ok(results)
    }

    fn row(
        &self,
        shape: Shape,
        contender: &Contender,
        result: &Simulated,
    ) -> Outcome<impl IntoIterator<Item = Cell>> {
        let of_the_rate = self.message_seconds() / result.seconds;
        let oversubscribed = match shape {
            Shape::FatTree => Value::Null,
            Shape::Racks => json!(format!("{}:1", self.oversubscription)),
        };
        let (steps, limit) = match contender {
            Contender::Schedule(algorithm) => {
                let schedule = sim::schedule(*algorithm, result.members, RACK)?;
                let steps = schedule.steps(blocks(self.bytes, self.block));
                (json!(steps), Some(self.message_seconds() / (steps as f64 * self.block_seconds())))
            }
            Contender::Mpi(_) => (Value::Null, None),
        };
        Ok([
            ("platform", json!(name(&shape))),
            ("oversubscribed", oversubscribed),
            ("members", json!(result.members)),
            ("algorithm", json!(contender.name())),
            ("time_ms", number(result.seconds * 1e3)),
            ("skew_ms", result.skew_seconds.map_or(Value::Null, |skew| number(skew * 1e3))),
            ("gbit_per_s", number(self.bytes as f64 * 8e-9 / result.seconds)),
            ("of_the_rate", number(of_the_rate)),
            ("steps", steps),
            ("limit", limit.map_or(Value::Null, number)),
            ("of_the_limit", limit.map_or(Value::Null, |limit| number(of_the_rate / limit))),
            ("wall_s", number(result.wall.as_secs_f64())),
        ])
    }

    /// Runs the real engine, and compares. Answers the difference if it is too large.
    fn compare(&self, report: &mut Report, simulated: &[Simulated]) -> Outcome<Option<String>> {
        let sizes: Vec<_> =
            simulated.iter().filter(|result| self.engine.contains(&result.members)).collect();
        if sizes.is_empty() {
            return Ok(None);
        }
        report.table("engine", "The real engine at every member, over transport-sim:");
        report.note(
            "engine: binomial pipeline on the fat tree, windows of 2. transport-sim has no links but the members' own, \
             and every block, credit and announcement is late by four links' latency; SimGrid has two \
             inside a rack, and neither credits nor announcements.",
        );
        let mut apart = None;
        for result in sizes {
            let start = Instant::now();
            let (blocks, schedule) = (
                blocks(self.bytes, self.block),
                sim::schedule(Algorithm::BinomialPipeline, result.members, RACK)?,
            );
            let latency = LINKS_BETWEEN_RACKS * f64::from(self.latency_ns) * 1e-9;
            let shape = sim::Shape {
                members: result.members,
                blocks,
                latency: latency / self.block_seconds(),
                // Ports that serve one block after another lose the schedule's order with larger windows
                // (docs/decisions/windows.md).
                window: WINDOW,
                check: false,
                ..sim::Shape::default()
            };
            let taken = World::new(&shape, &schedule)?.deliver_alone()?;
            let ratio = taken * self.block_seconds() / result.seconds;
            if (ratio - 1.0).abs() > AGREEMENT {
                apart = Some(format!(
                    "at {} members the engine takes {ratio:.3} of SimGrid's time",
                    result.members
                ));
            }
            report.row([
                ("members", json!(result.members)),
                ("blocks", json!(blocks)),
                ("simgrid_ms", number(result.seconds * 1e3)),
                ("engine_ms", number(taken * self.block_seconds() * 1e3)),
                ("engine_to_simgrid", number(ratio)),
                ("engine_of_the_limit", number(schedule.steps(blocks) as f64 / taken)),
                ("wall_s", number(start.elapsed().as_secs_f64())),
            ]);
        }
        Ok(apart)
    }

    fn message_seconds(&self) -> f64 {
        self.bytes as f64 / RATE_BYTES_PER_S
    }

    fn block_seconds(&self) -> f64 {
        self.block as f64 / RATE_BYTES_PER_S
    }
}
