//! The outcome of a run, and sums over many.

use std::fmt;

/// The outcome of a run.
#[derive(Clone, Default, Debug)]
pub struct CreationOutcome {
    /// Violations; empty if the run is correct.
    pub violations: Vec<String>,
    /// The last events, if they were kept.
    pub trace: String,
    /// How many steps there were.
    pub steps: u64,
    /// How long it took in virtual time.
    pub virtual_ns: u64,
    /// Groups that stood in the end at all members.
    pub groups: u64,
    /// Attempts that were begun by members.
    pub attempts: u64,
    /// Attempts that ended at their timeout.
    pub timeouts: u64,
    /// Attempts that were refused, or failed for another reason.
    pub refused: u64,
    /// Groups of a member that had a link whose other end was given back.
    pub broken: u64,
    /// Shared connections that were lost, and contexts that died.
    pub faults: u64,
}

/// Totals over many runs.
#[derive(Clone, Default, Debug)]
pub struct CreationTally {
    /// Runs.
    pub runs: u64,
    /// Sums of all runs; without violations and traces.
    pub sums: CreationOutcome,
    /// The most attempts that a run took for each member of its groups, and its seed.
    most: (u64, u64),
}

impl CreationTally {
    /// Counts the run of a seed.
    pub fn add(&mut self, seed: u64, outcome: &CreationOutcome) {
        self.runs += 1;
        self.sum(outcome);
        self.most = self.most.max((outcome.attempts, seed));
    }

    /// Adds the totals of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.sum(&other.sums);
        self.most = self.most.max(other.most);
    }

    fn sum(&mut self, outcome: &CreationOutcome) {
        let sums = &mut self.sums;
        sums.steps += outcome.steps;
        sums.virtual_ns += outcome.virtual_ns;
        sums.groups += outcome.groups;
        sums.attempts += outcome.attempts;
        sums.timeouts += outcome.timeouts;
        sums.refused += outcome.refused;
        sums.broken += outcome.broken;
        sums.faults += outcome.faults;
    }
}

impl fmt::Display for CreationTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CreationOutcome { steps, virtual_ns, groups, attempts, .. } = &self.sums;
        let virtual_s = *virtual_ns as f64 / 1e9;
        writeln!(f, "{} runs, {steps} steps, {virtual_s:.0} s in virtual time", self.runs)?;
        let CreationOutcome { timeouts, refused, broken, faults, .. } = &self.sums;
        writeln!(
            f,
            "{groups} groups created; attempts of members {attempts}: {timeouts} timed out, {refused} refused, \
             {broken} groups broken; connections lost and contexts dead: {faults}"
        )?;
        write!(f, "most attempts in a run: {} (seed {})", self.most.0, self.most.1)
    }
}
