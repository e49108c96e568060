//! Sums over many runs.

use std::fmt;

use super::{CopyOutcome, scenario::CopyFault};

/// Totals over many runs.
#[derive(Clone, Default, Debug)]
pub struct CopyTally {
    /// Runs.
    pub runs: u64,
    /// Sessions of all runs.
    pub sessions: u64,
    /// Calls of all sessions.
    pub calls: u64,
    /// What was injected, by kind.
    pub injected: [u64; CopyFault::KINDS.len()],
    /// Sessions that succeeded, failed, and were killed.
    pub ended: [u64; 3],
    /// How often something in the way had to be moved away by hand.
    pub moved_away: u64,
    /// The most calls of a run, and its seed.
    pub longest: (u64, u64),
}

impl CopyTally {
    /// Counts the run of a seed.
    pub fn add(&mut self, seed: u64, outcome: &CopyOutcome) {
        let one = Self {
            runs: 1,
            sessions: outcome.sessions,
            calls: outcome.calls,
            injected: outcome.injected,
            ended: outcome.ended,
            moved_away: outcome.moved_away,
            longest: (outcome.calls, seed),
        };
        self.merge(&one);
    }

    /// Adds the totals of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.sessions += other.sessions;
        self.calls += other.calls;
        self.moved_away += other.moved_away;
        self.injected.iter_mut().zip(other.injected).for_each(|(sum, count)| *sum += count);
        self.ended.iter_mut().zip(other.ended).for_each(|(sum, count)| *sum += count);
        self.longest = self.longest.max(other.longest);
    }
}

impl fmt::Display for CopyTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs, {} sessions, {} calls", self.runs, self.sessions, self.calls)?;
        let [succeeded, failed, killed] = self.ended;
        writeln!(
            f,
            "sessions that succeeded: {succeeded}, failed: {failed}, were killed: {killed}; moved out of the way by hand: {}",
            self.moved_away
        )?;
        let injected = CopyFault::KINDS.iter().zip(self.injected);
        let injected: Vec<String> =
            injected.map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "injected: {}", injected.join(", "))?;
        let (calls, seed) = self.longest;
        write!(f, "most calls: {calls} (seed {seed})")
    }
}
