//! The cost of rdmc's own code per block, without a network.

mod instant;

use std::time::{Duration, Instant};

use engine::{Engine, Event, GroupSettings};
use plan::size;
use rdmc::{Algorithm, Region, Schedule};
use serde_json::json;

use crate::{
    outcome::Outcome,
    report::{Output, Report, median, number},
};
use instant::Instantaneous;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Size of the group, the root included
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=256))]
    members: u32,
    /// Blocks of the message
    #[arg(long, value_name = "K", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    blocks: u64,
    /// How often each is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    #[command(flatten)]
    output: Output,
}

/// The block and the rate that the cost is compared with.
const BLOCK_BYTES: u64 = 1 << 20;
const BITS_PER_SECOND: f64 = 10e9;

pub fn run(args: &Args) -> Outcome<()> {
    let what = format!(
        "the engines of {} members on one thread, over a network that completes at once and copies \
         nothing; {} blocks, median of {}",
        args.members, args.blocks, args.repeats
    );
    let transfer_ns = BLOCK_BYTES as f64 * 8.0 / BITS_PER_SECOND * 1e9;
    let mut report = Report::new("overhead", what);
    for algorithm in [Algorithm::BinomialPipeline, Algorithm::Chain, Algorithm::Circulant] {
        let runs = (0..args.repeats).map(|_| once(algorithm, args));
        let seconds = runs.collect::<Outcome<Vec<Duration>>>()?;
        let per_block = |time: &Duration| {
            time.as_secs_f64() * 1e9 / (args.blocks * u64::from(args.members)) as f64
        };
        let ns = median(seconds.iter().map(per_block).collect());
        report.row([
            ("algorithm", json!(algorithm.name())),
            ("ns_per_block_and_member", number(ns)),
            ("share_of_transfer", number(ns / transfer_ns)),
        ]);
    }
    report.note(format!(
        "Each member but the root receives every block and most send it on: one unit is a block at a \
         member with its credits, posts, leases and completions, the bookkeeping of the stand-in for \
         a network included. Compared with the time of one block of {} at 10 Gbit/s: {:.0} us.",
        size::show(BLOCK_BYTES),
        transfer_ns / 1e3
    ));
    report.print(&args.output);
    Ok(())
}

/// One message of one-byte blocks: the cost does not depend on their length.
fn once(algorithm: Algorithm, args: &Args) -> Outcome<Duration> {
    let schedule = Schedule::new(algorithm, args.members, 0)?;
    let mut members = Vec::new();
    for (rank, (transport, links)) in (0..).zip(instant::network(&schedule)) {
        let mut settings = GroupSettings::new(1, rank, schedule.clone());
        settings.block_bytes = 1;
        let mut engine: Engine<Instantaneous> = Engine::new(transport);
        engine.create(settings, links)?;
        members.push(engine);
    }
    let start = Instant::now();
    members[0].send(1, Region::zeroed(args.blocks as usize))?;
    let mut complete = 0;
    let mut events = Vec::new();
    while complete < args.members {
        let mut moved = 0;
        for engine in &mut members {
            moved += engine.progress(Duration::ZERO, &mut events);
            for event in events.drain(..) {
                match event {
                    Event::Incoming { group, message, bytes, .. } => {
                        engine.accept(group, message, Region::zeroed(bytes as usize))?;
                        moved += 1;
                    }
                    Event::Complete { .. } => complete += 1,
                    Event::Failed { failure, .. } => return Err(failure.into()),
                    _ => {}
                }
            }
        }
        if moved == 0 && complete < args.members {
            return Err("no member makes progress".into());
        }
    }
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_ends() {
        let args = Args { members: 5, blocks: 30, repeats: 1, output: Output::default() };
        for algorithm in [Algorithm::BinomialPipeline, Algorithm::Chain, Algorithm::Circulant] {
            assert!(once(algorithm, &args).unwrap() > Duration::ZERO);
        }
    }
}
