//! Entries of the completion queue, and why an endpoint or a post failed.

use memory::Copied;

use crate::endpoint::{EndpointId, Token};

/// The remedy if the system no longer lets this process read another one's memory.
const COPIES_REMEDY: &str =
    "allow it (kernel.yama.ptrace_scope, seccomp), or switch direct copies off";

/// One entry of the completion queue. See the contract at [`crate::Transport`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Completion {
    /// A posted send is done: the transport no longer uses the memory. The peer may not have
    /// received the block yet.
    Sent {
        /// The endpoint that it was posted on.
        endpoint: EndpointId,
        /// The token that it was posted with.
        token: Token,
    },
    /// The first bytes of a block are in the memory of a posted receive, and more are to come. Only
    /// where the network has [`crate::CutThroughSends`], for memory that is followed, and at most
    /// once for each receive.
    Arriving {
        /// The endpoint that the receive was posted on.
        endpoint: EndpointId,
        /// The token that it was posted with.
        token: Token,
        /// The 32 bits that the sender attached.
        immediate: u32,
    },
    /// A posted receive has been filled with a block.
    Received {
        /// The endpoint that it was posted on.
        endpoint: EndpointId,
        /// The token that it was posted with.
        token: Token,
        /// Length of the block, at most that of the posted memory.
        bytes: u64,
        /// The 32 bits that the sender attached.
        immediate: u32,
    },
    /// The peer has written into memory that was exposed to it; all bytes of the write have
    /// arrived.
    Written {
        /// The endpoint whose peer has written.
        endpoint: EndpointId,
        /// The 32 bits that the peer attached.
        immediate: u32,
    },
    /// The peer has written a control word.
    Control {
        /// The endpoint whose peer has written it.
        endpoint: EndpointId,
        /// The word; 1 to [`crate::CONTROL_BYTES_MAX`] bytes.
        word: Vec<u8>,
    },
    /// A posted operation was not completed, or only in part, because its endpoint ended.
    Cancelled {
        /// The endpoint that it was posted on.
        endpoint: EndpointId,
        /// The token that it was posted with.
        token: Token,
    },
    /// No more blocks can be transferred over this endpoint, although the peer is alive and control
    /// words are still exchanged. Posted operations stay open until the endpoint is closed, which
    /// is all that the caller can do with it. Reported at most once for an endpoint.
    Halted {
        /// The endpoint.
        endpoint: EndpointId,
        /// What happened.
        cause: Cause,
    },
    /// The endpoint ended without [`crate::Transport::close`].
    Broken {
        /// The endpoint that has ended.
        endpoint: EndpointId,
        /// The reason.
        cause: Cause,
    },
    /// The endpoint ended as [`crate::Transport::close`] asked.
    Closed {
        /// The endpoint that has ended.
        endpoint: EndpointId,
    },
}

impl Completion {
    /// Returns the endpoint that this entry concerns.
    pub fn endpoint(&self) -> EndpointId {
        match self {
            Self::Sent { endpoint, .. }
            | Self::Arriving { endpoint, .. }
            | Self::Received { endpoint, .. }
            | Self::Written { endpoint, .. }
            | Self::Control { endpoint, .. }
            | Self::Cancelled { endpoint, .. }
            | Self::Halted { endpoint, .. }
            | Self::Broken { endpoint, .. }
            | Self::Closed { endpoint } => *endpoint,
        }
    }
}

/// Why an endpoint broke.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The peer closed the connection in order.
    #[error("the peer closed the connection")]
    ClosedByPeer,
    /// The connection was reset or lost; the system's error.
    #[error("the connection was lost ({0})")]
    Lost(String),
    /// Nothing was received from the peer for this long.
    #[error("the peer was silent for {0} ms")]
    Silent(u64),
    /// The peer violated the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// Data received here or at the peer failed its integrity check: a bit flipped in transit, or
    /// an attacker on the path changed it. None of it was used.
    #[error("data was corrupted in transit ({0})")]
    Corrupt(String),
    /// Local memory could not be read or written: a file that shrank, a disk that failed.
    #[error("local memory could not be {access} ({error})")]
    Memory {
        /// `"read"`, `"written"`, `"mapped"` or `"registered"`.
        access: &'static str,
        /// The system's error.
        error: String,
    },
}

impl Cause {
    /// Returns whether a copy out of the peer's memory is whole; if not, the peer is gone, and its connection ends by itself.
    ///
    /// Errors: the peer's memory or the local memory cannot be accessed.
    pub fn check_copied(copied: Copied) -> Result<bool, Self> {
        match copied {
            Copied::Whole => Ok(true),
            Copied::Gone => Ok(false),
            Copied::BadSource => {
                Err(Self::Protocol("a block in memory that cannot be read".into()))
            }
            Copied::BadTarget => {
                let error = "its address is not mapped, or read-only".into();
                Err(Self::Memory { access: "written", error })
            }
            Copied::Refused(error) => {
                let why = format!("its memory can no longer be read: {error}; {COPIES_REMEDY}");
                Err(Self::Lost(why))
            }
        }
    }
}

/// Why a post was refused; nothing was posted, and the lease is dropped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The endpoint is closing, broken or unknown.
    #[error("endpoint {0:?} is gone")]
    EndpointGone(EndpointId),
    /// More bytes than the transport can carry in one post.
    #[error("{bytes} bytes in one post, at most {bytes_max} can be carried")]
    TooLarge {
        /// The length that was requested.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The network does not have this operation.
    #[error("this network has no {0}")]
    Unsupported(&'static str),
    /// The system refused; its error.
    #[error("{0}")]
    System(String),
}

impl PostError {
    /// Checks a length against the limit. Errors: [`PostError::TooLarge`].
    pub fn check_length(bytes: usize, bytes_max: u64) -> Result<(), Self> {
        let bytes = bytes as u64;
        if bytes > bytes_max { Err(Self::TooLarge { bytes, bytes_max }) } else { Ok(()) }
    }
}
