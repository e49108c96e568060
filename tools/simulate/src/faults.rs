//! Faults by step, for every simulator that injects them so.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A fault, and when it is injected.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlannedFault<F> {
    /// The step of the run.
    pub step: u64,
    /// The fault.
    pub what: F,
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
