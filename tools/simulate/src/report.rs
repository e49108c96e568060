//! What has come of a run.

use crate::{
    book::{Done, End},
    checks::{Blame, Counts},
};

/// What has come of a run.
#[derive(Default, Debug)]
pub struct Report {
    /// What must not have happened; empty if all is well.
    pub violations: Vec<String>,
    /// The last events, if they were kept.
    pub trace: String,
    /// Of all that has happened in the network: equal runs have equal digests.
    pub digest: u64,
    /// How many steps there were.
    pub steps: u64,
    /// How long it took in virtual time.
    pub virtual_ns: u64,
    /// How long it took after the last disturbance, in parts of what it may take.
    pub lateness: f64,
    /// Faults that were injected.
    pub faults: Vec<Done>,
    /// How groups have ended at members that were there to see it.
    pub ends: Vec<End>,
    /// Whom failures have named.
    pub blame: Blame,
    /// How many messages failures have reported as being at all members.
    pub counts: Counts,
}
