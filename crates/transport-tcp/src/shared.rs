//! Connections that several endpoints share, each on a channel of its own
//! (docs/decisions/shared-connections.md).

use transport::{Cause, PostError};

use crate::link::{ConnectionId, TcpLink};

/// What has happened on a shared connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SharedEvent {
    /// The other end has sent a message.
    Message {
        /// Where it came.
        connection: ConnectionId,
        /// Its bytes, at most [`crate::MESSAGE_BYTES_MAX`].
        message: Vec<u8>,
    },
    /// The connection is no more, and all of its endpoints have ended.
    Ended {
        /// The connection that has ended.
        connection: ConnectionId,
        /// Why; `None` if no endpoint used it for [`crate::TcpSettings::idle_timeout`].
        cause: Option<Cause>,
    },
}

/// Connections that several endpoints share, each by a channel with a number.
pub trait SharedConnections {
    /// Makes a connection that endpoints share. Its other end has to do the same. It ends when it is lost, or was
    /// without endpoints for [`crate::TcpSettings::idle_timeout`].
    ///
    /// Errors: the link is a channel; as [`transport::Transport::open`].
    fn share(&mut self, link: TcpLink) -> Result<ConnectionId, PostError>;

    /// Reserves a channel of a shared connection: from now on the peer may use it. It has to be given to
    /// [`transport::Transport::open`] or to [`SharedConnections::release`]. The other end has to reserve the same number
    /// before this end opens it, by an agreement for which there are messages. No number may be used twice on one
    /// connection.
    ///
    /// Errors: the connection is no more; the number is 0 or in use.
    fn reserve(&mut self, connection: ConnectionId, channel: u32) -> Result<TcpLink, PostError>;

    /// Returns whether the other end has not given this reserved channel back. If it has said something on it before, it has
    /// not.
    fn is_wanted(&mut self, link: &TcpLink) -> bool;

    /// Gives a reserved channel back, as if its endpoint had been opened and closed. Any other link is closed.
    fn release(&mut self, link: TcpLink);

    /// Sends a message of 1 to [`crate::MESSAGE_BYTES_MAX`] bytes to the other end of a shared connection.
    ///
    /// Errors: its length; the connection is no more, or its peer does not read.
    fn write_message(&mut self, connection: ConnectionId, message: &[u8]) -> Result<(), PostError>;

    /// Ends a shared connection, and all of its endpoints, as its peer has broken the protocol of messages. Without effect on one that
    /// has ended.
    fn refuse(&mut self, connection: ConnectionId, why: &str);

    /// Returns whether [`SharedConnections::take_shared_events`] would return something.
    fn has_shared_events(&self) -> bool;

    /// Returns what has happened on shared connections since the last call. [`transport::Transport::poll`] returns when
    /// there is something.
    fn take_shared_events(&mut self) -> Vec<SharedEvent>;
}
