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
    /// There is no switch on the path.
    #[error("{0} is on the loopback interface, where no switch is")]
    Loopback(IpAddr),
    /// The peer is reached through another interface, or not at all.
    #[error("{peer} is not reached from {local} by {interface}: {why}")]
    Unreached {
        /// This host's address.
        local: IpAddr,
        /// The interface that has this address.
        interface: String,
        /// The other end.
        peer: IpAddr,
        /// The reason, from the host's routes.
        why: String,
    },
    /// The interface's MTU is too small.
    #[error("interface {interface} carries packets of {mtu_bytes} bytes; 324 are needed")]
    Mtu {
        /// The interface's name.
        interface: String,
        /// Its MTU in bytes.
        mtu_bytes: u32,
    },
}
