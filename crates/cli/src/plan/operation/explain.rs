//! `rdmc plan --collective ... --explain`: the degrees compared by the cost model.

use std::io::{self, Write};

use collective::model::{Bounds, Parameters, best_degree, degrees};
use plan::size;
use serde_json::{Value, json};

use super::{json::seconds, options::Operation, plan::Plan, text};
use crate::{failure::Failure, json};

/// The time with each degree.
pub struct Explanation {
    operation: Operation,
    members: u32,
    bytes: u64,
    parameters: Parameters,
    chosen: u32,
    degrees: Vec<Compared>,
}

struct Compared {
    degree: u32,
    steps: u32,
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
        let compare = |degree| {
            let plan = Plan::new(operation, members, 0, degree)?;
            Ok(Compared { degree, steps: plan.steps(), time: plan.time(bytes, parameters) })
        };
        Ok(Self {
            operation,
            members,
            bytes,
            parameters: *parameters,
            degrees: degrees(members).map(compare).collect::<Result<_, Failure>>()?,
            chosen: best_degree(members, bytes, parameters),
        })
    }

    /// Writes a table.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{} of {}, {} members: degree {}\n",
            self.operation.name(),
            size::show(self.bytes),
            self.members,
            self.chosen
        )?;
        writeln!(
            out,
            "{:>6}  {:>5}  {:>12}  {:>12}",
            "degree", "steps", "best case", "worst case"
        )?;
        for Compared { degree, steps, time } in &self.degrees {
            let [best, worst] = [time.best_us, time.worst_us].map(text::show_us);
            let chosen = if *degree == self.chosen { "  chosen" } else { "" };
            writeln!(out, "{degree:>6}  {steps:>5}  {best:>12}  {worst:>12}{chosen}")?;
        }
        writeln!(
            out,
            "\nA larger degree means fewer steps, and more writes to one member in each. Best case: they overlap, and\n\
             are folded as they arrive; worst case: what is folded first arrives last. The least worst case is\n\
             chosen. Costs in microseconds: {}",
            self.parameters
        )
    }

    /// Writes the same as a JSON object.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let all: Vec<Value> = self.degrees.iter().map(to_json).collect();
        let choice = self.degrees.iter().position(|compared| compared.degree == self.chosen);
        let document = json!({
            "collective": self.operation.name(),
            "members": self.members,
            "bytes": self.bytes,
            "parameters": self.parameters.to_string(),
            "choice": choice.map(|index| &all[index]),
            "degrees": all,
        });
        json::write_pretty(out, &document)
    }
}

fn to_json(compared: &Compared) -> Value {
    json!({
        "degree": compared.degree,
        "steps": compared.steps,
        "best_seconds": seconds(compared.time.best_us),
        "worst_seconds": seconds(compared.time.worst_us),
    })
}
