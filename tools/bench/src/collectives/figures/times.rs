//! The times that the figures are made of: measured on this machine, and in a simulated network.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use collective::{
    HEADER_BYTES,
    model::{Parameters, degrees},
};
use rdmc::Fabric;

use super::super::{
    args::Args,
    cell::{Cell, Operation},
    contender::{Contender, TeamOptions, Tools},
    contest::{Entry, Turns, rounds},
    simulated::World,
    site::with_site,
};
use crate::{interrupt::Interrupt, outcome::Outcome, sweep::progress};

/// Lengths of messages, up to the paper's limit for static buffers.
pub const LENGTHS: [u64; 10] = [4, 64, 256, 512, 1024, 1536, 2048, 3072, 4096, 4608];
/// What blocks hold of a message: the paper's block sizes less the byte of the flag.
pub const BLOCKS: [u32; 4] = [1024, 2048, 3072, 4096];
/// The paper's best block, which all other figures have.
pub const BLOCK: u32 = 3072;
/// The members of the paper's cluster.
pub const MEMBERS: u32 = 16;
/// Of the numbers of members that the paper predicts, the greatest degree that is simulated: longer ones never win there.
const DEGREE_MAX_OF_MANY: u32 = 3;

/// Where a time comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    Measured,
    Simulated,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
        }
    }
}

/// By what members communicate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Program {
    /// A team whose slots hold so many bytes, with this degree.
    Team {
        block: u32,
        degree: u32,
    },
    TwoSided,
}

/// What is run: a program with so many members.
type Run = (u32, Program);

/// Times in us.
#[derive(Debug, Default)]
pub struct Times(BTreeMap<(Source, Run, Cell), f64>);

/// What runs which operations with [`LENGTHS`], on either source; `many` are numbers of members to predict.
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

impl Times {
    /// Of one cell; NaN if it was not run.
    pub fn get(&self, source: Source, members: u32, program: Program, cell: Cell) -> f64 {
        self.0.get(&(source, (members, program), cell)).copied().unwrap_or(f64::NAN)
    }

    /// All times of a source.
    pub fn of(&self, source: Source) -> impl Iterator<Item = (u32, Program, Cell, f64)> {
        self.0
            .iter()
            .filter(move |((of, ..), _)| *of == source)
            .map(|((_, (members, program), cell), us)| (*members, *program, *cell, *us))
    }

    /// Measures everything over TCP on this machine, by turns. Errors: a program fails; an interrupt.
    pub fn measure(
        &mut self,
        args: &Args,
        tools: &mut Tools,
        interrupt: &Interrupt,
    ) -> Outcome<()> {
        let plan = plan(&[]);
        let until = Instant::now() + Duration::from_secs(60 * args.minutes);
        let turns = Turns { count: args.turns, until };
        let counts: BTreeSet<u32> = plan.keys().map(|(members, _)| *members).collect();
        for members in counts {
            let of_count = || plan.iter().filter(|((count, _), _)| *count == members);
            let mut entries: Vec<Entry> = of_count()
                .map(|((_, program), operations)| {
                    Entry::new(contender(*program), &cells(operations))
                })
                .collect();
            with_site(args.lab, members, |site| {
                rounds(&mut entries, site, tools, &args.rule(), turns, interrupt)
            })?;
            for ((run, _), entry) in of_count().zip(entries) {
                if let Some(trouble) = &entry.trouble {
                    return Err(format!("{}: {trouble}", entry.contender.name()).into());
                }
                for (cell, found) in entry.results() {
                    let us = match cell.operation {
                        Operation::Broadcast => found.leaf_us,
                        Operation::AllReduce => found.average_us,
                    };
                    self.0.insert((Source::Measured, *run, cell), us);
                }
            }
        }
        Ok(())
    }

    /// Simulates everything, and the numbers of members in `many`, with the paper's costs.
    pub fn simulate(&mut self, many: &[u32], interrupt: &Interrupt) -> Outcome<()> {
        let (plan, costs) = (plan(many), Parameters::PAPER);
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
                let us = world.measure(cell)?;
                self.0.insert((Source::Simulated, (*members, *program), cell), us);
            }
        }
        Ok(())
    }
}

fn contender(program: Program) -> Contender {
    match program {
        Program::Team { block, degree } => Contender::Team(TeamOptions {
            fabric: Fabric::Tcp,
            degree: Some(degree),
            slot_bytes: Some(block + HEADER_BYTES as u32),
        }),
        Program::TwoSided => Contender::TwoSided,
    }
}
