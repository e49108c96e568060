//! The paper's figures 6 to 14: measured over TCP on this machine, in a simulated network with the paper's costs, and by
//! the paper's model.

mod broadcasts;
mod data;
mod model;
mod reductions;
mod times;

use self::{
    data::Data,
    times::{Source, Times},
};
use super::{args::Args, contender::Tools};
use crate::{interrupt::Interrupt, outcome::Outcome, report::Report};

/// Measures, simulates, and adds tables.
pub fn run(
    args: &Args,
    tools: &mut Tools,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Outcome<()> {
    let mut times = Times::default();
    times.measure(args, tools, interrupt)?;
    times.simulate(&args.many, interrupt)?;
    let fitted = [Source::Measured, Source::Simulated];
    let fitted = fitted.map(|source| (source, model::fitted(&times, source)));
    let data = Data { times, many: args.many.clone(), fitted };
    model::add(&data, report);
    broadcasts::add(&data, report);
    reductions::add(&data, report);
    report.note(
        "simulated: the real teams and the real send/receive in virtual time, each member with a processor and an adapter \
         of its own that cost what the paper's parameters say, 48 bytes of header with each write. Broadcasts until the \
         last member has the message, allreduces averaged over members.",
    );
    report.note(
        "gain: time saved against send/receive. by model: log2 N times send/receive of two members, as in the paper. \
         Of the allreduce the paper prints the best case of long messages only; best and worst case are those of \
         collective::model (docs/results/collectives.md).",
    );
    Ok(())
}
