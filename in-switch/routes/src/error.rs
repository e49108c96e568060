//! What can go wrong.

use std::{io, net::IpAddr};

use roce::Mac;

use crate::Neighbour;

/// Why a switch cannot tell where it would send a packet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoHop {
    /// There is no route, or one that says that there is none (unreachable, blackhole), or none
    /// whose links are up.
    #[error("no route to {address} whose link is up; see `ip route get {address}`")]
    NoRoute {
        /// Whereto.
        address: IpAddr,
    },
    /// There is a route, of a kind that is not followed.
    #[error("the route to {address} cannot be followed: {why}")]
    Route {
        /// Whereto.
        address: IpAddr,
        /// What it is, and what to do about it.
        why: &'static str,
    },
    /// The way goes through an interface that is not among the ports.
    #[error(
        "the way to {address} is by {interface}, which is none of the switch's ports; add it \
         to them"
    )]
    NotAPort {
        /// Whereto.
        address: IpAddr,
        /// Its name.
        interface: String,
    },
    /// The Ethernet address of the station, or of the next router, is not known yet.
    #[error(
        "the Ethernet address of {} on {interface} is not known; ask for it, and see whether {} \
         is up",
        neighbour.address, neighbour.address
    )]
    Neighbour {
        /// Who.
        neighbour: Neighbour,
        /// The interface's name.
        interface: String,
    },
    /// A route leads to a bridge, which does not know its port yet.
    #[error(
        "bridge {bridge} has not heard {mac} ({}) of late at a port that is up; ask for it, and \
         see whether it is up",
        neighbour.address
    )]
    Unheard {
        /// The bridge's name.
        bridge: String,
        /// Who, by the Ethernet address.
        mac: Mac,
        /// Who, by address.
        neighbour: Neighbour,
    },
    /// No bridge with one of the ports has heard the station, and routes do not help either.
    #[error(
        "no bridge has heard {mac} ({address}) of late at a port that is up: let it send \
         something; and by routes: {routes}"
    )]
    Station {
        /// Who.
        address: IpAddr,
        /// Its Ethernet address.
        mac: Mac,
        /// What the routes say.
        routes: Box<NoHop>,
    },
    /// Bridges, or VLANs of one, know an Ethernet address at several ports.
    #[error(
        "bridges know {mac} at several ports ({ports}), in different VLANs perhaps; a switch that \
         copies takes no VLANs: give it the ports of one"
    )]
    SeveralPorts {
        /// Who.
        mac: Mac,
        /// The ports' names.
        ports: String,
    },
}

impl NoHop {
    /// Whom to ask for ([`Kernel::ask`](crate::Kernel::ask)), if an answer could help.
    #[must_use]
    pub fn to_ask(&self) -> Option<Neighbour> {
        match self {
            Self::Neighbour { neighbour, .. } | Self::Unheard { neighbour, .. } => Some(*neighbour),
            _ => None,
        }
    }
}

/// Why the kernel's routes cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoutesError {
    /// The kernel refused something.
    #[error("netlink: cannot {step}: {source}; asking for neighbours takes CAP_NET_ADMIN")]
    Kernel {
        /// What was to be done.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The kernel did not come to an end.
    #[error(
        "netlink: cannot {step}: no end after {patience_ms} ms; the machine may be overloaded: try \
         again"
    )]
    Late {
        /// What was to be done.
        step: &'static str,
        /// How long it was waited for.
        patience_ms: u64,
    },
    /// Links or routes changed whenever they were read.
    #[error(
        "netlink: routes changed each of the {times} times that they were read; try again when the \
         network is calmer"
    )]
    Restless {
        /// How often.
        times: u32,
    },
    /// The kernel said something that is not understood.
    #[error("netlink: cannot {step}: {why}; this kernel may be newer than rdmc knows")]
    Message {
        /// What was to be done.
        step: &'static str,
        /// What was wrong.
        why: String,
    },
}
