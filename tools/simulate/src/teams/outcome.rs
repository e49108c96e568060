//! The outcome of a run.

use super::facts::{InjectedTeamFault, TeamBlame, TeamEnd};

/// The outcome of a run.
#[derive(Clone, Default, Debug)]
pub struct TeamOutcome {
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
    pub faults: Vec<InjectedTeamFault>,
    /// The ends at members that were alive.
    pub ends: Vec<TeamEnd>,
    /// Operations that were complete at members.
    pub completed: u64,
    /// How exactly failures named their causes.
    pub blame: TeamBlame,
}
