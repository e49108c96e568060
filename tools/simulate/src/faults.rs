//! Faults by step, for every simulator that injects them so.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dice::Dice;

/// A fault, and when it is injected.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlannedFault<F> {
    /// The step of the run.
    pub step: u64,
    /// The fault.
    pub what: F,
}

impl<F> PlannedFault<F> {
    /// Draws this many, in this many steps, some of them together with another.
    pub(crate) fn draw(
        dice: &mut Dice,
        count: u64,
        steps: u64,
        together_percent: u64,
        mut fault: impl FnMut(&mut Dice, u64) -> Self,
    ) -> Vec<Self> {
        let mut faults: Vec<Self> = Vec::new();
        for _ in 0..count {
            let last = faults.last().map(|fault| fault.step);
            let together = last.filter(|_| dice.percent(together_percent));
            let step = together.unwrap_or_else(|| dice.between(1, steps));
            faults.push(fault(dice, step));
        }
        faults.sort_by_key(|fault| fault.step);
        faults
    }
}

impl<F: fmt::Debug> fmt::Display for PlannedFault<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "at step {}: {:?}", self.step, self.what)
    }
}

/// An injected fault.
#[derive(Clone, Debug)]
pub struct InjectedFault<F> {
    /// Virtual time of the injection.
    pub at_ns: u64,
    /// The fault.
    pub what: F,
}
