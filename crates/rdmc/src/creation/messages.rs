//! What contexts say to each other when links are made.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use transport_tcp::ConnectionId;

use super::{
    choice::{Question, RootChoice},
    terms::Terms,
};
use crate::{ContextSettings, Fabric, Protection};

/// What a context says first on a connection that it has made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Hello {
    /// Asks for a link of one group.
    Link(Request),
    /// Offers to share the connection among groups. After a [`Response::Apart`] another hello follows.
    Share(ShareRequest),
    /// Asks for the root's choice; nothing follows the answer.
    Choice(Question),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) group: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) stream: u8,
    pub(crate) terms: Terms,
    /// The offer of the fabric's transport for its end of the link.
    pub(crate) offer: Vec<u8>,
    pub(crate) timeout_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ShareRequest {
    /// The same for all streams of one connection.
    pub(crate) id: [u8; 16],
    pub(crate) stream: u8,
    pub(crate) sharing: Sharing,
    /// At which others connect to the context that has made the connection.
    pub(crate) address: SocketAddr,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    Accepted {
        offer: Vec<u8>,
    },
    Refused(String),
    /// The connection is shared as soon as all of its streams are there.
    Shared,
    /// Connections are not shared there, or not such as these.
    Apart,
    Chose(RootChoice),
}

/// What the two ends of a shared connection say to each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Asks for a channel, which its sender has reserved, as the link of a group.
    Asks {
        channel: u32,
        request: Request,
    },
    Accepts {
        channel: u32,
    },
    Refuses {
        channel: u32,
        cause: String,
    },
    /// The channel, or an answer of this number, is no longer wanted.
    Withdraws {
        channel: u32,
    },
    /// Asks for the root's choice. The answer has this number, which is that of no channel.
    AsksChoice {
        channel: u32,
        question: Question,
    },
    Chose {
        channel: u32,
        choice: RootChoice,
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

/// A message for the worker to send.
pub(crate) struct Post {
    pub(crate) connection: ConnectionId,
    pub(crate) message: Message,
}
