//! The times that the paper's figures 6 to 14 are made of: measured over TCP on this machine, simulated with the paper's
//! costs, and by the paper's model. tools/bench/collectives.py makes the figures.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use collective::{
    BroadcastTree, HEADER_BYTES, ReductionTree,
    model::{PAPER_BLOCK_BYTES, WriteCosts, allreduce_us, best_degree, broadcast_us, degrees},
};
use rdmc::Fabric;
use serde_json::{Value, json};

use super::{
    args::Args,
    cell::{Cell, Operation},
    contender::{Contender, TeamOptions, Tools},
    contest::{Entry, rounds},
    simulated::World,
    site::with_site,
};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    report::{Report, number},
    sweep::progress,
};

/// Lengths of messages, up to the paper's limit for static buffers.
const LENGTHS: [u64; 10] = [4, 64, 256, 512, 1024, 1536, 2048, 3072, 4096, 4608];
/// What blocks hold of a message: the paper's block sizes less the byte of the flag.
const BLOCKS: [u32; 4] = [1024, 2048, 3072, 4096];
/// The paper's best block, which all other figures have.
const BLOCK: u32 = 3072;
/// The members of the paper's cluster.
const MEMBERS: u32 = 16;
/// With numbers of members that the paper predicts, the greatest degree that is simulated: higher ones never win there.
const DEGREE_MAX_OF_MANY: u32 = 3;

/// By what members communicate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Program {
    /// A team whose slots hold this many bytes, with this degree.
    Team {
        block: u32,
        degree: u32,
    },
    TwoSided,
}

/// What is run: a program with this many members.
type Run = (u32, Program);

/// Times of a run in us, by cell.
type Times = Vec<(Run, Cell, f64)>;

