//! Errors of connections between two processes.

use std::{io, net::SocketAddr};

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
        /// What kind of error it is, which tells whether another attempt may succeed.
        kind: PeerErrorKind,
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

/// What happened to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PeerErrorKind {
    /// There was no connection to it: nothing listens at its address, or there is no route.
    Unreachable,
    /// It closed the connection without a reason, or the connection was lost: its process may be ending.
    Closed,
    /// The same during the authentication. It may have another secret, or may be accepting too many connections.
    HungUp,
    /// It was refused, or has refused this end, for a reason that another attempt does not change.
    Refused,
}

impl Error {
    /// Returns whether the peer has closed the connection without a reason, or it was lost, but for its authentication.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Peer { kind: PeerErrorKind::Closed, .. })
    }
}
