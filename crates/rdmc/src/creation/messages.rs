//! What contexts say to each other when links are made.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::terms::Terms;
use crate::{ContextSettings, Fabric, Protection};

/// What a context says first on each stream of a connection that it has made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The same for all streams of one connection: a random number.
    pub(crate) id: [u8; 16],
    pub(crate) stream: u8,
    /// How many streams the connection has.
    pub(crate) streams: u8,
    /// On the first stream, which also has the answer.
    pub(crate) asks: Option<Asks>,
}

/// What a connection is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Asks {
    /// It is the link of one group.
    Link(Request),
    /// It is offered to be shared among groups. After a [`Response::Apart`] a request for a link follows.
    Share {
        sharing: Sharing,
        /// At which others connect to the context that has made the connection.
        address: SocketAddr,
    },
}

/// Asks for the link of a group or a team.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The number of the group or team.
    pub group: u64,
    /// The rank of the member that asks.
    pub from: u32,
    /// The rank of the member that is asked.
    pub to: u32,
    /// A random number, which tells the context that asks from others at its address.
    pub context: u128,
    /// Grows with each request of the context.
    pub attempt: u64,
    /// What has to be the same at all members.
    pub terms: Terms,
    /// The offer of the fabric's transport for its end of the link.
    pub offer: Vec<u8>,
    /// How long the member waits.
    pub timeout_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    Accepted {
        offer: Vec<u8>,
    },
    Refused(String),
    /// The connection is shared.
    Shared,
    /// Connections are not shared there, or not such as these.
    Apart,
}

/// What the two ends of a shared connection say to each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Asks for a channel, which its sender has reserved, as the link of a group.
    Asks {
        /// The channel's number.
        channel: u32,
        /// The link.
        request: Request,
    },
    /// The channel is the link.
    Accepts {
        /// The channel's number.
        channel: u32,
    },
    /// The channel is not the link.
    Refuses {
        /// The channel's number.
        channel: u32,
        /// Why not.
        cause: String,
    },
    /// The channel is no longer wanted, by the end that has asked for it or by the other one.
    Withdraws {
        /// The channel's number.
        channel: u32,
    },
}

/// Which connections a context shares; another context's have to be alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Sharing {
    pub(crate) streams: u8,
    /// Whether payload is encrypted; it is authenticated in any case.
    is_encrypted: bool,
}

impl Sharing {
    /// Returns what contexts of these settings share; `None` if it is nothing.
    pub(crate) fn of(settings: &ContextSettings) -> Option<Self> {
        let is_encrypted = match settings.protection {
            Protection::None => return None,
            Protection::Authenticate => false,
            Protection::Encrypt => true,
        };
        (settings.fabric == Fabric::Tcp).then_some(Self { streams: settings.streams, is_encrypted })
    }

    pub(crate) fn protection(self) -> Protection {
        if self.is_encrypted { Protection::Encrypt } else { Protection::Authenticate }
    }
}
