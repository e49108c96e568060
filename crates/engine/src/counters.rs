//! Counters of a context.

/// What a context has done so far. Counts never decrease.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Bytes received as blocks.
    pub bytes_received: u64,
    /// Bytes sent as blocks.
    pub bytes_sent: u64,
    /// Bytes that were copied in user space: first blocks whose memory was not known in time,
    /// and small messages.
    pub bytes_copied: u64,
    /// Blocks received.
    pub blocks_received: u64,
    /// Blocks sent.
    pub blocks_sent: u64,
    /// Small messages that were received directly from the root.
    pub small_received: u64,
    /// Small messages that the root wrote to all receivers.
    pub small_sent: u64,
}
