//! Sums over many runs.

use std::fmt;

use rdmc::FailureKind;

use crate::{
    book::End,
    checks::{Blame, Counts},
    report::Report,
    scenario::Fault,
};

/// Kinds of failures, in the order in which they are printed.
const FAILURES: [FailureKind; 7] = [
    FailureKind::Lost,
    FailureKind::Silent,
    FailureKind::Stalled,
    FailureKind::Application,
    FailureKind::Protocol,
    FailureKind::Memory,
    FailureKind::Differs,
];

/// Totals over many runs.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Virtual time of all runs.
    pub virtual_ns: u64,
    /// Runs without faults.
    pub without_faults: u64,
    /// Faults that were injected, by kind.
    pub faults: [u64; Fault::KINDS.len()],
    /// Groups that closed with success at members.
    pub closed: u64,
    /// Groups that failed at members, by kind of failure.
    pub failed: [u64; FAILURES.len()],
    /// Runs in which every group closed with success everywhere.
    pub successes: u64,
    /// The most that a run took after its last disturbance, in parts of what it may take; and the
    /// seed of that run.
    pub slowest: (f64, u64),
    /// How exactly failures named their causes.
    pub blame: Blame,
    /// How exact the counts in failures were.
    pub counts: Counts,
}

impl Tally {
    fn note_slow(&mut self, other: (f64, u64)) {
        if other.0 > self.slowest.0 {
            self.slowest = other;
        }
    }

    fn add_counts(&mut self, counts: Counts) {
        self.counts.exact += counts.exact;
        self.counts.below += counts.below;
        self.counts.had_to_be_exact += counts.had_to_be_exact;
    }

    /// Counts the run of a seed.
    pub fn add(&mut self, seed: u64, report: &Report) {
        self.runs += 1;
        self.steps += report.steps;
        self.virtual_ns += report.virtual_ns;
        self.without_faults += u64::from(report.faults.is_empty());
        for fault in &report.faults {
            self.faults[fault.what.kind()] += 1;
        }
        for end in &report.ends {
            match end {
                End::Closed => self.closed += 1,
                End::Failed(failure) => {
                    let kind = FAILURES.iter().position(|&kind| kind == failure.kind);
                    self.failed[kind.unwrap_or(FAILURES.len() - 1)] += 1;
                }
            }
        }
        self.successes += u64::from(report.ends.iter().all(|end| *end == End::Closed));
        self.blame.exact += report.blame.exact;
        self.blame.behind += report.blame.behind;
        self.add_counts(report.counts);
        self.note_slow((report.lateness, seed));
    }

    /// Adds the totals of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.virtual_ns += other.virtual_ns;
        self.without_faults += other.without_faults;
        self.closed += other.closed;
        self.successes += other.successes;
        self.blame.exact += other.blame.exact;
        self.blame.behind += other.blame.behind;
        self.add_counts(other.counts);
        self.note_slow(other.slowest);
        self.faults.iter_mut().zip(other.faults).for_each(|(sum, count)| *sum += count);
        self.failed.iter_mut().zip(other.failed).for_each(|(sum, count)| *sum += count);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let virtual_s = self.virtual_ns as f64 / 1e9;
        writeln!(f, "{} runs, {} steps, {virtual_s:.0} s in virtual time", self.runs, self.steps)?;
        let with_faults = self.runs - self.without_faults;
        writeln!(
            f,
            "with faults: {with_faults} runs; successful everywhere: {} runs",
            self.successes
        )?;
        let faults = Fault::KINDS.iter().zip(self.faults);
        let faults: Vec<String> = faults.map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "faults: {}", faults.join(", "))?;
        let failed = FAILURES.iter().zip(self.failed);
        let failed: Vec<String> = failed.map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "groups ended: closed {}; member {}", self.closed, failed.join(", "))?;
        let Blame { exact, behind } = self.blame;
        writeln!(
            f,
            "blamed: {exact} times a member with a fault, {behind} times one behind such a member"
        )?;
        let Counts { exact, below, had_to_be_exact } = self.counts;
        writeln!(
            f,
            "messages at all members after a failure: {exact} reports exact, {below} below; exact \
             by all in {had_to_be_exact} groups that had to be"
        )?;
        let (part, seed) = self.slowest;
        write!(f, "slowest end: {:.0} % of the time allowed (seed {seed})", 100.0 * part)
    }
}
