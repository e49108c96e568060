//! What hosts do with a stream.

/// What hosts do with a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamSettings {
    /// Permission bits of files that it becomes; none for those that a receiver's umask gives to new files. A file that
    /// replaces another never gets more than that one had.
    pub mode: Option<u32>,
}
