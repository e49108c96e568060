//! Errors of connections between two processes.

use std::{io, net::SocketAddr};

/// Why a connection was not made, or why it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A peer was refused, refused the connection, or was lost.
    #[error("{address}: {cause}")]
    Peer {
        /// The peer's address.
        address: SocketAddr,
        /// The cause, and a remedy.
        cause: String,
        /// The kind of error, which determines whether another attempt may succeed.
        kind: PeerErrorKind,
    },
    /// A deadline was missed.
    #[error("{what} took longer than {timeout_ms} ms")]
    Timeout {
        /// The operation that took too long.
        what: String,
        /// The timeout in milliseconds.
        timeout_ms: u64,
    },
    /// A system call has failed.
    #[error("{what}: {error}")]
    System {
        /// The operation that failed.
        what: String,
        /// The operating system's error.
        error: io::Error,
    },
}

/// The kinds of errors of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PeerErrorKind {
    /// No connection could be made: no process listens at the peer's address, or no route exists.
    Unreachable,
    /// The peer closed the connection without a reason, or the connection was lost: its process may be ending.
    Closed,
    /// As [`PeerErrorKind::Closed`], but during authentication. The peer may have another secret, or may be at its limit of
    /// pending connections.
    HungUp,
    /// The peer was refused, or refused the connection, for a reason that another attempt does not change.
    Refused,
}

impl Error {
    /// Returns whether the peer closed the connection without a reason, or the connection was lost, except during
    /// authentication.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Peer { kind: PeerErrorKind::Closed, .. })
    }
}
