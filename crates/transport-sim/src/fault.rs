//! What a test does to members and links.

use std::time::Duration;

/// Something that goes wrong, now ([`crate::SimNet::inject`]) or later
/// ([`crate::SimNet::inject_at`]).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The member dies. Its memory is handed back without completions; its peers report
    /// [`transport::Cause::Lost`] after [`crate::SimConfig::loss_detection_ns`]. Again: nothing.
    Kill(usize),
    /// All connections between two members are lost; both report it at once.
    Reset(usize, usize),
    /// The member freezes: its blocks neither start nor finish, and nothing reaches or leaves it
    /// until the time is over. If that is longer than
    /// [`crate::SimConfig::silence_timeout_ms`], its peers report [`transport::Cause::Silent`].
    /// [`Duration::MAX`] is for ever: a member that fails without a reset.
    Stall {
        /// Who.
        member: usize,
        /// For how long from now on; of overlapping stalls the one that ends last counts.
        lasting: Duration,
    },
    /// Nothing passes between two members, and neither is notified: a partition is several of these.
    /// What was on its way arrives when the time is over. If that is longer than
    /// [`crate::SimConfig::silence_timeout_ms`], both report [`transport::Cause::Silent`].
    Cut {
        /// One of them.
        one: usize,
        /// The other.
        other: usize,
        /// For how long from now on; of overlapping cuts the one that ends last counts.
        lasting: Duration,
    },
    /// Both of a member's ports have another rate, from the next block on.
    PortRate {
        /// Who.
        member: usize,
        /// At least 1.
        bytes_per_s: u64,
    },
}

/// Saturates after five centuries.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
