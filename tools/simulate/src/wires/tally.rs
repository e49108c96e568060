//! Sums over many runs of the wire.

use std::fmt;

use super::{facts::END_KINDS, fault::WireFault, outcome::WireOutcome};

/// Totals over many runs.
#[derive(Clone, Default, Debug)]
pub struct WireTally {
    /// Runs.
    pub runs: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Virtual time of all runs.
    pub virtual_ns: u64,
    /// Runs without faults.
    pub without_faults: u64,
    /// Faults that happened, by kind.
    pub faults: [u64; WireFault::KINDS.len()],
    /// Ends of channels, by kind: closed, closed by the peer, lost, silent, corrupt, protocol.
    pub ends: [u64; END_KINDS.len()],
    /// Blocks that were received.
    pub blocks: u64,
    /// Blocks that were sent on before they had arrived.
    pub cut_through: u64,
    /// One-sided writes that were sent.
    pub writes: u64,
    /// Control words that were received.
    pub words: u64,
    /// Messages that were received.
    pub messages: u64,
    /// Channels on which everything came to both ends, as it had to.
    pub complete: u64,
}

impl WireTally {
    /// Counts a run.
    pub fn add(&mut self, outcome: &WireOutcome) {
        let mut faults = [0; WireFault::KINDS.len()];
        outcome.faults.iter().for_each(|&kind| faults[kind] += 1);
        self.merge(&Self {
            runs: 1,
            steps: outcome.steps,
            virtual_ns: outcome.virtual_ns,
            without_faults: u64::from(outcome.faults.is_empty()),
            faults,
            ends: outcome.ends,
            blocks: outcome.blocks,
            cut_through: outcome.cut_through,
            writes: outcome.writes,
            words: outcome.words,
            messages: outcome.messages,
            complete: outcome.complete,
        });
    }

    /// Adds the totals of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.virtual_ns += other.virtual_ns;
        self.without_faults += other.without_faults;
        self.blocks += other.blocks;
        self.cut_through += other.cut_through;
        self.writes += other.writes;
        self.words += other.words;
        self.messages += other.messages;
        self.complete += other.complete;
        self.faults.iter_mut().zip(other.faults).for_each(|(sum, count)| *sum += count);
        self.ends.iter_mut().zip(other.ends).for_each(|(sum, count)| *sum += count);
    }
}

impl fmt::Display for WireTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let virtual_s = self.virtual_ns as f64 / 1e9;
        writeln!(f, "{} runs, {} steps, {virtual_s:.0} s in virtual time", self.runs, self.steps)?;
        let with_faults = self.runs - self.without_faults;
        writeln!(
            f,
            "with faults: {with_faults} runs; channels that had to be and were complete: {}",
            self.complete
        )?;
        let named = |names: &[&str], counts: &[u64]| {
            let all = names.iter().zip(counts).map(|(name, count)| format!("{name} {count}"));
            all.collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "faults: {}", named(&WireFault::KINDS, &self.faults))?;
        writeln!(f, "channels ended: {}", named(&END_KINDS, &self.ends))?;
        let Self { blocks, cut_through, writes, words, messages, .. } = self;
        write!(
            f,
            "blocks {blocks}, of these sent on before they had arrived {cut_through}; writes {writes}, control words {words}, messages {messages}"
        )
    }
}
