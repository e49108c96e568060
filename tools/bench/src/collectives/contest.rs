//! Turns: each contender runs its cells once a round, every second round in the opposite order.

use std::time::{Duration, Instant};

use super::{
    barrier::{Barrier, BarrierMemory},
    cell::{Cell, Rule, Task},
    contender::{Contender, Tools},
    times::{PREFIX, Statistics, TimeTable},
};
use crate::{
    interrupt::Interrupt,
    outcome::Outcome,
    peers::{site::Site, turn},
    sweep::progress,
};

/// The longest that one turn takes.
pub const TURN_TIMEOUT: Duration = Duration::from_secs(90);

/// A contender, and what it has measured.
#[derive(Debug)]
pub struct Entry {
    pub contender: Contender,
    pub cells: Vec<Cell>,
    /// By turn, by cell.
    turns: Vec<Vec<Statistics>>,
    /// The error of its last turn, after which it has no more.
    pub trouble: Option<String>,
}

impl Entry {
    /// With those of the cells that the contender takes.
    pub fn new(contender: Contender, cells: &[Cell]) -> Self {
        let cells = cells.iter().copied().filter(|&cell| contender.takes(cell)).collect();
        Self { contender, cells, turns: Vec::new(), trouble: None }
    }

    /// How many turns it has had.
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// The medians of its turns, by cell; empty if there was none.
    pub fn results(&self) -> Vec<(Cell, Statistics)> {
        let of_cell = |(index, &cell): (usize, &Cell)| {
            let runs: Vec<Statistics> = self.turns.iter().map(|turn| turn[index]).collect();
            Some((cell, Statistics::of_runs(&runs)?))
        };
        self.cells.iter().enumerate().filter_map(of_cell).collect()
    }

    fn take_turn(
        &self,
        site: &Site,
        tools: &mut Tools,
        rules: &Rules,
        interrupt: &Interrupt,
    ) -> Outcome<Vec<Statistics>> {
        let shared = match rules.barrier {
            // Gloo works on threads of its own, which starve beside members that poll memory.
            Barrier::Shared if matches!(self.contender, Contender::Gloo { .. }) => None,
            Barrier::Shared if self.contender.is_own() => Some(BarrierMemory::own()?),
            Barrier::Shared => Some(BarrierMemory::file(&tools.workspace.meeting()?)?),
            Barrier::Own => None,
        };
        let barrier = shared.as_ref().map(BarrierMemory::path);
        let task = Task { cells: &self.cells, rule: &rules.rule, barrier };
        let launches = self.contender.launches(site, tools, &task)?;
        let mut table = TimeTable::new(self.cells.len(), u32::try_from(site.hosts.len())?);
        turn::run(&launches, TURN_TIMEOUT, interrupt, PREFIX, |line| {
            table.note(line)?;
            Ok(table.is_full())
        })?;
        table.statistics()
    }
}

/// How entries are measured.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub rule: Rule,
    pub barrier: Barrier,
    /// How many turns each has.
    pub turns: u32,
    /// When no turn begins any more.
    pub until: Instant,
}

/// Gives each entry its turns. One that fails is not tried again.
///
/// Errors: an interrupt.
pub fn rounds(
    entries: &mut [Entry],
    site: &Site,
    tools: &mut Tools,
    rules: &Rules,
    interrupt: &Interrupt,
) -> Outcome<()> {
    let (count, total) = (entries.len(), entries.len() * rules.turns as usize);
    for round in 0..rules.turns as usize {
        for position in 0..count {
            let index = if round % 2 == 0 { position } else { count - 1 - position };
            let entry = &mut entries[index];
            let name = format!("{} members, {}", site.hosts.len(), entry.contender.name());
            progress(&name, round * count + position + 1, total);
            if entry.trouble.is_some() || entry.cells.is_empty() {
                continue;
            }
            if Instant::now() > rules.until {
                if entry.turns.is_empty() {
                    entry.trouble = Some("no time was left for it (--minutes)".to_owned());
                }
                continue;
            }
            match entry.take_turn(site, tools, rules, interrupt) {
                Ok(statistics) => entry.turns.push(statistics),
                Err(error) => {
                    interrupt.check()?;
                    entry.trouble = Some(error.to_string());
                }
            }
        }
    }
    Ok(())
}
