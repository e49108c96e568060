//! Errors in files of certificates.

use std::{io, path::PathBuf};

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file does not contain what it should.
    #[error("{}: {cause}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and the remedy.
        cause: String,
    },
    /// A text is neither a DNS name nor an IP address.
    #[error("\"{0}\" is not the name or address of a host")]
    NotAHost(String),
}
