//! The writes as text: one line for each step.

use std::io::{self, Write};

use collective::model::Bounds;
use plan::size;

use super::plan::{Phase, Plan};

/// The line above a table and the title of a picture.
pub fn headline(plan: &Plan) -> String {
    let members = count(plan.members, "member");
    let kind = match plan.degree {
        Some(degree) => format!("degree {degree}"),
        None => format!("root {}", plan.root),
    };
    let phases: Vec<String> =
        plan.phases().map(|(phase, steps)| format!("{steps} {}", phase.name())).collect();
    let phases = if phases.len() > 1 { format!(" ({})", phases.join(", ")) } else { String::new() };
    let steps = count(plan.steps(), "step");
    format!("{}: {members}, {kind}, {steps}{phases}", plan.operation.name())
}

/// Writes the headline, the time for a length if there is one, and for each step its writes as `source→target`.
pub fn write(plan: &Plan, time: Option<(u64, Bounds)>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", headline(plan))?;
    if let Some((bytes, bounds)) = time {
        writeln!(out, "{} by the cost model: {}", size::show(bytes), show_bounds(bounds))?;
    }
    if plan.steps() == 0 {
        return Ok(());
    }
    let rank_width = digits(plan.members - 1);
    let step_width = digits(plan.steps() - 1).max("step".len());
    let phase_width = Phase::Broadcast.name().len();
    write!(out, "{:>step_width$}  {:<phase_width$}  writes", "step", "phase")?;
    let (mut next_step, mut padding) = (0, 0);
    for write in plan.writes() {
        let (step, phase) = (write.step, write.phase.name());
        // No step is without writes.
        if step == next_step {
            write!(out, "\n{step:>step_width$}  {phase:<phase_width$}")?;
            next_step += 1;
            padding = 0;
        }
        let (source, target) = (write.source, write.target);
        write!(out, "{:padding$}  {source:>rank_width$}→{target}", "")?;
        padding = rank_width - digits(target);
    }
    writeln!(out)
}

fn show_bounds(bounds: Bounds) -> String {
    let [best, worst] = [bounds.best_us, bounds.worst_us].map(show_us);
    if best == worst { best } else { format!("{best} in the best case, {worst} in the worst") }
}

/// A time in microseconds.
pub fn show_us(us: f64) -> String {
    format!("{us:.1} us")
}

fn count(number: u32, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn digits(number: u32) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
