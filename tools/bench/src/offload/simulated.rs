//! A group in virtual time, in which one program pauses at random.

use rdmc::Algorithm;
use serde_json::json;

use super::args::Args;
use crate::{
    outcome::Outcome,
    report::{Report, median, number},
    sim::{Late, RACK, Shape, World, schedule},
};

pub fn run(args: &Args) -> Outcome<()> {
    let what = format!(
        "{} members and {} blocks in virtual time, member {} is late; median of {}",
        args.members(),
        args.blocks(),
        args.late,
        args.repeats()
    );
    let mut report = Report::new("offload", what);
    for &algorithm in &args.algorithms {
        let steps = schedule(algorithm, args.members(), RACK)?.steps(args.blocks()) as f64;
        let undelayed = std::iter::once((0.0, 0.0));
        let delayed = args
            .delays
            .iter()
            .flat_map(|&delay| args.probabilities().iter().map(move |&part| (delay, part)));
        for (delay, probability) in undelayed.chain(delayed) {
            let times = |offload| block_times(args, algorithm, offload, delay, probability);
            let (program, network) = (times(false)?, times(true)?);
            report.row([
                ("algorithm", json!(algorithm.name())),
                ("delay_block_times", number(delay)),
                ("probability", number(probability)),
                ("steps", json!(steps)),
                ("relayed_by_program", number(program)),
                ("relayed_by_network", number(network)),
                ("program_of_steps", number(program / steps)),
                ("network_of_steps", number(network / steps)),
            ]);
        }
    }
    report.note(
        "Relayed by ...: block times until the last of the other members has the message. The late \
         member's program pauses for the delay with this probability each time when it has \
         something to do; its network card does not.",
    );
    report.print(&args.output);
    Ok(())
}

/// Until all members but the late one have the message; the median of runs.
fn block_times(
    args: &Args,
    algorithm: Algorithm,
    offload: bool,
    delay: f64,
    probability: f64,
) -> Outcome<f64> {
    let schedule = schedule(algorithm, args.members(), RACK)?;
    let shape =
        Shape { members: args.members(), blocks: args.blocks(), offload, ..Shape::default() };
    let times = (0..args.repeats()).map(|seed| {
        let mut world = World::new(&shape, &schedule)?;
        let late = Late::new(args.late as usize, delay, probability, u64::from(seed));
        world.be_late(vec![late]);
        world.deliver()?;
        Ok(world.block_times_without(Some(args.late)))
    });
    Ok(median(times.collect::<Outcome<Vec<f64>>>()?))
}
