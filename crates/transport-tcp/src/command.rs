//! What the thread that owns a transport asks of one that serves streams for it.

use std::time::Duration;

use transport::{ArrivingRead, Cause, EndpointId, ReadLease, Token, WriteLease};

use crate::{
    byte_stream::ByteStream,
    connections::{Connections, Streams},
    link::ConnectionId,
    stream::NewStream,
};

/// A call of [`crate::connections::Connections`], to be made by another thread, in the order in which they were given.
#[derive(Debug)]
pub enum Command<S> {
    /// Makes a connection of one endpoint.
    Open {
        /// The connection.
        connection: ConnectionId,
        /// Its only endpoint.
        endpoint: EndpointId,
        /// Those of its streams that are served there.
        streams: Vec<NewStream<S>>,
    },
    /// Makes a connection that endpoints share.
    Share {
        /// The connection.
        connection: ConnectionId,
        /// Those of its streams that are served there.
        streams: Vec<NewStream<S>>,
    },
    /// Reserves a channel.
    Reserve {
        /// The connection.
        connection: ConnectionId,
        /// The channel's number.
        channel: u32,
        /// Its endpoint.
        endpoint: EndpointId,
    },
    /// Opens a reserved channel.
    OpenReserved(EndpointId),
    /// Gives a reserved channel back.
    Release(EndpointId),
    /// Posts a receive.
    Receive {
        /// The endpoint to post on.
        endpoint: EndpointId,
        /// The memory.
        into: WriteLease,
        /// Of the completion.
        token: Token,
    },
    /// Posts a send.
    Send {
        /// The endpoint to post on.
        endpoint: EndpointId,
        /// The memory.
        from: Outbound,
        /// For the peer.
        immediate: u32,
        /// Of the completion.
        token: Token,
    },
    /// Closes an endpoint.
    Close(EndpointId),
    /// Ends an endpoint that has failed elsewhere.
    Fail {
        /// The endpoint.
        endpoint: EndpointId,
        /// The reason.
        cause: Cause,
    },
    /// Ends a shared connection that has ended elsewhere.
    End {
        /// The connection.
        connection: ConnectionId,
        /// Why; `None` if it was not used.
        cause: Option<Cause>,
    },
}

impl<S: ByteStream> Command<S> {
    /// Makes the call. Posts for an endpoint that has ended there are cancelled.
    pub fn carry_out(self, connections: &mut Connections<S>, now: Duration) {
        match self {
            Self::Open { connection, endpoint, streams } => {
                connections.open(connection, endpoint, Streams::Part(streams), now);
            }
            Self::Share { connection, streams } => {
                connections.share(connection, Streams::Part(streams), now);
            }
            Self::Reserve { connection, channel, endpoint } => {
                if let Err(error) = connections.reserve(connection, channel, endpoint) {
                    connections.refuse_endpoint(endpoint, &error);
                }
            }
            Self::OpenReserved(endpoint) => {
                if let Err(error) = connections.open_reserved(endpoint) {
                    connections.refuse_endpoint(endpoint, &error);
                }
            }
            Self::Release(endpoint) => connections.release(endpoint, now),
            Self::Receive { endpoint, into, token } => {
                let posted = connections.post_receive(endpoint, into, token);
                if posted.is_err() {
                    connections.cancel(endpoint, token);
                }
            }
            Self::Send { endpoint, from, immediate, token } => {
                let posted = match from {
                    Outbound::Whole(lease) => {
                        connections.post_send(endpoint, lease, immediate, token)
                    }
                    Outbound::Arriving(read) => {
                        connections.post_cut_through_send(endpoint, read, immediate, token)
                    }
                };
                if posted.is_err() {
                    connections.cancel(endpoint, token);
                }
            }
            Self::Close(endpoint) => connections.close(endpoint, now),
            Self::Fail { endpoint, cause } => connections.fail(endpoint, cause, now),
            Self::End { connection, cause } => connections.end_connection(connection, cause),
        }
    }
}

/// Memory to send.
#[derive(Debug)]
pub enum Outbound {
    /// All of it can be sent.
    Whole(ReadLease),
    /// It is still being received.
    Arriving(ArrivingRead),
}

impl Outbound {
    /// Returns its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Whole(lease) => lease.bytes(),
            Self::Arriving(read) => read.bytes(),
        }
    }
}
