//! `rdmc plan --collective ... --explain`: the ways compared by the cost model.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use collective::{
    Partners, Way,
    model::{Bounds, Parameters, degrees},
};
use plan::size;
use serde_json::{Value, json};

use super::{
    json::{degree, seconds},
    options::Operation,
    plan::Plan,
    text,
};
use crate::{failure::Failure, json};

/// The time by each way.
pub struct Explanation {
    operation: Operation,
    members: u32,
    bytes: u64,
    parameters: Parameters,
    /// The way that the library takes.
    taken: Way,
    /// The ways, by name, and trees also by degree.
    ways: Vec<Compared>,
}

struct Compared {
    way: Way,
    steps: u64,
    time: Bounds,
}

impl Explanation {
    /// Errors: too many members.
    pub fn new(
        operation: Operation,
        members: u32,
        bytes: u64,
        parameters: &Parameters,
    ) -> Result<Self, Failure> {
        let plan = || Plan::new(operation, members, 0, bytes);
        let taken = plan()?.way;
        let compare = |way| {
            let plan = plan()?.by(way);
            Ok(Compared { way, steps: plan.steps(), time: plan.time(parameters) })
        };
        let all = ways(operation, members, taken);
        let ways = all.into_iter().map(compare).collect::<Result<_, Failure>>()?;
        Ok(Self { operation, members, bytes, parameters: *parameters, taken, ways })
    }

    /// The way with the smallest worst case; among equals the taken one, or else the first.
    fn fastest(&self) -> Option<Way> {
        let order = |a: &&Compared, b: &&Compared| {
            let by_time = a.time.worst_us.total_cmp(&b.time.worst_us);
            by_time.then((a.way != self.taken).cmp(&(b.way != self.taken)))
        };
        let least = self.ways.iter().min_by(order);
        least.map(|compared| compared.way)
    }

    /// Writes a table.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{} of {}, {}: {}\n",
            self.operation.name(),
            size::show(self.bytes),
            text::count(self.members.into(), "member"),
            self.taken
        )?;
        writeln!(
            out,
            "{:<9}  {:>6}  {:>5}  {:>10}  {:>10}",
            "way", "degree", "steps", "best case", "worst case"
        )?;
        for Compared { way, steps, time } in &self.ways {
            let [best, worst] = [time.best_us, time.worst_us].map(text::show_us);
            let degree = degree(*way).map_or_else(|| "-".to_owned(), |degree| degree.to_string());
            let name = way.name();
            write!(out, "{name:<9}  {degree:>6}  {steps:>5}  {best:>10}  {worst:>10}")?;
            let notes = [
                (*way == self.taken, "taken"),
                (Some(*way) == self.fastest(), "fastest"),
                (*way == Way::Chain, "where the order of ranks counts"),
            ];
            let notes: Vec<&str> =
                notes.into_iter().filter_map(|(holds, note)| holds.then_some(note)).collect();
            let notes =
                if notes.is_empty() { String::new() } else { format!("  {}", notes.join(", ")) };
            writeln!(out, "{notes}")?;
        }
        writeln!(
            out,
            "\ntaken: by the library, for this length and these members; fastest: the least worst case by the model.\n\
             A larger degree means fewer steps, and more writes to one member in each. Best case: writes overlap, and\n\
             are folded as they arrive; worst case: what is folded first arrives last, and rounds of blocks do not\n\
             overlap. Costs in microseconds: {}",
            self.parameters
        )
    }

    /// Writes the same as a JSON object.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let of = |way: Option<Way>| self.ways.iter().find(|it| Some(it.way) == way).map(to_json);
        let document = json!({
            "collective": self.operation.name(),
            "members": self.members,
            "bytes": self.bytes,
            "parameters": self.parameters.to_string(),
            "choice": of(Some(self.taken)),
            "fastest": of(self.fastest()),
            "ways": self.ways.iter().map(to_json).collect::<Vec<Value>>(),
        });
        json::write_pretty(out, &document)
    }
}

/// The possible ways of an operation, including the taken one.
fn ways(operation: Operation, members: u32, taken: Way) -> Vec<Way> {
    let degrees: BTreeSet<u32> = degrees(members).chain(degree(taken)).collect();
    let trees = || degrees.iter().map(|&degree| Way::Trees { degree: Some(degree) });
    match operation {
        Operation::Broadcast => vec![Way::Trees { degree: None }, Way::Circulant],
        Operation::Reduce => trees().chain([Way::Ring]).collect(),
        Operation::Allreduce => {
            let exchange = Partners::new(members).map(Way::Exchange);
            exchange.into_iter().chain(trees()).chain([Way::Ring, Way::Chain]).collect()
        }
    }
}

fn to_json(compared: &Compared) -> Value {
    let mut object = json!({
        "way": compared.way.name(),
        "steps": compared.steps,
        "best_seconds": seconds(compared.time.best_us),
        "worst_seconds": seconds(compared.time.worst_us),
    });
    if let Some(degree) = degree(compared.way) {
        object["degree"] = degree.into();
    }
    object
}
