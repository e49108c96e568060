//! `rdmc plan --collective ... --explain`: the ways compared by the cost model.

use std::io::{self, Write};

use collective::{
    Choice, Way,
    model::{Bounds, WriteCosts, degrees},
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
    costs: WriteCosts,
    /// The fastest of each way, and of trees several degrees: first the one that the library takes, then by time.
    ways: Vec<Compared>,
}

struct Compared {
    choice: Choice,
    steps: u64,
    time_us: f64,
    bounds: Bounds,
}

impl Explanation {
    /// Errors: too many members.
    pub fn new(
        operation: Operation,
        members: u32,
        bytes: u64,
        costs: &WriteCosts,
    ) -> Result<Self, Failure> {
        let plan = || Plan::new(operation, members, 0, bytes, costs);
        let taken = plan()?;
        let compare = |choice| {
            let plan = plan()?.by(choice);
            let (time_us, bounds) = (plan.time_us(), plan.bounds());
            Ok(Compared { choice, steps: plan.steps(), time_us, bounds })
        };
        let all = ways(&taken).into_iter().map(compare);
        let mut ways = all.collect::<Result<Vec<Compared>, Failure>>()?;
        let is_other = |it: &Compared| it.choice != taken.choice();
        ways.sort_by(|a, b| is_other(a).cmp(&is_other(b)).then(a.time_us.total_cmp(&b.time_us)));
        Ok(Self { operation, members, bytes, costs: *costs, ways })
    }

    /// The index of the way with the least time: of equals the taken one, which is the first.
    fn fastest(&self) -> usize {
        let times = (0..).zip(&self.ways);
        let least = times.min_by(|(_, a), (_, b)| a.time_us.total_cmp(&b.time_us));
        least.map_or(0, |(index, _)| index)
    }

    /// Writes a table.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{} of {}, {}: {}\n",
            self.operation.name(),
            size::show(self.bytes),
            text::count(self.members.into(), "member"),
            self.ways[0].choice.way
        )?;
        writeln!(
            out,
            "{:<9}  {:>6}  {:>8}  {:>5}  {:>10}  {:>10}  {:>10}",
            "way", "degree", "blocks", "steps", "time", "best case", "worst case"
        )?;
        for (index, Compared { choice: Choice { way, block_bytes }, steps, time_us, bounds }) in
            self.ways.iter().enumerate()
        {
            let or_none = |shown: Option<String>| shown.unwrap_or_else(|| "-".to_owned());
            let [time, best, worst] =
                [*time_us, bounds.best_us, bounds.worst_us].map(text::show_us);
            let degree = or_none(degree(*way).map(|degree| degree.to_string()));
            let block = or_none(way.is_long().then(|| size::show(*block_bytes)));
            let name = way.name();
            write!(
                out,
                "{name:<9}  {degree:>6}  {block:>8}  {steps:>5}  {time:>10}  {best:>10}  {worst:>10}"
            )?;
            let notes = [
                (index == 0, "taken"),
                (index == self.fastest(), "fastest"),
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
            "\ntaken: the library's choice with these costs. A larger degree means fewer steps, and more writes to one member\n\
             in each. Best case: writes overlap, and are folded as they arrive; worst case: what is folded first arrives last,\n\
             and rounds of blocks do not overlap. Time: their mean, and waits for members that share a core. Costs in\n\
             microseconds: {}",
            self.costs
        )
    }

    /// Writes the same as a JSON object.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let document = json!({
            "collective": self.operation.name(),
            "members": self.members,
            "bytes": self.bytes,
            "costs": self.costs.to_string(),
            "choice": self.ways.first().map(to_json),
            "fastest": to_json(&self.ways[self.fastest()]),
            "ways": self.ways.iter().map(to_json).collect::<Vec<Value>>(),
        });
        json::write_pretty(out, &document)
    }
}

/// The fastest choice of each way, and trees of the degrees of the model and of the taken one.
fn ways(taken: &Plan) -> Vec<Choice> {
    let team = taken.team();
    let mut possible = team.possible(&taken.call);
    // Where the order of ranks counts there are others.
    if let Some(mut folding) = taken.call.folding {
        folding.is_commutative = false;
        let ordered = team.possible(&collective::Call { folding: Some(folding), ..taken.call });
        possible.extend(ordered.into_iter().filter(|choice| choice.way == Way::Chain));
    }
    let is_shown = |way: Way| match degree(way) {
        Some(degree) => way == taken.way || degrees(taken.members).any(|it| it == degree),
        None => true,
    };
    let mut shown: Vec<Choice> = Vec::new();
    for choice in possible.into_iter().filter(|choice| is_shown(choice.way)) {
        let time_us = |choice: Choice| team.time_us(&taken.call, choice);
        match shown.iter_mut().find(|it| it.way == choice.way) {
            Some(best) if time_us(choice) < time_us(*best) => *best = choice,
            Some(_) => {}
            None => shown.push(choice),
        }
    }
    shown
}

fn to_json(compared: &Compared) -> Value {
    let Compared { choice, steps, time_us, bounds } = compared;
    let mut object = json!({
        "way": choice.way.name(),
        "steps": steps,
        "seconds": seconds(*time_us),
        "best_seconds": seconds(bounds.best_us),
        "worst_seconds": seconds(bounds.worst_us),
    });
    if let Some(degree) = degree(choice.way) {
        object["degree"] = degree.into();
    }
    if choice.way.is_long() {
        object["block_bytes"] = choice.block_bytes.into();
    }
    object
}
