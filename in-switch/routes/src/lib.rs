//! Next hops of a Linux switch: egress port and Ethernet address for a host, by the kernel's links, routes,
//! neighbours and bridges.
//!
//! [`Kernel`] reads the forwarding state as a [`Snapshot`], and reports when it may have changed;
//! [`Snapshot::hops`] looks up a station's next hops. A snapshot is pure data and can also be made by hand.
//! [`Carriers`] follows which interfaces can carry packets.
//!
//! Ignored: policy rules and tables other than the main one, VRFs, routes by source address
//! or type of service, VLANs of bridges, filters. Refused, with an error: tunnels, VLAN devices,
//! bonds whose members rather than themselves are ports. Next-hop objects are followed while the
//! kernel writes them out into their routes (`net.ipv4.nexthop_compat_mode`, on by default).

#![forbid(unsafe_code)]

mod carriers;
mod error;
mod kernel;
mod messages;
mod snapshot;
mod socket;

use std::net::IpAddr;

use mcrdma::Port;
use roce::Mac;

pub use carriers::Carriers;
pub use error::{NoHop, RoutesError};
pub use kernel::Kernel;
pub use snapshot::{Link, LinkKind, NextHop, Prefix, Route, Snapshot, Target};

/// A host to look up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Station {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, if known: sufficient at a bridge.
    pub mac: Option<Mac>,
}

/// One of the equal-cost next hops.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Hop {
    /// The egress interface's index.
    pub port: Port,
    /// The next router. `None`: the host itself is on this link.
    pub gateway: Option<IpAddr>,
    /// The Ethernet address of the next router, or of the host.
    pub mac: Mac,
}

/// A neighbour, for [`Kernel::ask`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Neighbour {
    /// The address.
    pub address: IpAddr,
    /// The interface that the link is at: a port, or a bridge.
    pub interface: Port,
}
