//! Results of system calls that move bytes.

/// The result of one system call.
pub(crate) struct Moved {
    /// Bytes that were moved.
    pub(crate) bytes: usize,
    /// Bytes that were requested. If fewer were moved, the socket is empty (or full), or memory
    /// failed, which the next call reports.
    pub(crate) wanted: usize,
}
