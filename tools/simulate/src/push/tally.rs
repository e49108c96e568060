//! Sums over many pushes.

use std::fmt;

use super::{PushOutcome, scenario::Fault};

/// Totals over many runs, each a push and its repetition.
#[derive(Clone, Default, Debug)]
pub struct PushTally {
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
    /// Copies that were published.
    pub published: u64,
    /// Hosts that have failed in a push.
    pub failed: u64,
    /// How often groups were created for missing bytes.
    pub rounds: u64,
    /// How often hosts reconnected within a push.
    pub retries: u64,
    /// Hosts that have joined.
    pub joined: u64,
    /// Hosts that were deferred.
    pub deferred: u64,
    /// Runs of trees.
    pub trees: u64,
    /// Runs of streams, and those of them in which groups were formed again.
    pub streams: [u64; 2],
    /// See [`PushOutcome::altered`].
    pub altered: u64,
    /// See [`PushOutcome::resumed_bytes`].
    pub resumed_bytes: u64,
    /// See [`PushOutcome::resumed_bytes`].
    pub bytes_again: u64,
    /// See [`PushOutcome::resumed_bytes`].
    pub bytes: u64,
    /// The most that a run took after its last disturbance, in parts of what it may take; and the
    /// seed of that run.
    pub slowest: (f64, u64),
}

impl PushTally {
    fn note_slow(&mut self, other: (f64, u64)) {
        if other.0 > self.slowest.0 {
            self.slowest = other;
        }
    }

    /// Counts the run of a seed.
    pub fn add(&mut self, seed: u64, outcome: &PushOutcome) {
        self.runs += 1;
        self.steps += outcome.steps;
        self.virtual_ns += outcome.virtual_ns;
        self.without_faults += u64::from(outcome.faults.is_empty());
        for fault in &outcome.faults {
            self.faults[fault.what.kind()] += 1;
        }
        self.published += outcome.published;
        self.failed += outcome.failed;
        self.rounds += outcome.rounds;
        self.retries += outcome.retries;
        self.joined += outcome.joined;
        self.deferred += outcome.deferred;
        self.trees += u64::from(outcome.is_tree);
        self.streams[0] += u64::from(outcome.is_stream);
        self.streams[1] +=
            u64::from(outcome.is_stream && outcome.rounds > outcome.ends.len() as u64);
        self.altered += outcome.altered;
        self.resumed_bytes += outcome.resumed_bytes;
        self.bytes_again += outcome.bytes_again;
        self.bytes += outcome.bytes;
        self.note_slow((outcome.lateness, seed));
    }

    /// Adds the totals of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.virtual_ns += other.virtual_ns;
        self.without_faults += other.without_faults;
        self.published += other.published;
        self.failed += other.failed;
        self.rounds += other.rounds;
        self.retries += other.retries;
        self.joined += other.joined;
        self.deferred += other.deferred;
        self.trees += other.trees;
        self.streams.iter_mut().zip(other.streams).for_each(|(sum, count)| *sum += count);
        self.altered += other.altered;
        self.resumed_bytes += other.resumed_bytes;
        self.bytes_again += other.bytes_again;
        self.bytes += other.bytes;
        self.note_slow(other.slowest);
        self.faults.iter_mut().zip(other.faults).for_each(|(sum, count)| *sum += count);
    }
}

impl fmt::Display for PushTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let virtual_s = self.virtual_ns as f64 / 1e9;
        writeln!(f, "{} runs, {} steps, {virtual_s:.0} s in virtual time", self.runs, self.steps)?;
        writeln!(
            f,
            "with faults: {} runs; copies published: {}, hosts given up: {}",
            self.runs - self.without_faults,
            self.published,
            self.failed
        )?;
        let faults = Fault::KINDS.iter().zip(self.faults);
        let faults: Vec<String> = faults.map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "faults: {}", faults.join(", "))?;
        let percent = |bytes: u64| 100.0 * bytes as f64 / self.bytes.max(1) as f64;
        writeln!(
            f,
            "rounds of groups: {}; hosts that came back: {}, joined: {}, were set aside: {}; {:.1} % of all bytes were there already, \
             {:.2} % came again",
            self.rounds,
            self.retries,
            self.joined,
            self.deferred,
            percent(self.resumed_bytes),
            percent(self.bytes_again)
        )?;
        let [streams, again] = self.streams;
        writeln!(
            f,
            "trees: {}; streams: {streams}, of which {again} with more than one group in a push; altered bytes noticed: {}",
            self.trees, self.altered
        )?;
        let (part, seed) = self.slowest;
        write!(f, "slowest end: {:.0} % of the time allowed (seed {seed})", 100.0 * part)
    }
}
