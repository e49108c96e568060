//! What a creation needs of the network, and what it asks its owner to do.

use std::{net::SocketAddr, time::Duration};

use transport_tcp::ConnectionId;

use super::{
    choice::RootChoice,
    messages::{Asks, Message},
};
use crate::Error;

/// What links consist of.
pub trait Medium {
    /// A reserved channel of a shared connection; given back when it is dropped.
    type Channel;
    /// A link that has connections of its own; they are closed when it is dropped.
    type Own;
}

/// The network, as far as creations need it at once.
pub trait Reserve<M: Medium> {
    /// Reserves a channel of a shared connection. Does not block.
    ///
    /// Errors: why it cannot be reserved, such as that the connection is no more.
    fn reserve(&mut self, connection: ConnectionId, channel: u32) -> Result<M::Channel, String>;

    /// Returns whether the other end has not given the link back, without having begun with its group. Does not block.
    fn is_open(&mut self, link: &Wire<M>) -> bool;
}

/// A link to a neighbour, on which both ends have agreed.
pub enum Wire<M: Medium> {
    /// A channel of a shared connection.
    Shared(M::Channel),
    /// It has connections of its own.
    Own(M::Own),
}

/// What has to be done, in this order. None of it may be left out.
pub enum Effect<M: Medium> {
    /// Connect to the context at this address, for at most `timeout`, and tell with
    /// [`super::creations::Creations::connected`], `linked`, `chosen` or `not_connected`.
    Connect {
        /// Names it in the answer.
        dial: u64,
        /// Where the other context listens.
        address: SocketAddr,
        /// At which others connect to this context.
        own: SocketAddr,
        /// How long it may take.
        timeout: Duration,
        /// Whether to offer that the connection is shared. If not, or if the other context does not share it, `asks` is
        /// asked on it.
        shares: bool,
        /// What is asked on a connection that is not shared.
        asks: Asks,
    },
    /// Nobody waits for this connection any more; no answer is needed.
    Interrupt {
        /// Its number.
        dial: u64,
    },
    /// Send this on a shared connection. If that cannot be done the connection is lost, or will be.
    Send {
        /// The connection to send it on.
        connection: ConnectionId,
        /// The message to send.
        message: Message,
    },
    /// Answer what was asked on a connection of its own. If a link is granted, tell with
    /// [`super::creations::Creations::placed`] or `taken_back`.
    Answer {
        /// As it was given with the request.
        ask: u64,
        /// The group or team.
        number: u64,
        /// What the root has chosen if that was asked, or that the link is granted (`None`), or why not.
        answer: Result<Option<RootChoice>, String>,
    },
    /// This is what the root has chosen, the end of the first step of a creation.
    Chosen {
        /// The group.
        number: u64,
        /// What it has chosen.
        choice: RootChoice,
    },
    /// The creation has ended.
    End {
        /// The group or team.
        number: u64,
        /// The link to each neighbour, by rank, or the first error.
        outcome: Result<Vec<(u32, Wire<M>)>, Error>,
    },
}
