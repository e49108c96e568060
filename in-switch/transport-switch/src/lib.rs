//! [`Transport`](transport::Transport) for groups whose blocks switches copy (docs/decisions/in-switch.md).
//!
//! A group has one queue pair at its root and one at each receiver. The root's talks to a virtual
//! peer; switches between them copy its packets to all receivers, and merge their answers. Control
//! words, signs of life and closing go by TCP, endpoint by endpoint, as everything does that belongs
//! to other groups.
//!
//! The path of a block through the files: the root posts it on each of the group's endpoints
//! (`driver`), which become one message (`fanout`) on the queue pair (`queue_pair`) of a `device` or in
//! `userspace`; there it comes into memory that was posted (`group`). [`Switches`] is what puts groups
//! into switches.
//!
//! # Threads
//! None of its own: all work is done in `poll`, by the thread that calls it.
//!
//! # Trust
//! RoCEv2 has neither encryption nor authentication: any host that can send packets with a queue pair's
//! number on the network can disturb a group, or put bytes into its blocks. Numbers of queue pairs and
//! of first packets are drawn at random, so that an attacker has to see the packets.

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
mod switches;
mod userspace;
mod way;

pub use driver::SwitchTransport;
pub use error::OpenError;
pub use link::{GroupEnd, SwitchLink};
pub use mcrdma::{InsertError, Inserted, Switches};
pub use peer::{MTUS_BYTES, Member, Root};
pub use queue_pair::{QueuePair, Unconnected};
pub use switches::{Registration, Watch};

/// Receivers of a group: what a switch can copy to.
pub const RECEIVERS_MAX: usize = mcrdma::MEMBERS_MAX;
