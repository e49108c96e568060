//! Commands of the worker about creations.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crossbeam_channel::Sender;
use session::Channel;

use super::{choice::RootChoice, joining::Joining, links::Links, messages::Asks};
use crate::{
    Error,
    network::TcpLink,
    own_link::{Offers, OwnLink},
};

/// What has happened.
pub(crate) enum Step {
    /// A group or a team is to be created.
    Begin {
        joining: Joining,
        /// Makes offers of the transport that the links are for.
        offers: Offers,
        /// How much of its timeout is left.
        left: Duration,
        reply: Reply,
    },
    /// A group was not created, after its links were made.
    Forget { number: u64 },
    /// A connection with the context at this address is to be shared; `from`: the other end of it; `dial`: if it was made here.
    Connected { link: TcpLink, address: SocketAddr, from: IpAddr, dial: Option<u64> },
    /// A link was made that has connections of its own.
    Linked { dial: u64, link: Box<OwnLink> },
    /// A context that has no connection to share has told what the root has chosen.
    Chosen { dial: u64, choice: RootChoice },
    /// A connection was not made.
    NotConnected { dial: u64, error: Error },
    /// Another context asks something on a connection of its own, with these streams.
    Requested { channels: Vec<Channel>, asks: Asks },
}

/// Who waits for a step of a creation.
pub(crate) enum Reply {
    /// The first one: what the root has chosen.
    Choice(Sender<Result<RootChoice, Error>>),
    /// The second one.
    Links(Sender<Result<Links, Error>>),
}

impl Reply {
    /// A caller that no longer waits gives the links back.
    pub(crate) fn end(self, outcome: Result<Links, Error>) {
        match (self, outcome) {
            (Self::Links(reply), outcome) => drop(reply.send(outcome)),
            (Self::Choice(reply), Err(error)) => drop(reply.send(Err(error))),
            // Links are not made in the first step.
            (Self::Choice(_), Ok(_)) => {}
        }
    }
}
