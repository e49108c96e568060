//! Queue pairs of RDMA devices through libibverbs: reliable connections to whatever peer, with
//! whatever packet numbers one wants, as groups in the switch need them.
//!
//! The library is opened when the first device is; without it, and in a build without its headers
//! ([`IS_BUILT`]), opening fails and says so. Nothing here starts threads. A [`Device`] and what
//! belongs to it can be used from one thread at a time, and moved between threads.

mod buffered;
mod device;
mod error;
mod ffi;

pub use buffered::{Buffer, BufferedQueuePair, Ended};
pub use device::{Device, Memory, QueuePair};
pub use error::VerbsError;

use std::net::IpAddr;

/// Whether this build can use RDMA devices. It takes libibverbs' headers to build it.
pub const IS_BUILT: bool = cfg!(libibverbs);

/// Works, and receives, that a queue pair can have open.
const DEPTH: u32 = 128;

/// How a queue pair is connected. Nobody asks the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The peer's address.
    pub peer: IpAddr,
    /// Its queue pair.
    pub peer_qpn: u32,
    /// Number of the first packet that goes out.
    pub send_psn: u32,
    /// Number of the first packet that comes in.
    pub receive_psn: u32,
    /// Payload of a packet: 256, 512, 1024, 2048 or 4096 bytes.
    pub mtu_bytes: u32,
    /// Code of the time without an answer after which packets are sent again: 4.096 µs times two to
    /// this power.
    pub timeout: u8,
    /// How often in a row; 7 is for ever on some devices.
    pub retries: u8,
    /// How often in a row a receiver may say that it is not ready; 7 is for ever.
    pub not_ready_retries: u8,
    /// Code of the time after which a peer is to try again where no receive is posted.
    pub not_ready_timer: u8,
}

/// What a queue pair does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// To where the peer has posted a receive.
    Send,
    /// To the peer's memory.
    Write {
        /// The address there.
        address: u64,
        /// The key of that memory.
        key: u32,
    },
}

/// Something that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The caller's name for it.
    pub id: u64,
    /// The queue pair.
    pub qpn: u32,
    /// How it ended.
    pub status: Status,
    /// What it was, if it ended well.
    pub event: Option<Event>,
}

/// What has ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The peer has acknowledged the message.
    Sent,
    /// A message is in the memory of a posted receive.
    Received {
        /// Its length.
        bytes: u32,
        /// What came with it.
        immediate: Option<u32>,
    },
    /// The peer has written memory, and said so with an immediate.
    Written {
        /// How much.
        bytes: u32,
        /// What came with it.
        immediate: Option<u32>,
    },
}

/// How something ended (`ibv_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Well.
    Done,
    /// The connection had failed before.
    Flushed,
    /// The peer does not know such a request.
    RemoteInvalidRequest,
    /// The peer does not allow it.
    RemoteAccess,
    /// The peer has failed.
    RemoteOperation,
    /// Nobody answered.
    NoAnswer,
    /// The peer was not ready, each time.
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
