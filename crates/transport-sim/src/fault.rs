//! Faults of members and links that a test injects.

use std::time::Duration;

/// A fault, injected now ([`crate::SimNet::inject`]) or later ([`crate::SimNet::inject_at`]).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The member dies. Its memory is handed back without completions; its peers report
    /// [`transport::Cause::Lost`] after [`crate::SimConfig::loss_detection_ns`]. Killing it again
    /// has no effect.
    Kill(usize),
    /// All connections between two members are lost; both report it at once.
    Reset(usize, usize),
    /// The member freezes: its blocks neither start nor finish, and nothing reaches or leaves it
    /// until the time is over. If that is longer than
    /// [`crate::SimConfig::silence_timeout_ms`], its peers report [`transport::Cause::Silent`].
    /// [`Duration::MAX`] is for ever: a member that fails without a reset.
    Stall {
        /// The member.
        member: usize,
        /// For how long from now on; of overlapping stalls the one that ends last counts.
        lasting: Duration,
    },
    /// Nothing is delivered between two members, and neither is notified: a partition consists of
    /// several of these. Whatever was in transit arrives when the cut is over. If that takes longer
    /// than [`crate::SimConfig::silence_timeout_ms`], both report [`transport::Cause::Silent`].
    Cut {
        /// One member.
        one: usize,
        /// The other member.
        other: usize,
        /// For how long from now on; of overlapping cuts the one that ends last counts.
        lasting: Duration,
    },
    /// The rate of both of a member's ports changes, from the next block on.
    PortRate {
        /// The member.
        member: usize,
        /// The new rate; at least 1.
        bytes_per_s: u64,
    },
}

/// Saturates after five centuries.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
