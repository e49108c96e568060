//! The events of a run, where it has no simulated network that keeps them: a digest of all, and the last ones as text.

use std::{collections::VecDeque, fmt};

use crate::subject::Outcome;

/// The events of a run.
#[derive(Debug)]
pub(crate) struct Trace {
    digest: blake3::Hasher,
    lines: VecDeque<String>,
    lines_max: usize,
}

impl Trace {
    /// Makes one that keeps this many lines.
    pub(crate) fn new(lines_max: usize) -> Self {
        Self { digest: blake3::Hasher::new(), lines: VecDeque::new(), lines_max }
    }

    /// Adds numbers to the digest.
    pub(crate) fn digest(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.digest.update(&number.to_le_bytes());
        }
    }

    /// Adds a line, if any are kept.
    pub(crate) fn note<D: fmt::Display>(&mut self, what: impl FnOnce() -> D) {
        if self.lines_max == 0 {
            return;
        }
        if self.lines.len() == self.lines_max {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{}\n", what()));
    }

    /// Makes the outcome of its run.
    pub(crate) fn outcome<C>(self, violations: Vec<String>, counts: C) -> Outcome<C> {
        let (digest, trace) = (short(self.digest.finalize()), self.lines.into_iter().collect());
        Outcome { violations, trace, digest, counts, ends: Vec::new() }
    }
}

/// Returns the beginning of a digest.
pub(crate) fn short(digest: blake3::Hash) -> u64 {
    u64::from_le_bytes(*digest.as_bytes().first_chunk().expect("a digest has 32 bytes"))
}
