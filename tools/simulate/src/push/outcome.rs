//! What has come of a push.

use super::facts::{Done as InjectedPushFault, PushEnd};

/// What has come of a push, and of the same command again.
#[derive(Clone, Default, Debug)]
pub struct PushOutcome {
    /// What must not have happened; empty if all is well.
    pub violations: Vec<String>,
    /// The last events, if they were kept.
    pub trace: String,
    /// Of all that has happened in the network: equal runs have equal digests.
    pub digest: u64,
    /// How many steps there were.
    pub steps: u64,
    /// How long it took in virtual time.
    pub virtual_ns: u64,
    /// How long it took after the last disturbance, in parts of what it may take.
    pub lateness: f64,
    /// Faults that were injected.
    pub faults: Vec<InjectedPushFault>,
    /// How each push ended whose root has lived.
    pub ends: Vec<PushEnd>,
    /// Hosts that have got their copies, and hosts that have failed, in all pushes.
    pub published: u64,
    /// See `published`.
    pub failed: u64,
    /// How often groups were made for what was missing.
    pub rounds: u64,
    /// How often hosts came back.
    pub retries: u64,
    /// How many hosts have joined, and how many were set aside.
    pub joined: u64,
    /// See `joined`.
    pub set_aside: u64,
    /// What hosts had of earlier sessions, what came although it was there, and what there was to
    /// replicate, in bytes of all hosts and pushes.
    pub resumed_bytes: u64,
    /// See `resumed_bytes`.
    pub bytes_again: u64,
    /// See `resumed_bytes`.
    pub bytes: u64,
}
