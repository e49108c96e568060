//! Context for posting, and the reasons why posting stops.

use crate::native::{
    device::Device,
    link::{ops::Ops, paths::Paths},
    ring::Ring,
    sys::Errno,
};

/// The part of a datagram's tag besides the link's number.
pub const DATA_TAG: u64 = 1;
pub const CONTROL_TAG: u64 = 2;
/// The same for an offloaded block, whose tag also has its immediate.
pub const OFFLOAD_TAG: u64 = 3;

/// Context for posting blocks and writes.
pub struct Posting<'a> {
    pub paths: &'a Paths,
    pub ops: &'a mut Ops,
    /// For notes to the peer.
    pub ring: &'a mut Ring,
    pub devices: &'a [Device],
}

/// Why nothing more could be posted.
pub enum Trouble {
    /// The provider has refused the post, temporarily or permanently.
    Refused(Errno),
    /// Memory cannot be registered; the reason.
    Memory(String),
    /// The post violates the protocol; how.
    Protocol(String),
}
