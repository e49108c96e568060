//! Peers that queue pairs are connected to.

use std::{net::IpAddr, time::Duration};

/// RoCE's path MTUs, in bytes, largest first.
pub const MTUS_BYTES: [u32; 5] = [4096, 2048, 1024, 512, 256];
/// The peer of a root's queue pair, and the parameters of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// The virtual peer's address.
    pub virtual_address: IpAddr,
    /// The group's identifier, which is the virtual peer's queue pair number.
    pub id: u32,
    /// Number of the first packet.
    pub psn_first: u32,
    /// One of [`MTUS_BYTES`], at most the smallest of all members.
    pub mtu_bytes: u32,
    /// The smallest receive buffer of all receivers ([`crate::Unconnected::buffer_bytes`]).
    pub buffer_bytes: usize,
    /// How long answers may be missing.
    pub ack_timeout: Duration,
}

/// The peer of a receiver's queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The root's address.
    pub root: IpAddr,
    /// The number of the root's queue pair.
    pub qpn: u32,
    /// Number of the first packet.
    pub psn_first: u32,
    /// One of [`MTUS_BYTES`].
    pub mtu_bytes: u32,
}
