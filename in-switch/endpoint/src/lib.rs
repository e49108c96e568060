//! Queue pairs of RoCEv2's reliable connections in userspace, on packet sockets: for hosts without an RDMA
//! device, network namespaces, and fault injection.
//!
//! Interoperates with devices, rdma_rxe among them. The protocol's state machines are in `roce::rc`; frames,
//! memory, and neighbour resolution are here.
//!
//! ```no_run
//! use std::time::Duration;
//! use endpoint::{Endpoint, Peer};
//! use roce::rc::{Kind, RequesterConfig, Work};
//!
//! let mut endpoint = Endpoint::open("eth0", "10.0.0.1".parse()?)?;
//! let peer = Peer { address: "10.0.0.2".parse()?, qpn: 0x80_0001, next_hop: None };
//! let queue_pair = endpoint.queue_pair(peer, RequesterConfig::default(), 100, 100);
//! let work = Work { id: 1, kind: Kind::Send, bytes: 5, immediate: None };
//! endpoint.send(queue_pair, work, b"hello")?;
//! while endpoint.completed().is_none() {
//!     endpoint.progress(Duration::from_millis(10))?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One thread drives an [`Endpoint`]; all I/O is done in [`Endpoint::progress`].

mod driver;
mod egress;
mod faults;
mod neighbours;
mod queue_pair;

pub use driver::Endpoint;
pub use faults::Faults;

use std::{io, net::IpAddr};

use packet_socket::InterfaceError;
use roce::rc::{Arrival, Status, WorkRefused};

/// A queue pair's peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair.
    pub qpn: u32,
    /// The next router, if the peer is not on the link.
    pub next_hop: Option<IpAddr>,
}

/// A completion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Of a message that was sent.
    Sent {
        /// The local queue pair.
        qpn: u32,
        /// The work's `id`.
        id: u64,
        /// How it ended.
        status: Status,
    },
    /// Of a message that was received.
    Arrived {
        /// The local queue pair.
        qpn: u32,
        /// The message, and the receive that it consumed.
        arrival: Arrival,
        /// The memory of that receive, with the message.
        memory: Vec<u8>,
    },
}

/// Counters of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests sent, with retransmissions.
    pub requests_sent: u64,
    /// Retransmissions.
    pub requests_repeated: u64,
    /// Requests received.
    pub requests_received: u64,
    /// Answers sent.
    pub answers_sent: u64,
    /// Answers received.
    pub answers_received: u64,
    /// CNPs received.
    pub notifications_received: u64,
    /// Packets dropped: with a wrong ICRC, or not from the peer.
    pub refused: u64,
    /// Faults injected: packets lost, duplicated, reordered, corrupted or marked.
    pub faults_injected: u64,
}

/// Why an operation of an endpoint failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The interface.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// I/O on the interface failed.
    #[error("interface {name}: {source}")]
    Failed {
        /// Its name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such queue pair.
    #[error("there is no queue pair {qpn:#x} here")]
    QueuePair {
        /// Its number.
        qpn: u32,
    },
    /// The work's length is not that of its bytes.
    #[error("a message of {work} bytes was given {given}")]
    Length {
        /// The work's length.
        work: u32,
        /// The length of its bytes.
        given: usize,
    },
    /// The work was refused.
    #[error(transparent)]
    Work(#[from] WorkRefused),
}
