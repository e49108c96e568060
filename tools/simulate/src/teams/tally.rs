//! Sums over many runs of teams.

use std::fmt;

use engine::FailureKind;

use super::{
    facts::{TeamBlame, TeamEnd},
    fault::TeamFault,
    outcome::TeamOutcome,
};

/// Kinds of failures, in the order in which they are printed.
const FAILURES: [FailureKind; 5] = [
    FailureKind::Lost,
    FailureKind::Silent,
    FailureKind::Stalled,
    FailureKind::Application,
    FailureKind::Protocol,
];

/// Totals over many runs.
#[derive(Clone, Default, Debug)]
pub struct TeamTally {
    /// Runs.
    pub runs: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Virtual time of all runs.
    pub virtual_ns: u64,
    /// Runs without faults.
    pub without_faults: u64,
    /// Faults that were injected, by kind.
    pub faults: [u64; TeamFault::KINDS.len()],
    /// Operations that were complete at members.
    pub completed: u64,
    /// Members at which the team closed with success.
    pub closed: u64,
    /// Members at which it failed, by kind of failure; other kinds count as the last.
    pub failed: [u64; FAILURES.len()],
    /// Runs in which the team closed everywhere.
    pub successes: u64,
    /// How exactly failures named their causes.
    pub blame: TeamBlame,
    /// The most that a run took after its last disturbance, in parts of what it may take; and the seed of that run.
    pub slowest: (f64, u64),
}

impl TeamTally {
    /// Counts the run of a seed.
    pub fn add(&mut self, seed: u64, outcome: &TeamOutcome) {
        self.runs += 1;
        self.steps += outcome.steps;
        self.virtual_ns += outcome.virtual_ns;
        self.without_faults += u64::from(outcome.faults.is_empty());
        for fault in &outcome.faults {
            self.faults[fault.what.kind()] += 1;
        }
        self.completed += outcome.completed;
        for end in &outcome.ends {
            match end {
                TeamEnd::Closed => self.closed += 1,
                TeamEnd::Failed(failure) => {
                    let kind = FAILURES.iter().position(|&kind| kind == failure.kind);
                    self.failed[kind.unwrap_or(FAILURES.len() - 1)] += 1;
                }
            }
        }
        self.successes += u64::from(outcome.ends.iter().all(|end| *end == TeamEnd::Closed));
        self.blame.exact += outcome.blame.exact;
        self.blame.behind += outcome.blame.behind;
        self.note_slow((outcome.lateness, seed));
    }

    /// Adds the totals of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.virtual_ns += other.virtual_ns;
        self.without_faults += other.without_faults;
        self.completed += other.completed;
        self.closed += other.closed;
        self.successes += other.successes;
        self.blame.exact += other.blame.exact;
        self.blame.behind += other.blame.behind;
        self.note_slow(other.slowest);
        self.faults.iter_mut().zip(other.faults).for_each(|(sum, count)| *sum += count);
        self.failed.iter_mut().zip(other.failed).for_each(|(sum, count)| *sum += count);
    }

    fn note_slow(&mut self, other: (f64, u64)) {
        if other.0 > self.slowest.0 {
            self.slowest = other;
        }
    }
}

impl fmt::Display for TeamTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let virtual_s = self.virtual_ns as f64 / 1e9;
        writeln!(f, "{} runs, {} steps, {virtual_s:.0} s in virtual time", self.runs, self.steps)?;
        let with_faults = self.runs - self.without_faults;
        writeln!(
            f,
            "with faults: {with_faults} runs; successful everywhere: {} runs; operations complete at members: {}",
            self.successes, self.completed
        )?;
        let faults = TeamFault::KINDS.iter().zip(self.faults);
        let faults: Vec<String> = faults.map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "faults: {}", faults.join(", "))?;
        let failed = FAILURES.iter().zip(self.failed);
        let failed: Vec<String> = failed.map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "teams ended: closed {}; member {}", self.closed, failed.join(", "))?;
        let TeamBlame { exact, behind } = self.blame;
        writeln!(
            f,
            "blamed: {exact} times a member with a fault, {behind} times one that waited with it"
        )?;
        let (part, seed) = self.slowest;
        write!(f, "slowest end: {:.0} % of the time allowed (seed {seed})", 100.0 * part)
    }
}
