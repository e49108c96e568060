//! Messages between a test and the processes of its members, over a pair of sockets.

use std::{
    io::{self, Read, Write},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use transport::{Cause, Completion, EndpointId, PostError, Token};

/// A request to a member. Bytes follow it in the frame, if it has any.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Where it is.
    Start,
    /// Drop the transport.
    End,
    /// Make an offer, and wait for a connection.
    Listen,
    /// Connect to the peer; its offer.
    Dial,
    /// Accept the awaited connection; the peer's answer.
    Accept,
    Receive {
        endpoint: u64,
        bytes: u64,
        token: u64,
    },
    /// The block, unless it is longer than what can be sent.
    Send {
        endpoint: u64,
        bytes: u64,
        immediate: u32,
        token: u64,
    },
    /// The block.
    Write {
        endpoint: u64,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: u64,
    },
    /// The memory.
    Expose {
        endpoint: u64,
        key: u32,
    },
    /// The word.
    Word {
        endpoint: u64,
    },
    Close {
        endpoint: u64,
    },
    Flush,
    Poll {
        wait: Duration,
    },
    /// The only request without an answer: it takes effect during another request.
    Wake,
}

/// An answer of a member.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Ended,
    Started {
        block_bytes_max: u64,
        can_write: bool,
    },
    /// And the offer.
    Listening,
    /// And the answer, at the end that has connected.
    Opened {
        endpoint: u64,
    },
    Posted(Result<(), Refusal>),
    Closed,
    /// And the bytes of the events that have some, one after the other.
    Polled(Vec<Event>),
}

/// A [`Completion`], and the changes of memory.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event {
    Sent {
        endpoint: u64,
        token: u64,
    },
    /// Has bytes.
    Received {
        endpoint: u64,
        token: u64,
        bytes: u64,
        immediate: u32,
    },
    Control {
        endpoint: u64,
        word: Vec<u8>,
    },
    /// Memory that was exposed and was written to; has bytes. Precedes the report of the write.
    Memory {
        endpoint: u64,
        key: u32,
        bytes: u64,
    },
    Written {
        endpoint: u64,
        immediate: u32,
    },
    Cancelled {
        endpoint: u64,
        token: u64,
    },
    Broken {
        endpoint: u64,
        why: Why,
    },
    Closed {
        endpoint: u64,
    },
}

/// [`Cause`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Why {
    ClosedByPeer,
    Lost(String),
    Silent(u64),
    Protocol(String),
    Other(String),
}

/// [`PostError`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Refusal {
    EndpointGone(u64),
    TooLarge { bytes: u64, bytes_max: u64 },
    Unsupported,
    System(String),
}

/// Sends a head and the bytes that belong to it.
pub fn write(stream: &mut impl Write, head: &impl Serialize, bytes: &[u8]) -> io::Result<()> {
    let head = postcard::to_stdvec(head).map_err(io::Error::other)?;
    let lengths = [head.len() as u64, bytes.len() as u64].map(u64::to_le_bytes);
    stream.write_all(&[lengths.as_flattened(), &head].concat())?;
    stream.write_all(bytes)
}

/// Receives the next head and its bytes. Errors: the other process has ended, or is late.
pub fn read<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<(T, Vec<u8>)> {
    let mut part = |bytes: u64| {
        let mut part = vec![0; bytes as usize];
        stream.read_exact(&mut part).map(|()| part)
    };
    let lengths = part(16)?;
    let (lengths, _) = lengths.as_chunks::<8>();
    let head = part(u64::from_le_bytes(lengths[0]))?;
    let head = postcard::from_bytes(&head).map_err(io::Error::other)?;
    Ok((head, part(u64::from_le_bytes(lengths[1]))?))
}

impl From<Completion> for Event {
    fn from(completion: Completion) -> Self {
        let (endpoint_of, token_of) = (|endpoint: EndpointId| endpoint.0, |token: Token| token.0);
        match completion {
            Completion::Sent { endpoint, token } => {
                Self::Sent { endpoint: endpoint_of(endpoint), token: token_of(token) }
            }
            Completion::Received { endpoint, token, bytes, immediate } => {
                let (endpoint, token) = (endpoint_of(endpoint), token_of(token));
                Self::Received { endpoint, token, bytes, immediate }
            }
            Completion::Control { endpoint, word } => {
                Self::Control { endpoint: endpoint_of(endpoint), word }
            }
            Completion::Written { endpoint, immediate } => {
                Self::Written { endpoint: endpoint_of(endpoint), immediate }
            }
            Completion::Cancelled { endpoint, token } => {
                Self::Cancelled { endpoint: endpoint_of(endpoint), token: token_of(token) }
            }
            Completion::Broken { endpoint, cause } => {
                Self::Broken { endpoint: endpoint_of(endpoint), why: cause.into() }
            }
            Completion::Closed { endpoint } => Self::Closed { endpoint: endpoint_of(endpoint) },
            other => panic!("{other:?} is new here"),
        }
    }
}

impl From<Cause> for Why {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::ClosedByPeer => Self::ClosedByPeer,
            Cause::Lost(why) => Self::Lost(why),
            Cause::Silent(timeout_ms) => Self::Silent(timeout_ms),
            Cause::Protocol(what) => Self::Protocol(what),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<Why> for Cause {
    fn from(why: Why) -> Self {
        match why {
            Why::ClosedByPeer => Self::ClosedByPeer,
            Why::Lost(why) => Self::Lost(why),
            Why::Silent(timeout_ms) => Self::Silent(timeout_ms),
            Why::Protocol(what) => Self::Protocol(what),
            Why::Other(error) => Self::Memory { access: "used", error },
        }
    }
}

impl From<PostError> for Refusal {
    fn from(error: PostError) -> Self {
        match error {
            PostError::EndpointGone(endpoint) => Self::EndpointGone(endpoint.0),
            PostError::TooLarge { bytes, bytes_max } => Self::TooLarge { bytes, bytes_max },
            PostError::Unsupported(_) => Self::Unsupported,
            other => Self::System(other.to_string()),
        }
    }
}

impl From<Refusal> for PostError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::EndpointGone(endpoint) => Self::EndpointGone(EndpointId(endpoint)),
            Refusal::TooLarge { bytes, bytes_max } => Self::TooLarge { bytes, bytes_max },
            Refusal::Unsupported => Self::Unsupported("such a thing"),
            Refusal::System(why) => Self::System(why),
        }
    }
}
