//! Where a Linux switch would send a packet for a host, by its own links, routes, neighbours and
//! bridges.
//!
//! A switch that copies has to know where a group's members are: out of which port, and to which
//! Ethernet address, of the host or of the next router. [`Kernel`] reads what the kernel forwards
//! by, as a [`Snapshot`], and says when that may have changed; [`Snapshot::hops`] works out a
//! station's next hops. A snapshot is pure data and can also be made by hand.
//!
//! Not looked at: policy rules and tables other than the main one, VRFs, routes by source address
//! or type of service, VLANs of bridges, filters. Refused, with an error: tunnels, VLAN devices,
//! bonds whose members rather than themselves are ports. Next-hop objects are followed while the
//! kernel writes them out into their routes (`net.ipv4.nexthop_compat_mode`, on by default).

#![forbid(unsafe_code)]

mod error;
mod kernel;
mod messages;
mod snapshot;
mod socket;

use std::net::IpAddr;

use mcrdma::Port;
use roce::Mac;

pub use error::{NoHop, RoutesError};
pub use kernel::Kernel;
pub use snapshot::{Link, LinkKind, NextHop, Prefix, Route, Snapshot, Target};

/// A host, as a group knows its members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Station {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, if that is known: enough for a bridge that has no routes.
    pub mac: Option<Mac>,
}

/// One of the equal ways on which a packet leaves the switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Hop {
    /// Out of which interface, by its index.
    pub port: Port,
    /// The next router. `None`: the host itself is on this link.
    pub gateway: Option<IpAddr>,
    /// Who takes it on this link: the next router, or the host.
    pub mac: Mac,
}

/// Somebody on a link, whose Ethernet address [`Kernel::ask`] makes the kernel find out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Neighbour {
    /// The address.
    pub address: IpAddr,
    /// The interface that the link is at: a port, or a bridge.
    pub interface: Port,
}
