//! What contexts say to each other when links are made.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{
    choice::{Question, RootChoice},
    terms::Terms,
};
use crate::{ContextSettings, Fabric, Protection};

/// Length to which the text is cut by which another member refuses something.
pub(crate) const CAUSE_CHARS_MAX: usize = 1_000;

/// What a context says first on each stream of a connection that it has made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The same for all streams of one connection: a random number.
    pub(crate) id: [u8; 16],
    pub(crate) stream: u8,
    /// How many streams the connection has.
    pub(crate) streams: u8,
    /// On the first stream, which also has the answer.
    pub(crate) purpose: Option<Purpose>,
}

/// What a connection is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// This one question, and the link if that is asked for.
    Own(Asks),
    /// It is offered to be shared among groups. After a [`Response::Apart`] [`Purpose::Own`] follows.
    Share {
        sharing: Sharing,
        /// At which others connect to the context that has made the connection.
        address: SocketAddr,
        /// The offer of shared memory in its place.
        offer: Vec<u8>,
    },
}

/// What a member asks another one when a group or a team is created.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Asks {
    /// For the link between them.
    Link(Request),
    /// What the root has chosen.
    Choice(Question),
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
    Shared {
        /// The answer to the offer of shared memory.
        offer: Vec<u8>,
    },
    /// Connections are not shared there, or not such as these.
    Apart,
    Chose(RootChoice),
}

/// What the two ends of a shared connection say to each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Asks something. The answer has the same number, and if a link is asked for, it is this channel, which the sender has reserved.
    Asks {
        /// The channel's number.
        channel: u32,
        /// What is asked.
        asks: Asks,
    },
    /// The channel is the link.
    Accepts {
        /// The channel's number.
        channel: u32,
    },
    /// The root of the group has chosen this.
    Chose {
        /// The channel's number.
        channel: u32,
        /// What it has chosen.
        choice: RootChoice,
    },
    /// The channel is not the link, or the question is refused.
    Refuses {
        /// The channel's number.
        channel: u32,
        /// Why not.
        cause: String,
    },
    /// The link or the answer is no longer wanted, by the end that has asked for it or by the other one.
    Withdraws {
        /// The channel's number.
        channel: u32,
    },
}

/// Which connections a context shares; another context's have to be alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Sharing {
    pub(crate) streams: u8,
    pub(crate) protection: Protection,
}

/// Returns the text of another member without control characters, and not too long.
pub(crate) fn shortened(cause: &str) -> String {
    cause.chars().filter(|character| !character.is_control()).take(CAUSE_CHARS_MAX).collect()
}

impl Asks {
    /// The number of the group or team.
    pub fn group(&self) -> u64 {
        match self {
            Self::Link(request) => request.group,
            Self::Choice(question) => question.group,
        }
    }

    /// The rank of the member that asks.
    pub(crate) fn from(&self) -> u32 {
        match self {
            Self::Link(request) => request.from,
            Self::Choice(question) => question.from,
        }
    }

    /// The rank of the member that is asked.
    pub fn to(&self) -> u32 {
        match self {
            Self::Link(request) => request.to,
            Self::Choice(question) => question.to,
        }
    }

    /// How long the member waits, in milliseconds.
    pub(crate) fn timeout_ms(&self) -> u64 {
        match self {
            Self::Link(request) => request.timeout_ms,
            Self::Choice(question) => question.timeout_ms,
        }
    }

    /// How many streams a connection for this alone has.
    pub(crate) fn streams(&self) -> u8 {
        match self {
            Self::Link(request) => request.terms.streams(),
            Self::Choice(_) => 1,
        }
    }
}

impl Sharing {
    /// Returns what contexts of these settings share; `None` if it is nothing.
    pub(crate) fn of(settings: &ContextSettings) -> Option<Self> {
        let (streams, protection) = (settings.streams, settings.tcp_protection());
        (settings.fabric == Fabric::Tcp).then_some(Self { streams, protection })
    }
}
