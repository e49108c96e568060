//! What a receiver has to read at a URL, as plain data.

use std::collections::VecDeque;

use files::machines::ByteRange;

/// What a receiver reads at a URL.
#[derive(Default)]
pub(super) struct UrlReader {
    /// For one group after another.
    pub(super) jobs: VecDeque<Job>,
    pub(super) is_reading: bool,
    /// How much it has read.
    pub(super) bytes: u64,
}

/// What it reads for a group.
pub(super) struct Job {
    pub(super) group: u64,
    /// The messages that are not sent yet.
    pub(super) pieces: VecDeque<ByteRange>,
    /// What was read.
    pub(super) until: u64,
}
