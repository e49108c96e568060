//! A host's end of RoCEv2's reliable connections where there is no RDMA device: queue pairs in
//! userspace, on packet sockets. For speed in network namespaces, and to inject faults.
//!
//! What is on the wire is what devices say: it talks to the kernel's (rdma_rxe) and to others. The
//! state machines are those of `roce::rc`; here are frames, memory, and neighbours.
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
//! endpoint.send(queue_pair, work, b"hello"[..].into())?;
//! while endpoint.completed().is_none() {
//!     endpoint.progress(Duration::from_millis(10))?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One thread drives an [`Endpoint`]; nothing happens but in [`Endpoint::progress`].

mod driver;
mod faults;
mod neighbours;
mod queue_pair;

pub use driver::Endpoint;
pub use faults::Faults;

use std::{io, net::IpAddr};

use packet_socket::InterfaceError;
use roce::rc::{Arrival, Status, WorkRefused};

/// Whom a queue pair talks to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair.
    pub qpn: u32,
    /// Whose Ethernet address frames go to, if the peer is behind a router.
    pub next_hop: Option<IpAddr>,
}

/// Something that has ended at a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A message of ours.
    Sent {
        /// Of our queue pairs.
        qpn: u32,
        /// The caller's name for it.
        id: u64,
        /// How it ended.
        status: Status,
    },
    /// A message of the peer's.
    Arrived {
        /// Of our queue pairs.
        qpn: u32,
        /// What it was, and the receive that it took.
        arrival: Arrival,
        /// The memory of that receive, with what came.
        memory: Vec<u8>,
    },
}

/// What an endpoint counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests that went out, repeated ones included.
    pub requests_sent: u64,
    /// Of these, those that had been sent before.
    pub requests_repeated: u64,
    /// Requests that came.
    pub requests_received: u64,
    /// Answers that went out.
    pub answers_sent: u64,
    /// Answers that came.
    pub answers_received: u64,
    /// Congestion notifications that came.
    pub notifications_received: u64,
    /// Packets for us with a wrong CRC, or from another than the peer.
    pub refused: u64,
    /// Packets that faults took, doubled, delayed or damaged.
    pub faults_injected: u64,
}

/// Why an endpoint does not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The interface.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// It failed while it was used.
    #[error("interface {name}: {source}")]
    Failed {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// There is no such queue pair.
    #[error("there is no queue pair {qpn:#x} here")]
    QueuePair {
        /// Its number.
        qpn: u32,
    },
    /// The message and its bytes do not fit.
    #[error("a message of {said} bytes was given {given}")]
    Length {
        /// What the message says.
        said: u32,
        /// How many there are.
        given: usize,
    },
    /// The message was not taken.
    #[error(transparent)]
    Work(#[from] WorkRefused),
}
