//! Keys of groups, and ports.

use std::{fmt, net::IpAddr};

use roce::Headers;

/// A switch's port: on Linux the interface index.
pub type Port = u32;

/// What all packets of a group match: the sender's address and the destination queue pair, which is
/// virtual (the paper's SRC and MC_ID).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GroupKey {
    /// The sender's address.
    pub sender: IpAddr,
    /// The virtual queue pair number, of 24 bits.
    pub id: u32,
}

impl GroupKey {
    /// The group of a packet from the sender, if there is one.
    #[must_use]
    pub const fn of(headers: &Headers) -> Self {
        Self { sender: headers.ip.source, id: headers.bth.target_qpn }
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}/{:#x}", self.sender, self.id)
    }
}
