//! What hosts do with a stream.

/// What hosts do with a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamSettings {
    /// Permission bits of files that it becomes; none for those that a receiver's umask gives to new files. A file that
    /// replaces another never gets more than that one had.
    pub mode: Option<u32>,
    /// A command of the shell that each host runs with the verified stream as its standard input, and `RDMC_HOST` in its
    /// environment as the host's name, instead of writing a file. The host has failed if it ends with another exit status
    /// than 0. It sees the end of the stream only if all is verified, and is killed otherwise. Receivers that listen refuse it.
    pub command: Option<String>,
}
