//! Errors of connections between two processes.

use std::{io, net::SocketAddr};

/// Parts of causes, where a peer has closed the connection without a reason, or it was lost.
const CLOSED: [&str; 2] = ["closed the connection instead of", "connection was lost"];

/// Why a connection was not made, or what ended it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A peer was refused, refused this end, or was lost; its address names it.
    #[error("{address}: {cause}")]
    Peer {
        /// Where the peer is.
        address: SocketAddr,
        /// What happened, and the remedy.
        cause: String,
    },
    /// A deadline was missed.
    #[error("{what} took longer than {timeout_ms} ms")]
    Timeout {
        /// What was being done.
        what: String,
        /// The timeout.
        timeout_ms: u64,
    },
    /// The system returned an error.
    #[error("{what}: {error}")]
    System {
        /// What was being done.
        what: String,
        /// Its error.
        error: io::Error,
    },
}

impl Error {
    /// Returns whether the peer has closed the connection without a reason, or it was lost: its process may be ending.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Peer { cause, .. } if CLOSED.iter().any(|words| cause.contains(words)))
    }
}
