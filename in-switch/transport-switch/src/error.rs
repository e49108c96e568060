//! Why a host cannot take part in a group.

use std::net::IpAddr;

/// Why a host cannot have a queue pair, with the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The interface cannot be used.
    #[error("{0}")]
    Interface(String),
    /// This process may not use packet sockets.
    #[error("{0}; give rdmc the capability CAP_NET_RAW, or run it as root")]
    Permission(String),
    /// The address is on no interface.
    #[error("no network interface has the address {0}")]
    NoInterface(IpAddr),
    /// There is no switch on the way.
    #[error("{0} is on the loopback interface, where no switch is")]
    Loopback(IpAddr),
    /// The peer is reached by another interface, or not at all.
    #[error("{peer} is not reached from {local} by {interface}: {why}")]
    Unreached {
        /// This host's address.
        local: IpAddr,
        /// The interface that has it.
        interface: String,
        /// The other end.
        peer: IpAddr,
        /// By its routes.
        why: String,
    },
    /// Packets would have to be too short.
    #[error("interface {interface} carries packets of {mtu_bytes} bytes; 324 are needed")]
    Mtu {
        /// Its name.
        interface: String,
        /// What it carries.
        mtu_bytes: u32,
    },
}
