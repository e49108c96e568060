//! Errors.

use std::{io, net::IpAddr};

use roce::Mac;

use crate::Neighbour;

/// Why a station's next hops are not known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoHop {
    /// There is no route whose links are up, or it is of type unreachable, blackhole or prohibit.
    #[error("no route to {address} whose link is up; see `ip route get {address}`")]
    NoRoute {
        /// The destination.
        address: IpAddr,
    },
    /// The route is of a kind that is not supported.
    #[error("the route to {address} cannot be followed: {why}")]
    Route {
        /// The destination.
        address: IpAddr,
        /// Its kind, and the remedy.
        why: &'static str,
    },
    /// The route's interface is not among the ports.
    #[error(
        "the route to {address} is through {interface}, which is not a port of the switch; add it to them"
    )]
    NotAPort {
        /// The destination.
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
        /// The neighbour.
        neighbour: Neighbour,
        /// The interface's name.
        interface: String,
    },
    /// A route leads to a bridge that has not learnt the port.
    #[error(
        "bridge {bridge} has not learnt {mac} ({}) at a port that is up; resolve it, and \
         check whether it is up",
        neighbour.address
    )]
    NotLearnt {
        /// The bridge's name.
        bridge: String,
        /// The Ethernet address.
        mac: Mac,
        /// The neighbour.
        neighbour: Neighbour,
    },
    /// No bridge has learnt the station at one of the ports, and there is no route either.
    #[error(
        "no bridge has learnt {mac} ({address}) at a port that is up: let it send a \
         packet; by routes: {routes}"
    )]
    Station {
        /// The station.
        address: IpAddr,
        /// Its Ethernet address.
        mac: Mac,
        /// Why there is no route.
        routes: Box<NoHop>,
    },
    /// An Ethernet address has been learnt at several ports, of several bridges or VLANs.
    #[error(
        "bridges have learnt {mac} at several ports ({ports}), perhaps in different VLANs; a switch that \
         copies does not support VLANs: give it the ports of one"
    )]
    SeveralPorts {
        /// The Ethernet address.
        mac: Mac,
        /// The ports' names.
        ports: String,
    },
}

impl NoHop {
    /// The neighbour to resolve ([`Kernel::ask`](crate::Kernel::ask)), if that could help.
    #[must_use]
    pub fn to_ask(&self) -> Option<Neighbour> {
        match self {
            Self::Neighbour { neighbour, .. } | Self::NotLearnt { neighbour, .. } => {
                Some(*neighbour)
            }
            _ => None,
        }
    }
}

/// Why the kernel's routes cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoutesError {
    /// The kernel refused something.
    #[error("netlink: cannot {step}: {source}; asking for neighbours needs CAP_NET_ADMIN")]
    Kernel {
        /// What was to be done.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The kernel's answer is incomplete at the deadline.
    #[error(
        "netlink: cannot {step}: no end after {timeout_ms} ms; the machine may be overloaded: try \
         again"
    )]
    Late {
        /// What was to be done.
        step: &'static str,
        /// The deadline.
        timeout_ms: u64,
    },
    /// Links or routes changed each time they were read.
    #[error(
        "netlink: routes changed each of the {times} times that they were read; try again when routes change less often"
    )]
    Restless {
        /// How often.
        times: u32,
    },
    /// A message of the kernel could not be parsed.
    #[error("netlink: cannot {step}: {why}; this kernel may be newer than rdmc supports")]
    Message {
        /// What was to be done.
        step: &'static str,
        /// What was wrong.
        why: String,
    },
}
