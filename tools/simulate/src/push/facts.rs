//! What has happened in a push, as the checkers see it.

use super::scenario::{Harm, PushScenario};

/// Harm that was done.
#[derive(Clone, Debug)]
pub struct Done {
    /// When.
    pub at_ns: u64,
    /// What.
    pub what: Harm,
}

/// All facts of one run.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) violations: Vec<String>,
    pub(super) harms: Vec<Done>,
    pub(super) hosts: Vec<HostFacts>,
    /// How many pushes were begun.
    pub(super) pushes: u32,
    pub(super) rounds: u64,
    pub(super) retries: u64,
    pub(super) joined: u64,
    pub(super) set_aside: u64,
    /// How long it took after its last disturbance, in parts of what it may take.
    pub(super) lateness: f64,
    pub(super) published: u64,
    pub(super) failed: u64,
    pub(super) resumed_bytes: u64,
    pub(super) bytes_again: u64,
    pub(super) bytes: u64,
}

/// One host, in the push that runs.
#[derive(Clone, Default, Debug)]
pub(super) struct HostFacts {
    /// What came although it was there.
    pub(super) bytes_again: u64,
    /// Its copy has got its name.
    pub(super) has_published: bool,
}

impl Facts {
    pub(super) fn new(scenario: &PushScenario) -> Self {
        Self {
            violations: Vec::new(),
            harms: Vec::new(),
            hosts: vec![HostFacts::default(); scenario.hosts.len()],
            pushes: 0,
            rounds: 0,
            retries: 0,
            joined: 0,
            set_aside: 0,
            lateness: 0.0,
            published: 0,
            failed: 0,
            resumed_bytes: 0,
            bytes_again: 0,
            bytes: 0,
        }
    }

    pub(super) fn violated(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }
}
