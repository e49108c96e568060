//! The plan as text: one line per step, streamed.

use std::io::{self, Write};

use schedule::lower_bound_steps;

use super::{message::Plan, transfers::Transfers};

/// The line above a table, and the title in JSON.
pub fn headline(plan: &Plan) -> String {
    let (schedule, blocks, steps) = (&plan.schedule, plan.blocks, plan.steps());
    let count =
        |number: u64, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let copied = match plan.block_times_with_copies() {
        Some(times) => format!("; where switches copy, {} at the root", count(times, "block time")),
        None => String::new(),
    };
    format!(
        "{}: {}, {}, {} (lower bound {}){copied}",
        schedule.algorithm(),
        count(schedule.members().into(), "member"),
        count(blocks.into(), "block"),
        count(steps, "step"),
        lower_bound_steps(schedule.members(), blocks),
    )
}

/// Writes the headline and, for each step, its transfers as `source→target bBLOCK` in columns; `-` where there are
/// none.
pub fn write(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", headline(plan))?;
    let rank_width = digits((plan.schedule.members() - 1).into());
    let block_width = digits(plan.blocks.saturating_sub(1).into());
    let step_width = digits(plan.steps().saturating_sub(1)).max("step".len());
    if plan.steps() > 0 {
        write!(out, "{:>step_width$}  transfers", "step")?;
    }
    let mut next_step = 0;
    let mut padding = 0;
    for transfer in Transfers::new(&plan.schedule, plan.blocks) {
        while next_step <= transfer.step {
            let idle = if next_step < transfer.step { "  -" } else { "" };
            write!(out, "\n{next_step:>step_width$}{idle}")?;
            next_step += 1;
            padding = 0;
        }
        let (source, target, block) = (transfer.source, transfer.target, transfer.block);
        write!(out, "{:padding$}  {source:>rank_width$}→{target:<rank_width$} b{block}", "")?;
        padding = block_width - digits(block.into());
    }
    if plan.steps() > 0 {
        writeln!(out)?;
    }
    Ok(())
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
