//! Contexts and groups from a seed.

use super::scenario::{ContextPlan, CreationScenario, DeathPlan, GroupPlan, Linking, SeatPlan};
use crate::{dice::Dice, subject::Limits};

/// Distinguishes these random choices from those during the run.
const PURPOSE: u64 = 40;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Returns the scenario of a seed; it also depends on the limits.
pub(super) fn draw(seed: u64, limits: &Limits) -> CreationScenario {
    let mut dice = Dice::new(seed, PURPOSE);
    let (least, most) = (u64::from(*limits.members.start()), u64::from(*limits.members.end()));
    let contexts = dice.between(least.max(2).min(most), most) as usize;
    let groups = if dice.percent(10) { dice.between(5, 12) } else { dice.between(1, 4) };
    let deaths = if dice.percent(40) { 30 } else { 0 };
    let differing = if dice.percent(20) { 20 } else { 0 };
    CreationScenario {
        seed,
        latency_ns: dice.magnitude(10_000, 20 * MS),
        jitter_ns: if dice.percent(70) { dice.magnitude(1_000, 50 * MS) } else { 0 },
        contexts: (0..contexts).map(|_| context(&mut dice, deaths)).collect(),
        groups: (0..groups).map(|_| group(&mut dice, contexts as u64, differing)).collect(),
        losses_ns: match dice.percent(40) {
            true => (0..dice.between(1, 6)).map(|_| dice.magnitude(MS, 5 * SECOND)).collect(),
            false => Vec::new(),
        },
        unusable: match dice.percent(15) {
            true => (0..dice.between(1, 3)).map(|_| dice.below(8)).collect(),
            false => Vec::new(),
        },
    }
}

fn context(dice: &mut Dice, deaths: u64) -> ContextPlan {
    let start_ns = if dice.percent(60) { 0 } else { dice.magnitude(MS, 4 * SECOND) };
    let dies = dice.percent(deaths);
    let death = dies.then(|| DeathPlan {
        at_ns: start_ns + dice.magnitude(MS, 4 * SECOND),
        pause_ns: dice.magnitude(200 * MS, 2 * SECOND),
    });
    ContextPlan { start_ns, death }
}

fn group(dice: &mut Dice, contexts: u64, differing: u64) -> GroupPlan {
    let most = if dice.percent(90) { contexts.min(5) } else { contexts };
    let size = dice.between(1, most);
    let mut free: Vec<usize> = (0..contexts as usize).collect();
    let members: Vec<usize> =
        (0..size).map(|_| free.swap_remove(dice.below(free.len() as u64) as usize)).collect();
    let open = if dice.percent(50) { 60 } else { 0 };
    let seats = members.iter().map(|_| seat(dice, differing, open)).collect();
    let linking = dice.pick(&[Linking::Chain, Linking::Ring, Linking::All]);
    GroupPlan { members, linking, is_shared: dice.percent(75), seats }
}

fn seat(dice: &mut Dice, differing: u64, open: u64) -> SeatPlan {
    let impatient = dice.percent(40);
    let attempts = if impatient { dice.between(1, 4) } else { 0 };
    SeatPlan {
        start_ns: if dice.percent(50) { 0 } else { dice.magnitude(MS, 4 * SECOND) },
        patience_ns: (0..attempts).map(|_| dice.magnitude(MS, 2 * SECOND)).collect(),
        differs: if dice.percent(differing) { dice.between(1, 2) as u32 } else { 0 },
        is_open: dice.percent(open),
    }
}
