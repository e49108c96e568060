//! The writes as text: one line for each step.

use std::io::{self, Write};

use collective::Way;
use plan::size;

use super::{plan::Plan, write::Part};

/// The line above a table, and the title in JSON.
pub fn headline(plan: &Plan) -> String {
    let members = count(plan.members.into(), "member");
    let mut how = match plan.way {
        Way::Trees { degree: Some(degree) } => format!("degree {degree}"),
        _ => format!("root {}", plan.root),
    };
    let long = || {
        format!("{} of at most {}", count(plan.blocks(), "block"), size::show(plan.block_bytes()))
    };
    match plan.way {
        Way::Trees { .. } => {}
        Way::Exchange => plan.way.name().clone_into(&mut how),
        Way::Circulant | Way::Direct if plan.has_parts() => {
            how = format!("{how}, {}, parts of {}", plan.way, size::show(plan.chunk_bytes()));
        }
        Way::Circulant | Way::Direct => how = format!("{how}, {}, {}", plan.way, long()),
        Way::Ring | Way::Halving if plan.phases().len() > 1 || plan.has_parts() => {
            let chunk = size::show(plan.chunk_bytes());
            how = format!("{}, chunks of at most {chunk}", plan.way);
        }
        Way::Halving | Way::Ring | Way::Chain => how = format!("{}, {}", plan.way, long()),
    }
    let phases: Vec<String> = plan
        .phases()
        .into_iter()
        .map(|(phase, steps)| format!("{steps} {}", phase.name()))
        .collect();
    let phases = if phases.len() > 1 { format!(" ({})", phases.join(", ")) } else { String::new() };
    let steps = count(plan.steps(), "step");
    format!("{}: {members}, {how}, {steps}{phases}", plan.operation.name())
}

/// Writes the headline, the time for a length if there is one, and for each step its writes as `source→target`, of a block with
/// `b` and its number, of a chunk with `c`, of several with the first and the last.
pub fn write(plan: &Plan, bytes: Option<u64>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", headline(plan))?;
    if let Some(bytes) = bytes {
        writeln!(out, "{} by the cost model: {}", size::show(bytes), show_time(plan))?;
    }
    if plan.steps() == 0 {
        return Ok(());
    }
    let rank_width = digits((plan.members - 1).into());
    let step_width = digits(plan.steps() - 1).max("step".len());
    let phase_width =
        plan.phases().iter().map(|(phase, _)| phase.name().len()).max().unwrap_or(0).max(9);
    // With the letter, and between two numbers.
    let part_width = match plan.way {
        Way::Ring if plan.has_parts() => 1 + rank_width,
        _ if plan.has_parts() => 2 + 2 * rank_width,
        Way::Circulant => 1 + digits(plan.blocks() - 1),
        Way::Halving => 2 + 2 * rank_width,
        Way::Ring if plan.phases().len() > 1 => 1 + rank_width,
        Way::Ring => 1 + digits(plan.blocks() - 1),
        _ => 0,
    };
    write!(out, "{:>step_width$}  {:<phase_width$}  writes", "step", "phase")?;
    let (mut next_step, mut padding) = (0, 0);
    for write in plan.writes() {
        let (step, phase) = (write.step, write.phase.name());
        // Every step has writes.
        if step == next_step {
            write!(out, "\n{step:>step_width$}  {phase:<phase_width$}")?;
            next_step += 1;
            padding = 0;
        }
        let (source, target) = (write.source, write.target);
        write!(out, "{:padding$}  {source:>rank_width$}→{target}", "")?;
        padding = rank_width - digits(target.into());
        if let Some(part) = part(write.part) {
            write!(out, "{:padding$} {part}", "")?;
            padding = part_width - part.len();
        }
    }
    writeln!(out)
}

fn part(part: Part) -> Option<String> {
    match part {
        Part::All => None,
        Part::Block(number) => Some(format!("b{number}")),
        Part::Chunk(number) => Some(format!("c{number}")),
        Part::Chunks(first, last) if first == last => Some(format!("c{first}")),
        Part::Chunks(first, last) => Some(format!("c{first}-{last}")),
    }
}

fn show_time(plan: &Plan) -> String {
    let bounds = plan.bounds();
    let [time, best, worst] = [plan.time_us(), bounds.best_us, bounds.worst_us].map(show_us);
    if best == worst { time } else { format!("{time} ({best} to {worst})") }
}

/// A time, from microseconds.
pub fn show_us(us: f64) -> String {
    match us {
        1e7.. => format!("{:.2} s", us / 1e6),
        1e4.. => format!("{:.2} ms", us / 1e3),
        _ => format!("{us:.1} us"),
    }
}

/// A number with its noun.
pub fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
