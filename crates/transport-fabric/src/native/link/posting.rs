//! What is needed to post, and why posting stops.

use crate::native::{
    device::Device,
    link::{ops::Ops, paths::Paths},
    ring::Ring,
    sys::Errno,
};

/// What tags of datagrams contain, beside the link's number.
pub const DATA_TAG: u64 = 1;
pub const CONTROL_TAG: u64 = 2;
/// Below the immediate of an offloaded block.
pub const OFFLOAD_TAG: u64 = 3;

/// What blocks and writes are posted with.
pub struct Posting<'a> {
    pub paths: &'a Paths,
    pub ops: &'a mut Ops,
    /// For notes to the peer.
    pub ring: &'a mut Ring,
    pub devices: &'a [Device],
}

/// Why nothing more could be posted.
pub enum Trouble {
    /// The provider has refused: for now, or for good.
    Refused(Errno),
    /// Memory cannot be registered; in words.
    Memory(String),
    /// What was asked for breaks the rules; in words.
    Protocol(String),
}
