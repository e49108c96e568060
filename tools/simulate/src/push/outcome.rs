//! The outcome of a push.

use super::{
    facts::{Done as InjectedPushFault, PushEnd},
    traffic::Traffic,
};

/// The outcome of a push and of its repetition.
#[derive(Clone, Default, Debug)]
pub struct PushOutcome {
    /// Violations; empty if the run is correct.
    pub violations: Vec<String>,
    /// The last events, if they were kept.
    pub trace: String,
    /// Digest of all events in the network: equal runs have equal digests.
    pub digest: u64,
    /// How many steps there were.
    pub steps: u64,
    /// How long it took in virtual time.
    pub virtual_ns: u64,
    /// How long it took after the last disturbance, as a fraction of its limit.
    pub lateness: f64,
    /// Faults that were injected.
    pub faults: Vec<InjectedPushFault>,
    /// The ends of the pushes whose root was not killed.
    pub ends: Vec<PushEnd>,
    /// Hosts whose copies were published, and hosts that have failed, in both pushes.
    pub published: u64,
    /// See `published`.
    pub failed: u64,
    /// How often groups were created for missing bytes.
    pub rounds: u64,
    /// How often hosts reconnected.
    pub retries: u64,
    /// How many hosts have joined, and how many were deferred.
    pub joined: u64,
    /// See `joined`.
    pub deferred: u64,
    /// Whether the object was a tree.
    pub is_tree: bool,
    /// Whether the object was a stream.
    pub is_stream: bool,
    /// How often a host got other bytes of a stream than those that were sent.
    pub altered: u64,
    /// Bytes kept from earlier sessions, bytes received although they were in place, and bytes to
    /// replicate, of all hosts in both pushes.
    pub resumed_bytes: u64,
    /// See `resumed_bytes`.
    pub bytes_again: u64,
    /// See `resumed_bytes`.
    pub bytes: u64,
    /// Messages on control connections in the first push, if they were counted.
    pub traffic: Traffic,
}
