//! The outcome of a run.

use files::simulation::CopySession;

use super::scenario::CopyFault;

/// The outcome of all sessions of a scenario.
#[derive(Clone, Debug)]
pub struct CopyOutcome {
    /// Violations; empty if the run is correct.
    pub violations: Vec<String>,
    /// What happened, if it was kept.
    pub trace: String,
    /// Digest of all that was counted and found: equal runs have equal digests.
    pub digest: blake3::Hash,
    /// Sessions.
    pub sessions: u64,
    /// Calls of all sessions.
    pub calls: u64,
    /// What was injected, by kind.
    pub injected: [u64; CopyFault::KINDS.len()],
    /// Sessions that succeeded, failed, and were killed.
    pub ended: [u64; 3],
    /// Bytes that were received.
    pub received_bytes: u64,
    /// How often something in the way had to be moved away by hand.
    pub moved_away: u64,
}

impl Default for CopyOutcome {
    fn default() -> Self {
        Self {
            violations: Vec::new(),
            trace: String::new(),
            digest: blake3::hash(b""),
            sessions: 0,
            calls: 0,
            injected: [0; CopyFault::KINDS.len()],
            ended: [0; 3],
            received_bytes: 0,
            moved_away: 0,
        }
    }
}

impl CopyOutcome {
    pub(super) fn count(&mut self, session: &CopySession) {
        self.received_bytes += session.received.unwrap_or(0);
        self.ended[match (&session.outcome, session.faults.is_killed()) {
            (_, true) => 2,
            (Ok(_), _) => 0,
            (Err(_), _) => 1,
        }] += 1;
    }

    /// What is equal in equal runs.
    pub(super) fn facts(&self) -> impl std::fmt::Debug + '_ {
        let counts = (self.sessions, self.calls, self.received_bytes, self.moved_away);
        (&self.violations, counts, self.injected, self.ended)
    }
}
