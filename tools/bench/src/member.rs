//! One member as a process: takes orders on standard input, answers on standard output.
//!
//! The first line in is the session's secret; the second, at every member but rank 0, where to
//! meet. Rank 0 answers the first with that address. Every later line is an [`Order`], and every
//! answer an [`Answer`], in JSON. The process ends when its input does, also in the middle of a
//! transfer: no member outlives the program that started it.

mod alone;
mod lines;
mod orders;
mod recorder;
mod state;
mod store;
mod together;
mod workload;

use rdmc::{Context, ContextSettings, Secret};

use crate::{outcome::Outcome, timeline, traces};
use lines::{listen, next_line, reply};
use state::{Member, meet};

pub use alone::check_offload;
pub use orders::{
    Answer, Done, Equipment, Fault, Job, Memory, Order, PlannedFault, blocks, why_through_memory,
};
pub use state::Args;
pub use workload::{Object, Together, Workload};

/// Serves until standard input ends.
pub fn run(args: &Args) -> Outcome<()> {
    let writer = match (&args.trace_to, &args.trace_part) {
        (Some(path), Some(part)) => Some(traces::write(path, part)?),
        _ => None,
    };
    if args.equipment.timeline || writer.is_some() {
        timeline::record(args.equipment.timeline, writer.as_ref());
    }
    let orders = listen(writer);
    let secret = Secret::from_hex(&next_line(&orders)?)?;
    let mut settings = ContextSettings::new((args.listen, 0).into(), secret.clone());
    settings.fabric = args.equipment.fabric.clone();
    settings.completion = args.equipment.completion;
    settings.protection = Some(args.equipment.protection());
    settings.streams = args.equipment.streams.unwrap_or(1);
    settings.tcp.congestion = args.equipment.congestion.clone();
    settings.tcp.direct_copies = !args.equipment.through_sockets;
    let context = Context::start(settings)?;
    let addresses = meet(args, &secret, context.address(), &orders)?;
    let mut member = Member { args, addresses, context, pool: None, fault: None };
    while let Ok(line) = orders.recv() {
        let outcome = match serde_json::from_str(&line)? {
            Order::Join(job) => alone::take_part(&mut member, &job, &orders).map(Answer::Done),
            Order::JoinAll(all) => {
                together::take_part(&mut member, &all, &orders).map(Answer::AllDone)
            }
            Order::Store(workload) => {
                store::take_part(&mut member, &workload, &orders).map(Answer::Stored)
            }
            Order::Fail(fault) => {
                member.fault = Some(fault);
                continue;
            }
            Order::Go | Order::GoAt(_) | Order::Send(_) | Order::Close => {
                return Err("an order to send before one to join".into());
            }
        };
        reply(&outcome.unwrap_or_else(|error| Answer::Failed(error.to_string())))?;
    }
    Ok(())
}
