//! The outcome of a run.

use crate::{
    book::{Done, End},
    checks::{Blame, Counts},
};

/// The outcome of a run.
#[derive(Default, Debug)]
pub struct Report {
    /// Violations; empty if the run is correct.
    pub violations: Vec<String>,
    /// The last events, if they were kept.
    pub trace: String,
    /// Digest of all events in the network: equal runs have equal digests.
    pub digest: u64,
    /// How many steps there were.
    pub steps: u64,
    /// How long it took in virtual time.
    pub virtual_ns: u64,
    /// How long it took after the last disturbance, as a fraction of its limit.
    pub lateness: f64,
    /// Faults that were injected.
    pub faults: Vec<Done>,
    /// The ends of groups at members that were alive.
    pub ends: Vec<End>,
    /// How exactly failures named their causes.
    pub blame: Blame,
    /// How exact the counts in failures were.
    pub counts: Counts,
}