/// Measures and simulates everything, and adds it in tables.
pub fn run(
    args: &Args,
    tools: &mut Tools,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Outcome<()> {
    let measured = measure(args, tools, interrupt)?;
    let simulated = simulate(&args.many, interrupt)?;
    report.table("times", "Times of the paper's figures:");
    for (source, times) in [("measured", measured), ("simulated", simulated)] {
        for (run, cell, us) in times {
            add_time(report, source, run, cell, us);
        }
    }
    add_model(report, &args.many);
    report.note(
        "simulated: the real teams and the real send/receive in virtual time, each member with a processor and an adapter \
         of its own that cost what the paper's costs say, 48 bytes of header with each write. Broadcasts until the \
         last member has the message, allreduces averaged over members.",
    );
    report.note(
        "gain: time saved against send/receive. by model: log2 N times send/receive of two members, as in the paper. \
         Of the allreduce the paper prints the best case of long messages only; best and worst case are those of \
         collective::model (docs/results/collectives.md).",
    );
    Ok(())
}

/// What runs which operations with [`LENGTHS`]; `many` are numbers of members to predict.
fn plan(many: &[u32]) -> BTreeMap<Run, BTreeSet<Operation>> {
    let mut plan: BTreeMap<Run, BTreeSet<Operation>> = BTreeMap::new();
    let mut add = |members, program, operation| {
        plan.entry((members, program)).or_default().insert(operation);
    };
    let team = |block, degree| Program::Team { block, degree };
    for block in BLOCKS {
        add(MEMBERS, team(block, 3), Operation::Broadcast);
    }
    for members in [2, 4, 8].iter().chain(many) {
        add(*members, team(BLOCK, 1), Operation::Broadcast);
    }
    for members in [4, 8, MEMBERS] {
        for degree in degrees(members) {
            add(members, team(BLOCK, degree), Operation::AllReduce);
        }
    }
    for &members in many {
        for degree in degrees(members).filter(|&degree| degree <= DEGREE_MAX_OF_MANY) {
            add(members, team(BLOCK, degree), Operation::AllReduce);
        }
    }
    for members in [2, MEMBERS].iter().chain(many) {
        for operation in Operation::ALL {
            add(*members, Program::TwoSided, operation);
        }
    }
    plan
}

fn cells(operations: &BTreeSet<Operation>) -> Vec<Cell> {
    operations.iter().flat_map(|&operation| Cell::of(operation, &LENGTHS)).collect()
}

/// Over TCP on this machine, by turns. Errors: a program fails; an interrupt.
fn measure(args: &Args, tools: &mut Tools, interrupt: &Interrupt) -> Outcome<Times> {
    let (plan, mut times) = (plan(&[]), Vec::new());
    let until = Instant::now() + Duration::from_secs(60 * args.minutes);
    let rules = args.rules(until);
    let counts: BTreeSet<u32> = plan.keys().map(|(members, _)| *members).collect();
    for members in counts {
        let of_count = || plan.iter().filter(|((count, _), _)| *count == members);
        let mut entries: Vec<Entry> = of_count()
            .map(|((_, program), operations)| Entry::new(contender(*program), &cells(operations)))
            .collect();
        with_site(args.lab, members, |site| rounds(&mut entries, site, tools, &rules, interrupt))?;
        for ((run, _), entry) in of_count().zip(entries) {
            if let Some(trouble) = &entry.trouble {
                return Err(format!("{}: {trouble}", entry.contender.name()).into());
            }
            times.extend(entry.results().into_iter().map(|(cell, found)| {
                let us = match cell.operation {
                    Operation::Broadcast => found.leaf_us,
                    Operation::AllReduce => found.average_us,
                };
                (*run, cell, us)
            }));
        }
    }
    Ok(times)
}

fn contender(program: Program) -> Contender {
    match program {
        Program::Team { block, degree } => Contender::Team(TeamOptions {
            fabric: Fabric::Tcp,
            through_sockets: true,
            degree: Some(degree),
            slot_bytes: Some(block + HEADER_BYTES as u32),
        }),
        Program::TwoSided => Contender::TwoSided,
    }
}

/// With the paper's costs.
fn simulate(many: &[u32], interrupt: &Interrupt) -> Outcome<Times> {
    let (plan, costs, mut times) = (plan(many), WriteCosts::PAPER, Vec::new());
    for (index, ((members, program), operations)) in plan.iter().enumerate() {
        progress("simulated", index + 1, plan.len());
        let mut world = match *program {
            Program::Team { block, degree } => World::team(*members, block, degree, &costs)?,
            Program::TwoSided => {
                let longest = LENGTHS.iter().max().copied().unwrap_or(4);
                World::two_sided(*members, longest as usize, &costs)?
            }
        };
        for cell in cells(operations) {
            interrupt.check()?;
            times.push(((*members, *program), cell, world.measure(cell)?));
        }
    }
    Ok(times)
}

/// A time, and of teams what the model has for it: its time with the paper's costs, the rounds of the broadcast, and
/// how many members write to one in each step of the reduction.
fn add_time(report: &mut Report, source: &str, (members, program): Run, cell: Cell, us: f64) {
    let Cell { operation, bytes } = cell;
    let (mut settings, mut model_us, mut senders) = ([Value::Null, Value::Null], f64::NAN, None);
    if let Program::Team { block, degree } = program {
        let (block_bytes, costs) = (u64::from(block), WriteCosts::PAPER);
        // The paper's block sizes have the byte of the flag.
        settings = [json!(block_bytes + 1), json!(degree)];
        if operation == Operation::AllReduce {
            let tree = ReductionTree::new(members, degree);
            senders = Some((0..tree.steps()).map(|step| tree.senders(step)).collect::<Vec<_>>());
            model_us = allreduce_us(members, degree, bytes, block_bytes, &costs).worst_us;
        } else {
            model_us = broadcast_us(members, bytes, block_bytes, &costs);
        }
    }
    let [block_bytes, degree] = settings;
    let is_team = program != Program::TwoSided;
    report.row([
        ("source", json!(source)),
        ("operation", json!(operation.name())),
        ("members", json!(members)),
        ("program", json!(if is_team { "team" } else { "send/receive" })),
        ("block_bytes", block_bytes),
        ("degree", degree),
        ("bytes", json!(bytes)),
        ("time_us", number(us)),
        ("model_us", number(model_us)),
        ("rounds", json!(BroadcastTree::new(members, 0).rounds())),
        ("senders", json!(senders)),
    ]);
}

/// The model with the paper's costs and block.
fn add_model(report: &mut Report, many: &[u32]) {
    let costs = &WriteCosts::PAPER;
    report.table("model", "The model with the paper's costs:");
    for &members in [4, 8, MEMBERS].iter().chain(many) {
        for bytes in LENGTHS {
            let degree = best_degree(members, bytes, costs);
            let reduced = allreduce_us(members, degree, bytes, PAPER_BLOCK_BYTES, costs);
            report.row([
                ("members", json!(members)),
                ("bytes", json!(bytes)),
                ("rounds", json!(BroadcastTree::new(members, 0).rounds())),
                ("broadcast_us", number(broadcast_us(members, bytes, PAPER_BLOCK_BYTES, costs))),
                ("degree", json!(degree)),
                ("best_us", number(reduced.best_us)),
                ("worst_us", number(reduced.worst_us)),
            ]);
        }
    }
    report.table("paper", "The paper's costs:");
    for (name, us) in [
        ("Tt", costs.transmit_us_per_byte),
        ("Tc", costs.copy_us_per_byte),
        ("Ts", costs.dma_start_us),
        ("Tn", costs.adapter_us),
        ("Td", costs.post_us),
        ("Tm", costs.library_us),
        ("Ta", costs.acknowledge_us),
    ] {
        report.row([("parameter", json!(name)), ("us", json!(us))]);
    }
}
