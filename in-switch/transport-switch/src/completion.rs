//! What queue pairs report, of devices and in userspace alike.

/// Why a connection has ended, in words.
pub(crate) const NO_ANSWER: &str = "no answers to its packets have come: a switch on the way has \
                                    forgotten the group, or a receiver gets none of its copies";
/// Why a connection has ended, in words.
pub(crate) const NEVER_READY: &str = "a receiver was never ready for a block";

/// Something that has ended.
pub(crate) enum Ended<'a> {
    /// All receivers have the message.
    Sent { id: u64 },
    /// A message has come, for the oldest receive.
    Received { block: &'a [u8], immediate: u32 },
}
