//! Events that queue pairs report, both of devices and in userspace.

use transport::WriteLease;

/// Why a connection has ended.
pub(crate) const NO_ANSWER: &str = "no answers to its packets have come: a switch on the way has \
                                    forgotten the group, or a receiver gets none of its copies";
/// Why a connection has ended.
pub(crate) const NEVER_READY: &str = "a receiver was never ready for a block";

/// A completed operation.
pub(crate) enum Ended {
    /// All receivers have received the message, whose lease the queue pair has dropped.
    Sent { id: u64 },
    /// A message was received, for the oldest receive.
    Received { into: WriteLease, bytes: usize, immediate: u32 },
}
