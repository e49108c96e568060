//! A whole group in one thread and in virtual time, with the real engine at every member.

mod world;

use std::time::{Duration, Instant};

use clap::ValueEnum;
use rdmc::{Algorithm, Schedule, Window};
use serde_json::{Value, json};

use crate::{
    outcome::Outcome,
    report::{Output, Report, number},
    sweep::algorithms,
};

use world::BLOCK_NS;
pub use world::{GROUP, Late, Shape, World, take_events};

/// Members in a rack.
pub const RACK: u32 = 16;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    members: u32,
    /// How many blocks the message has
    #[arg(long, value_name = "K", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    blocks: u32,
    /// Algorithm; the rack algorithms have racks of 16
    #[arg(long, default_value = "binomial-pipeline", value_parser = algorithms())]
    algorithm: Algorithm,
    /// Seed of random delays: the same seed, the same run
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Every block takes longer by a random part of a block time, up to this
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    jitter: f64,
    /// Delay of every block and control word, in block times
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    latency: f64,
    /// Receives and sends that each member posts ahead
    #[arg(long, value_name = "N", default_value_t = Window::default().receives,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: u32,
    /// Ports are shared by all connections, as TCP's are, instead of serving one block after another
    #[arg(long)]
    shared: bool,
    /// Members send a block on while they receive it
    #[arg(long)]
    cut_through: bool,
    /// Whether to check every copy, or to leave out the bytes and simulate time only
    #[arg(long, value_enum, default_value_t = Contents::Check)]
    contents: Contents,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Contents {
    Check,
    Skip,
}

/// Errors: a copy is wrong or missing; nothing is delayed and yet it takes another time than the
/// schedule's steps (not for the circulant and rack algorithms, where members run ahead).
pub fn run(args: &Args) -> Outcome<()> {
    let schedule = schedule(args.algorithm, args.members, RACK)?;
    let start = Instant::now();
    let shape = Shape {
        members: args.members,
        blocks: args.blocks,
        seed: args.seed,
        jitter: args.jitter,
        latency: args.latency,
        window: args.window,
        shared: args.shared,
        cut_through: args.cut_through,
        check: args.contents == Contents::Check,
        ..Shape::default()
    };
    let mut world = World::new(&shape, &schedule)?;
    let connected = start.elapsed();
    world.deliver()?;
    let wall = start.elapsed() - connected;
    world.close()?;

    let steps = schedule.steps(args.blocks);
    let taken = world.block_times_without(None);
    let transfers = u64::from(args.members - 1) * u64::from(args.blocks);
    let what = format!(
        "{}, seed {}, jitter {}, latency {}, window {}",
        args.algorithm, args.seed, args.jitter, args.latency, args.window
    );
    let mut report = Report::new("sim", what);
    report.row([
        ("members", json!(args.members)),
        ("blocks", json!(args.blocks)),
        ("steps", json!(steps)),
        ("lower_bound", json!(schedule::lower_bound_steps(args.members, args.blocks))),
        ("block_times", number(taken)),
        ("of_the_steps", if steps == 0 { Value::Null } else { number(taken / steps as f64) }),
        ("transfers", json!(transfers)),
        ("wall_s", number(wall.as_secs_f64())),
    ]);
    let checked = if shape.check { "every copy checked, " } else { "" };
    report.note(format!(
        "block times: until the last member has the message. {checked}closed with success at all {} members.",
        args.members
    ));
    report.print(&args.output);
    let undelayed = args.jitter == 0.0 && args.latency == 0.0;
    if undelayed
        && !(args.shared || args.cut_through)
        && keeps_step(args.algorithm)
        && world.time_without(None) != Duration::from_nanos(steps * BLOCK_NS)
    {
        return Err(format!(
            "nothing was delayed, and {taken} block times were taken where the schedule has {steps} steps"
        )
        .into());
    }
    Ok(())
}

/// Whether members stay in step when nothing delays them. In other schedules some run ahead, and
/// their blocks then share a port with others than in the schedule.
fn keeps_step(algorithm: Algorithm) -> bool {
    !algorithm.needs_racks() && algorithm != Algorithm::Circulant
}

/// A schedule from rank 0; the rack algorithms get racks of `rack` members.
pub fn schedule(algorithm: Algorithm, members: u32, rack: u32) -> Outcome<Schedule> {
    let racks: Vec<u32> = (0..members).map(|rank| rank / rack).collect();
    Ok(Schedule::with_racks(algorithm, &racks, 0)?)
}
