//! What the worker is told of creations.

use std::{net::SocketAddr, time::Duration};

use crossbeam_channel::Sender;

use super::{joining::Joining, links::Links, messages::Request};
use crate::{
    Error,
    network::{Offers, OwnLink, TcpLink},
};

/// What has happened.
pub(crate) enum Step {
    /// A group or a team is to be created.
    Begin {
        joining: Box<Joining>,
        /// Makes offers of the transport that the links are for.
        offers: Offers,
        timeout: Duration,
        reply: Sender<Result<Links, Error>>,
    },
    /// A connection with the context at this address is to be shared; `dial`: if it was made here.
    Connected { link: TcpLink, address: SocketAddr, dial: Option<u64> },
    /// A link was made that has connections of its own.
    Linked { dial: u64, link: Box<OwnLink> },
    /// A connection was not made.
    NotConnected { dial: u64, error: Error },
    /// Another context asks for a link that has connections of its own.
    Requested {
        ask: u64,
        peer: SocketAddr,
        request: Request,
        reply: Sender<Result<Offers, String>>,
    },
    /// The link of a request that was granted is there.
    Placed { ask: u64, link: Box<OwnLink> },
    /// The request is no longer made.
    TakenBack { ask: u64 },
}
