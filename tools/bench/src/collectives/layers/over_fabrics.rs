//! Layers over fabrics of libfabric: two processes of this machine, and what two members can do at best.

use std::{env, sync::mpsc, thread};

use rdmc::{Fabric, Secret};
use serde_json::json;

use super::{
    super::{contest::TURN_TIMEOUT, team_member::SECRET},
    cache_line::CacheLines,
    member::{Layer, PREFIX},
    pair::{Seen, measured},
    ping_pong,
};
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

/// How often a layer is tried: `shm` refuses a process whose number is that of one which was killed, and left its memory behind.
const TRIES: u32 = 3;

/// From what a machine can do at best up to the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Row {
    CacheLines,
    PingPong,
    Own(Layer),
}

impl Row {
    const ALL: [Self; 10] = [
        Self::CacheLines,
        Self::PingPong,
        Self::Own(Layer::Unreported),
        Self::Own(Layer::ReportedSpinning),
        Self::Own(Layer::Reported),
        Self::Own(Layer::TeamSpinning),
        Self::Own(Layer::Team),
        Self::Own(Layer::TeamLastByte),
        Self::Own(Layer::TeamWords),
        Self::Own(Layer::Library),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::CacheLines => "memory: a number each way, threads",
            Self::PingPong => "fi_pingpong: a message one way",
            Self::Own(Layer::Unreported) => "transport-fabric: a write, last byte polled",
            Self::Own(Layer::Reported) => "transport-fabric: a write, reported",
            Self::Own(Layer::ReportedSpinning) => "transport-fabric: a write, reported, no yields",
            Self::Own(Layer::TeamSpinning) => "team: an allreduce, by reports, no yields",
            Self::Own(Layer::TeamLastByte) => "team: an allreduce, by last byte",
            Self::Own(Layer::TeamWords) => "team: an allreduce, by words",
            Self::Own(Layer::Team) => "team: an allreduce, by reports",
            Self::Own(Layer::Library) => "rdmc: an allreduce",
        }
    }
}

/// Measures all layers over each fabric in turns, and adds a table.
pub fn run(
    fabrics: &[&Fabric],
    operations: u32,
    turns: u32,
    (workspace, interrupt): (&mut Workspace, &Interrupt),
    report: &mut Report,
) -> Outcome<()> {
    report.table(
        "layers_over_fabrics",
        "Where the time of an allreduce of 4 bytes between two processes over a fabric goes, us for each:",
    );
    for fabric in fabrics {
        let mut all = Vec::new();
        for row in Row::ALL {
            // Once beforehand: what does not work here has no row.
            match measure(row, fabric, operations.min(100), (workspace, interrupt)) {
                Ok(_) => all.push(row),
                Err(error) => {
                    interrupt.check()?;
                    report.note(format!("{fabric}, {}: {error}", row.name()));
                }
            }
        }
        let seen = alternate(all.len(), turns, "layers over a fabric", |index| {
            interrupt.check()?;
            measure(all[index], fabric, operations, (workspace, interrupt))
        })?;
        for (row, runs) in all.into_iter().zip(&seen) {
            let times: Vec<f64> = runs.iter().map(|run| run.us).collect();
            let sleeps = runs.iter().map(|run| run.sleeps as f64 / f64::from(operations));
            report.row([
                ("network", json!(fabric.to_string())),
                ("layer", json!(row.name())),
                ("time_us", number(median(times.clone()))),
                ("least_us", number(times.into_iter().fold(f64::INFINITY, f64::min))),
                ("sleeps", number(median(sleeps.collect()))),
            ]);
        }
    }
    report.note(
        "layers_over_fabrics: an allreduce of two members is a write each way, at the same time. By last byte and by words are \
         forced (`TeamSettings::ends`), as no fabric vouches for them. Teams yield between two polls. least: of all turns, which others on \
         the machine disturb less than the median.",
    );
    Ok(())
}

fn measure(
    row: Row,
    fabric: &Fabric,
    operations: u32,
    (workspace, interrupt): (&mut Workspace, &Interrupt),
) -> Outcome<Seen> {
    match row {
        Row::CacheLines => cache_lines(operations),
        Row::PingPong => {
            let Fabric::Libfabric { provider, .. } = fabric else {
                return Err("not a fabric of libfabric".into());
            };
            let us = ping_pong::one_way_us(provider, operations)?;
            Ok(Seen { us, sleeps: 0, counters: None })
        }
        Row::Own(layer) => {
            let mut run = || processes(layer, fabric, operations, workspace, interrupt);
            let mut outcome = run();
            for _ in 1..TRIES {
                if outcome.is_ok() {
                    break;
                }
                interrupt.check()?;
                outcome = run();
            }
            outcome
        }
    }
}

fn cache_lines(operations: u32) -> Outcome<Seen> {
    let [one, other] = CacheLines::pair();
    let (to_one, of_other) = mpsc::channel();
    let (to_other, of_one) = mpsc::channel();
    thread::scope(|scope| {
        let other = scope.spawn(move || -> Result<(), String> {
            let seen = measured(operations, Box::new(other), (to_one, of_one));
            seen.map(drop).map_err(|error| error.to_string())
        });
        let seen = measured(operations, Box::new(one), (to_other, of_other));
        other.join().map_err(|_| "a member panicked")??;
        seen
    })
}

/// What process 0 of two saw.
fn processes(
    layer: Layer,
    fabric: &Fabric,
    operations: u32,
    workspace: &mut Workspace,
    interrupt: &Interrupt,
) -> Outcome<Seen> {
    let meeting = workspace.meeting()?.display().to_string();
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
    turn::run(&[0, 1].map(launch), TURN_TIMEOUT, interrupt, PREFIX, |line| {
        let words: Vec<&str> = line[PREFIX.len()..].split(' ').collect();
        let [rank, us, sleeps] = words[..] else { return Err("not the line of a layer".into()) };
        let place = seen.get_mut(rank.parse::<usize>()?).ok_or("a third member")?;
        *place = Some(Seen { us: us.parse()?, sleeps: sleeps.parse()?, counters: None });
        Ok(seen.iter().all(Option::is_some))
    })?;
    let [first, _] = seen;
    first.ok_or_else(|| "nothing was measured".into())
}
