//! What can go wrong between two processes.

use std::{io, net::SocketAddr};

/// Why a connection was not made, or what ended it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A peer was refused, refused this end, or is lost; it is named by its address.
    #[error("{address}: {cause}")]
    Peer {
        /// Where the peer is.
        address: SocketAddr,
        /// What happened, and what to do.
        cause: String,
    },
    /// Something did not happen in time.
    #[error("{what} took longer than {timeout_ms} ms")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        timeout_ms: u64,
    },
    /// The system refused.
    #[error("{what}: {error}")]
    System {
        /// What was asked of it.
        what: String,
        /// Its error.
        error: io::Error,
    },
}
