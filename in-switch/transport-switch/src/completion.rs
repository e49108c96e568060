//! Events that queue pairs report, both of devices and in userspace.

/// Why a connection has ended.
pub(crate) const NO_ANSWER: &str = "no answers to its packets have come: a switch on the way has \
                                    forgotten the group, or a receiver gets none of its copies";
/// Why a connection has ended.
pub(crate) const NEVER_READY: &str = "a receiver was never ready for a block";

/// A completed operation.
pub(crate) enum Ended<'a> {
    /// All receivers have received the message.
    Sent { id: u64 },
    /// A message was received, for the oldest receive.
    Received { block: &'a [u8], immediate: u32 },
}
