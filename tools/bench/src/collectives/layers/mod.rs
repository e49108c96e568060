//! Where the time of an allreduce of 4 bytes between two members goes: the same exchange of two messages, layer by layer. Both
//! members write at once, and then wait for the other's. They are processes, as `shm` joins nothing else.

mod member;
mod pair;
mod pairs;
mod ping_pong;
mod writes;

use std::{
    env, hint,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

use rdmc::{Fabric, Secret};
use serde_json::{Value, json};

use self::{
    member::{Layer, PREFIX},
    pair::{COUNTS, Seen, TIMEOUT, WARM_UP, Wait, sleeps},
};
use super::{args::Args, team_member::SECRET};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    peers::{
        turn::{self, Launch},
        workspace::Workspace,
    },
    report::{Report, median, name, number},
    sweep::alternate,
};

pub use self::member::{Args as MemberArgs, run as run_member};

/// How often a layer is tried: `shm` refuses a process whose number is that of one which was killed, and left its memory behind.
const TRIES: u32 = 3;
/// How many loads come before others may run.
const SPINS: u32 = 100;

/// What is measured, from what a machine can do at best up to the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    CacheLines,
    PingPong,
    Own(Layer),
}

const OVER_TCP: [(What, &str); 5] = [
    (What::Own(Layer::BlockingSockets), "sockets, blocking"),
    (What::Own(Layer::PolledSockets), "sockets, polled"),
    (What::Own(Layer::Reported), "transport-tcp: a write"),
    (What::Own(Layer::Team), "team: an allreduce"),
    (What::Own(Layer::Library), "rdmc: an allreduce"),
];

const OVER_SHARED_MEMORY: [(What, &str); 4] = [
    (What::CacheLines, "memory: a number each way, threads"),
    (What::Own(Layer::SharedWrite), "transport-shm: a write"),
    (What::Own(Layer::SharedTeam), "team: an allreduce"),
    (What::Own(Layer::SharedLibrary), "rdmc: an allreduce"),
];

const OVER_FABRICS: [(What, &str); 10] = [
    (What::CacheLines, "memory: a number each way, threads"),
    (What::PingPong, "fi_pingpong: a message one way"),
    (What::Own(Layer::Unreported), "transport-fabric: a write, last byte polled"),
    (What::Own(Layer::ReportedSpinning), "transport-fabric: a write, reported, no yields"),
    (What::Own(Layer::Reported), "transport-fabric: a write, reported"),
    (What::Own(Layer::TeamSpinning), "team: an allreduce, by reports, no yields"),
    (What::Own(Layer::Team), "team: an allreduce, by reports"),
    (What::Own(Layer::TeamLastByte), "team: an allreduce, by last byte"),
    (What::Own(Layer::TeamWords), "team: an allreduce, by words"),
    (What::Own(Layer::Library), "rdmc: an allreduce"),
];

