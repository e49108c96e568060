//! A group over a real fabric, in which one program pauses at random.

use std::{net::Ipv4Addr, time::Duration};

use plan::size;
use rdmc::{Algorithm, CompletionMode, Fabric};
use serde_json::json;

use super::args::Args;
use crate::{
    delays::Delays,
    interrupt::Interrupt,
    member::Equipment,
    member_threads::{MemberThreads, Shape},
    outcome::Outcome,
    report::{Report, median, number},
    sim::{RACK, schedule},
    sweep::progress,
};

/// A delay in milliseconds, and how probable it is.
type Lateness = (f64, f64);

/// The times with one lateness, in milliseconds.
#[derive(Clone, Default)]
struct Times {
    program: Vec<f64>,
    network: Vec<f64>,
}

pub fn run(args: &Args, fabric: &Fabric) -> Outcome<()> {
    let interrupt = Interrupt::watch()?;
    let what = format!(
        "{} members as threads of this host, fabric {fabric}, {} blocks of {}, member {} is late; \
         median of {}",
        args.members(),
        args.blocks(),
        size::show(args.block),
        args.late,
        args.repeats()
    );
    let mut report = Report::new("offload", what);
    for completion in [CompletionMode::Polling, CompletionMode::EventOnly] {
        let fabric = fabric.clone();
        let equipment = Equipment { fabric, completion, ..Equipment::default() };
        let addresses = [Ipv4Addr::LOCALHOST.into()];
        let mut threads = MemberThreads::start(args.members(), &addresses, &equipment)?;
        for &algorithm in &args.algorithms {
            let results = measure(args, &mut threads, algorithm, &interrupt)?;
            let medians =
                |times: &Times| (median(times.program.clone()), median(times.network.clone()));
            let (program_alone, network_alone) = medians(&results[0].1);
            for ((delay_ms, probability), times) in &results {
                let (program, network) = medians(times);
                report.row([
                    ("completion", json!(completion.name())),
                    ("algorithm", json!(algorithm.name())),
                    ("delay_ms", number(*delay_ms)),
                    ("probability", number(*probability)),
                    ("relayed_by_program_ms", number(program)),
                    ("relayed_by_network_ms", number(network)),
                    ("program_of_undelayed", number(program / program_alone)),
                    ("network_of_undelayed", number(network / network_alone)),
                ]);
            }
        }
    }
    report.note(
        "Relayed by ...: time until the last of the other members has the message. The thread that \
         polls for the late member sleeps for the delay with this probability each time when \
         blocks have arrived; of undelayed: the same without delays.",
    );
    report.print(&args.output);
    Ok(())
}

/// All latenesses, first none, and for each of them programs and network, alternating, so that
/// drift affects all of them equally.
fn measure(
    args: &Args,
    threads: &mut MemberThreads,
    algorithm: Algorithm,
    interrupt: &Interrupt,
) -> Outcome<Vec<(Lateness, Times)>> {
    let shape = |offload| -> Outcome<Shape> {
        let schedule = schedule(algorithm, args.members(), RACK)?;
        Ok(Shape { schedule, blocks: args.blocks(), block_bytes: args.block, offload })
    };
    let (by_program, by_network) = (threads.join(&shape(false)?)?, threads.join(&shape(true)?)?);
    let mut results = vec![((0.0, 0.0), Times::default())];
    for &delay_ms in &args.delays_ms {
        let each = args.probabilities().iter();
        results.extend(each.map(|&probability| ((delay_ms, probability), Times::default())));
    }
    for group in [&by_program, &by_network] {
        threads.deliver(group, args.late as usize, Delays::new(Duration::ZERO, 0.0, 0))?;
    }
    for repeat in 0..args.repeats() {
        progress(algorithm.name(), repeat as usize + 1, args.repeats() as usize);
        for ((delay_ms, probability), times) in &mut results {
            interrupt.check()?;
            let length = Duration::from_secs_f64(*delay_ms / 1e3);
            let time_ms = |group| -> Outcome<f64> {
                let delays = Delays::new(length, *probability, repeat.into());
                Ok(threads.deliver(group, args.late as usize, delays)?.as_secs_f64() * 1e3)
            };
            times.program.push(time_ms(&by_program)?);
            times.network.push(time_ms(&by_network)?);
        }
    }
    by_program.close()?;
    by_network.close()?;
    Ok(results)
}
