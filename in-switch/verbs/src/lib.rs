//! Queue pairs of RDMA devices through libibverbs: reliable connections to a given peer queue pair, with given
//! packet numbers, as groups in switches need them.
//!
//! The library is opened with the first device; without it, and in a build without its headers
//! ([`IS_BUILT`]), that fails with [`VerbsError::Library`]. Nothing here starts threads. A [`Device`] and its
//! objects can be used from one thread at a time, and moved between threads.

mod buffered;
mod device;
mod error;
mod ffi;
mod registrar;

pub use buffered::{BufferedQueuePair, Ended};
pub use device::{Device, Memory, QueuePair};
pub use error::VerbsError;

use std::net::IpAddr;

/// Whether this build can use RDMA devices: it was built with libibverbs' headers.
pub const IS_BUILT: bool = cfg!(libibverbs);

/// Sends, and receives, that a queue pair can have outstanding.
const DEPTH: u32 = 128;

/// Parameters of a connection. There is no handshake with the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The peer's address.
    pub peer: IpAddr,
    /// Its queue pair.
    pub peer_qpn: u32,
    /// PSN of the first packet sent.
    pub send_psn: u32,
    /// PSN of the first packet received.
    pub receive_psn: u32,
    /// Payload of a packet: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu_bytes: u32,
    /// Retransmission timeout code: 4.096 µs times two to this power.
    pub timeout: u8,
    /// Timeouts in a row before the connection fails; 7 is unlimited on some devices.
    pub retries: u8,
    /// RNR NAKs in a row before the connection fails; 7 is unlimited.
    pub not_ready_retries: u8,
    /// RNR timer code, for the peer.
    pub not_ready_timer: u8,
}

/// The operation of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// SEND, to a posted receive of the peer.
    Send,
    /// WRITE, to the peer's memory.
    Write {
        /// The address there.
        address: u64,
        /// The key of that memory.
        key: u32,
    },
}

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The work's `id`.
    pub id: u64,
    /// The queue pair.
    pub qpn: u32,
    /// Its status.
    pub status: Status,
    /// The operation, if it succeeded.
    pub event: Option<Event>,
}

/// A successful operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The peer has acknowledged the message.
    Sent,
    /// A message is in the memory of a posted receive.
    Received {
        /// Its length.
        bytes: u32,
        /// The immediate, if any.
        immediate: Option<u32>,
    },
    /// The peer has written memory, with an immediate.
    Written {
        /// Bytes written.
        bytes: u32,
        /// The immediate, if any.
        immediate: Option<u32>,
    },
}

/// Status of a completion (`ibv_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Success.
    Done,
    /// Flushed: the connection had failed before.
    Flushed,
    /// Remote invalid request error.
    RemoteInvalidRequest,
    /// Remote access error.
    RemoteAccess,
    /// Remote operation error.
    RemoteOperation,
    /// Retries exceeded without an answer.
    NoAnswer,
    /// RNR retries exceeded.
    NeverReady,
    /// Another one of libibverbs' codes.
    Other(u32),
}

impl Status {
    const fn new(code: u32) -> Self {
        match code {
            0 => Self::Done,
            5 => Self::Flushed,
            9 => Self::RemoteInvalidRequest,
            10 => Self::RemoteAccess,
            11 => Self::RemoteOperation,
            12 => Self::NoAnswer,
            13 => Self::NeverReady,
            other => Self::Other(other),
        }
    }
}
