//! Events that have happened, as text and as a digest that tests compare.

use std::{
    collections::{VecDeque, hash_map::DefaultHasher},
    fmt,
    hash::{Hash, Hasher},
};

use transport::Completion;

use crate::fault::Fault;

/// An event of the trace.
#[derive(Debug)]
pub(crate) enum What {
    /// A block starts its transfer through its ports.
    Start { from: usize, to: usize, bytes: u64 },
    /// A block has arrived.
    Arrive { from: usize, to: usize, bytes: u64 },
    /// A control word has arrived.
    Word { from: usize, to: usize, bytes: u64 },
    /// A one-sided write has arrived.
    Write { from: usize, to: usize, bytes: u64 },
    /// A side has ended.
    End { member: usize, peer: usize, end: Completion },
    /// A fault that the test has injected.
    Fault(Fault),
    /// A line that the test has added.
    Remark(String),
}

/// The last events, and a digest of all.
pub(crate) struct Trace {
    seed: u64,
    last: VecDeque<(u64, What)>,
    kept_max: usize,
    digest: DefaultHasher,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { from, to, bytes } => write!(f, "block {from} -> {to} starts ({bytes} B)"),
            Self::Arrive { from, to, bytes } => {
                write!(f, "block {from} -> {to} arrives ({bytes} B)")
            }
            Self::Word { from, to, bytes } => write!(f, "word {from} -> {to} arrives ({bytes} B)"),
            Self::Write { from, to, bytes } => {
                write!(f, "write {from} -> {to} arrives ({bytes} B)")
            }
            Self::End { member, peer, end: Completion::Broken { cause, .. } } => {
                write!(f, "member {member} breaks with {peer}: {cause}")
            }
            Self::End { member, peer, .. } => write!(f, "member {member} has closed with {peer}"),
            Self::Fault(fault) => write!(f, "fault: {fault:?}"),
            Self::Remark(text) => f.write_str(text),
        }
    }
}

impl Trace {
    pub(crate) fn new(seed: u64, kept_max: usize) -> Self {
        Self { seed, last: VecDeque::new(), kept_max, digest: DefaultHasher::new() }
    }

    pub(crate) fn note(&mut self, at_ns: u64, what: What) {
        at_ns.hash(&mut self.digest);
        match &what {
            What::Start { from, to, bytes } => (0, from, to, bytes).hash(&mut self.digest),
            What::Arrive { from, to, bytes } => (1, from, to, bytes).hash(&mut self.digest),
            What::Word { from, to, bytes } => (2, from, to, bytes).hash(&mut self.digest),
            What::Write { from, to, bytes } => (3, from, to, bytes).hash(&mut self.digest),
            // Rare events, so hashing their text is fast enough.
            rare => rare.to_string().hash(&mut self.digest),
        }
        if self.kept_max > 0 {
            self.keep(at_ns, what);
        }
    }

    /// Keeps a remark, if a trace is kept. It is not part of the digest.
    pub(crate) fn remark(&mut self, at_ns: u64, text: impl FnOnce() -> String) {
        if self.kept_max > 0 {
            self.keep(at_ns, What::Remark(text()));
        }
    }

    fn keep(&mut self, at_ns: u64, what: What) {
        if self.last.len() == self.kept_max {
            self.last.pop_front();
        }
        self.last.push_back((at_ns, what));
    }

    /// Returns the digest: equal, within one version of this library, only for equal runs.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "simulated network, seed {}, the last {} events:", self.seed, self.last.len())?;
        for (at_ns, what) in &self.last {
            writeln!(f, "  {:>15.3} us  {what}", *at_ns as f64 / 1_000.0)?;
        }
        Ok(())
    }
}
