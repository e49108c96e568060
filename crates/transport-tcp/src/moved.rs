//! What system calls report.

/// What one system call did.
pub(crate) struct Moved {
    /// Bytes that were moved.
    pub(crate) bytes: usize,
    /// Bytes that were asked for. Fewer moved means that the socket is empty (or full), or that
    /// memory failed, which the next call reports.
    pub(crate) wanted: usize,
}
