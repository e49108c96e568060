//! [`Transport`](transport::Transport) for groups whose blocks switches copy (docs/decisions/in-switch.md).
//!
//! A group has one queue pair at its root and one at each receiver. The root's is connected to a
//! virtual peer; switches on the path copy its packets to all receivers, and merge their answers.
//! Control words, heartbeats and closing use TCP, endpoint by endpoint, as does everything that
//! belongs to other groups.
//!
//! The path of a block through the files: the root posts it on each of the group's endpoints
//! (`driver`); these posts become one message (`fanout`) on the queue pair (`queue_pair`) of a
//! `device` or in `userspace`, which send from its memory and at a receiver put it into the memory
//! that is posted (`group`).
//! [`Switches`] adds groups to switches.
//!
//! # Threads
//! The transport has no threads: all work is done in `poll`, by the thread that calls it.
//!
//! # Trust
//! RoCEv2 has neither encryption nor authentication: any host that can send packets with a queue
//! pair's number on the network can disturb a group, or insert bytes into its blocks. Numbers of
//! queue pairs and of first packets are random, so that only an attacker that captures packets can
//! find them.

#![forbid(unsafe_code)]

mod completion;
mod device;
mod driver;
mod error;
mod fanout;
mod group;
mod link;
mod peer;
mod queue_pair;
mod suspects;
mod switches;
mod userspace;
mod way;

pub use driver::SwitchTransport;
pub use error::OpenError;
pub use link::{GroupEnd, SwitchLink};
pub use mcrdma::{Delegates, InsertError, Inserted, Suspicion, Switches};
pub use peer::{MTUS_BYTES, Member, Root};
pub use queue_pair::{QueuePair, Unconnected};
pub use switches::{Registration, Watch};

/// The most receivers of a group that a switch can copy to.
pub const RECEIVERS_MAX: usize = mcrdma::MEMBERS_MAX;
