//! Counters of a context.

use std::ops::AddAssign;

/// The counters of a context. They never decrease.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Bytes received as blocks.
    pub bytes_received: u64,
    /// Bytes sent as blocks.
    pub bytes_sent: u64,
    /// Bytes copied in user space: first blocks whose memory was not known in time,
    /// and small messages.
    pub bytes_copied: u64,
    /// Blocks received.
    pub blocks_received: u64,
    /// Blocks sent.
    pub blocks_sent: u64,
    /// Small messages received directly from the root.
    pub small_received: u64,
    /// Small messages that this member, as the root, wrote to all receivers.
    pub small_sent: u64,
}

impl Counters {
    /// Counts a small message of this many bytes that was received.
    pub(crate) fn note_small(&mut self, bytes: u64) {
        self.small_received += 1;
        self.bytes_copied += bytes;
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.bytes_copied += other.bytes_copied;
        self.blocks_received += other.blocks_received;
        self.blocks_sent += other.blocks_sent;
        self.small_received += other.small_received;
        self.small_sent += other.small_sent;
    }
}
