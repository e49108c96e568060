//! Sums over many runs of copies.

use std::fmt;

use files::simulation::CopySession;

use super::scenario::CopyFault;
use crate::counts::{Counts, Kinds, Most, counts};

counts! {
    /// What runs count.
    pub struct CopyCounts {
        /// Sessions.
        pub sessions: u64,
        /// Calls of all sessions.
        pub calls: u64,
        /// What was injected, by kind.
        pub injected: Kinds<{ CopyFault::KINDS.len() }>,
        /// Sessions that succeeded, failed, and were killed.
        pub ended: Kinds<3>,
        /// Bytes that were received.
        pub received_bytes: u64,
        /// How often something in the way had to be moved away by hand.
        pub moved_away: u64,
        /// The most calls of a run.
        pub longest: Most<u64>,
    }
}

impl CopyCounts {
    /// Counts a session.
    pub(super) fn count(&mut self, session: &CopySession) {
        self.sessions += 1;
        self.calls += session.faults.calls();
        self.received_bytes += session.received.unwrap_or(0);
        self.ended.0[match (&session.outcome, session.faults.is_killed()) {
            (_, true) => 2,
            (Ok(_), _) => 0,
            (Err(_), _) => 1,
        }] += 1;
    }
}

impl Counts for CopyCounts {
    fn write(&self, runs: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{runs} runs, {} sessions, {} calls", self.sessions, self.calls)?;
        let Kinds([succeeded, failed, killed]) = self.ended;
        writeln!(
            f,
            "sessions that succeeded: {succeeded}, failed: {failed}, were killed: {killed}; moved out of the way by hand: {}",
            self.moved_away
        )?;
        writeln!(f, "injected: {}", self.injected.named(&CopyFault::KINDS))?;
        write!(f, "most calls: {}", self.longest)
    }
}