/// Measures all layers over each network in turns, and adds a table of TCP and one of fabrics.
pub fn run(
    args: &Args,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Outcome<()> {
    let operations = if args.short { 2_000 } else { 20_000 };
    let mut bench = Bench { operations, turns: 2 * args.turns + 1, workspace, interrupt };
    let (tcp, fabrics): (Vec<&Fabric>, _) =
        args.fabrics.iter().partition(|&fabric| *fabric == Fabric::Tcp);
    if let Some(fabric) = tcp.first() {
        let measured = bench.measure_all(fabric, &OVER_TCP, report)?;
        add_tcp(report, operations, &measured);
        let measured = bench.measure_all(fabric, &OVER_SHARED_MEMORY, report)?;
        report.table(
            "layers_over_shared_memory",
            "Where the time of an allreduce of 4 bytes between two processes over shared memory goes, us for each:",
        );
        measured.iter().for_each(|layer| add_layer(report, operations, layer, None));
    }
    let measured = fabrics
        .into_iter()
        .map(|fabric| Ok((fabric, bench.measure_all(fabric, &OVER_FABRICS, report)?)))
        .collect::<Outcome<Vec<_>>>()?;
    if !measured.is_empty() {
        add_fabrics(report, operations, &measured);
    }
    Ok(())
}

/// A layer's name, and all its turns.
type Measured = (&'static str, Vec<Seen>);

struct Bench<'a> {
    operations: u32,
    turns: u32,
    workspace: &'a mut Workspace,
    interrupt: &'a Interrupt,
}

impl Bench<'_> {
    /// Measures layers in turns, without those that do not work here: these are in notes.
    fn measure_all(
        &mut self,
        fabric: &Fabric,
        layers: &[(What, &'static str)],
        report: &mut Report,
    ) -> Outcome<Vec<Measured>> {
        let mut all = Vec::new();
        for &(what, name) in layers {
            match self.measure(what, fabric, self.operations.min(100)) {
                Ok(_) => all.push((what, name)),
                Err(error) => {
                    self.interrupt.check()?;
                    report.note(format!("{fabric}, {name}: {error}"));
                }
            }
        }
        let seen = alternate(all.len(), self.turns, "layers", |index| {
            self.interrupt.check()?;
            self.measure(all[index].0, fabric, self.operations)
        })?;
        Ok(all.into_iter().map(|(_, name)| name).zip(seen).collect())
    }

    fn measure(&mut self, what: What, fabric: &Fabric, operations: u32) -> Outcome<Seen> {
        match (what, fabric) {
            (What::CacheLines, _) => cache_lines(operations),
            (What::PingPong, Fabric::Libfabric { provider, .. }) => {
                let us = ping_pong::one_way_us(provider, operations)?;
                Ok(Seen { us, sleeps: 0, counts: Vec::new() })
            }
            (What::PingPong, _) => Err("not a fabric of libfabric".into()),
            (What::Own(layer), _) => {
                let mut outcome = self.processes(layer, fabric, operations);
                for _ in 1..TRIES {
                    if outcome.is_ok() {
                        break;
                    }
                    self.interrupt.check()?;
                    outcome = self.processes(layer, fabric, operations);
                }
                outcome
            }
        }
    }

    /// What process 0 of two saw.
    fn processes(&mut self, layer: Layer, fabric: &Fabric, operations: u32) -> Outcome<Seen> {
        let meeting = self.workspace.meeting()?.display().to_string();
        let program = env::current_exe()?;
        let secret = Secret::random()?.to_hex().to_string();
        let launch = |rank: u32| Launch {
            enter: Vec::new(),
            program: program.clone(),
            arguments: [
                "layer-member",
                "--layer",
                &name(&layer),
                "--fabric",
                &fabric.to_string(),
                "--rank",
                &rank.to_string(),
                "--meeting",
                &meeting,
                "--operations",
                &operations.to_string(),
            ]
            .map(str::to_owned)
            .to_vec(),
            environment: vec![(SECRET, secret.clone())],
            has_children: false,
        };
        let mut seen = [None, None];
        turn::run(&[0, 1].map(launch), TIMEOUT, self.interrupt, PREFIX, |line| {
            let words: Vec<&str> = line[PREFIX.len()..].split(' ').collect();
            let [rank, us, sleeps, counts @ ..] = &words[..] else {
                return Err("not the line of a layer".into());
            };
            let place = seen.get_mut(rank.parse::<usize>()?).ok_or("a third member")?;
            let counts =
                counts.iter().map(|count| count.parse()).collect::<Result<Vec<u64>, _>>()?;
            *place = Some(Seen { us: us.parse()?, sleeps: sleeps.parse()?, counts });
            Ok(seen.iter().all(Option::is_some))
        })?;
        let [first, _] = seen;
        first.ok_or_else(|| "nothing was measured".into())
    }
}

/// A number on a cache line of its own, and what is beside it.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

/// The least that members on one machine can do: each stores a number, and polls for the other's. Processes would map the
/// lines, threads share them: the processor moves the same lines.
fn cache_lines(operations: u32) -> Outcome<Seen> {
    let lines: [Line; 2] = Default::default();
    let last = u64::from(WARM_UP + operations);
    let exchange = |rank: usize, numbers: std::ops::RangeInclusive<u64>| -> Outcome<()> {
        for number in numbers {
            lines[rank].0.store(number, Ordering::Release);
            let has_come = || lines[1 - rank].0.load(Ordering::Acquire) >= number;
            Wait::Yielding.until(|| {
                let mut spins = 0;
                while !has_come() && spins < SPINS {
                    hint::spin_loop();
                    spins += 1;
                }
                Ok(has_come())
            })?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| exchange(1, 1..=last).map_err(|error| error.to_string()));
        exchange(0, 1..=u64::from(WARM_UP))?;
        let (start, slept) = (Instant::now(), sleeps());
        exchange(0, u64::from(WARM_UP) + 1..=last)?;
        let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(operations);
        let sleeps = sleeps() - slept;
        other.join().map_err(|_| "a member panicked")??;
        Ok(Seen { us, sleeps, counts: Vec::new() })
    })
}

/// The median of figures per operation.
fn median_of(runs: &[Seen], figure: impl Fn(&Seen) -> f64) -> f64 {
    median(runs.iter().map(figure).collect())
}

fn add_tcp(report: &mut Report, operations: u32, measured: &[Measured]) {
    report.table(
        "layers",
        "Where the time of an allreduce of 4 bytes between two members over TCP goes, us and counts for each:",
    );
    let all = f64::from(WARM_UP + operations);
    let mut below = f64::NAN;
    for (layer, runs) in measured {
        let us = median_of(runs, |run| run.us);
        let counts = COUNTS.iter().enumerate().map(|(index, &name)| {
            let count = |run: &Seen| run.counts.get(index).map_or(f64::NAN, |&it| it as f64 / all);
            (name, number(median_of(runs, count)))
        });
        let head: [(_, Value); 3] = [
            ("layer", json!(layer)),
            ("time_us", number(us)),
            ("more_than_above_us", number(us - below)),
        ];
        let sleeps = median_of(runs, |run| run.sleeps as f64 / f64::from(operations));
        report.row(head.into_iter().chain(counts).chain([("sleeps", number(sleeps))]));
        below = us;
    }
    report.note(
        "layers: two processes, polling and yielding; counts are member 0's system calls. An allreduce of two members is a \
         write each way.",
    );
}

fn add_fabrics(report: &mut Report, operations: u32, measured: &[(&Fabric, Vec<Measured>)]) {
    report.table(
        "layers_over_fabrics",
        "Where the time of an allreduce of 4 bytes between two processes over a fabric goes, us for each:",
    );
    for (fabric, layers) in measured {
        layers.iter().for_each(|layer| add_layer(report, operations, layer, Some(fabric)));
    }
    report.note(
        "layers_over_fabrics: an allreduce of two members is a write each way, at the same time. By last byte and by words are \
         forced (`TeamSettings::ends`), as no fabric vouches for them. Teams yield between two polls. least: of all turns, which others on \
         the machine disturb less than the median.",
    );
}

fn add_layer(report: &mut Report, operations: u32, measured: &Measured, fabric: Option<&Fabric>) {
    let (layer, runs) = measured;
    let least = runs.iter().map(|run| run.us).fold(f64::INFINITY, f64::min);
    let sleeps = median_of(runs, |run| run.sleeps as f64 / f64::from(operations));
    let network = fabric.map(|fabric| ("network", json!(fabric.to_string())));
    report.row(network.into_iter().chain([
        ("layer", json!(layer)),
        ("time_us", number(median_of(runs, |run| run.us))),
        ("least_us", number(least)),
        ("sleeps", number(sleeps)),
    ]));
}
