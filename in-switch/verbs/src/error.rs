//! Errors of a device.

use std::{io, net::IpAddr};

use crate::Status;

/// Why an operation of a device failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The library cannot be used.
    #[error(
        "libibverbs cannot be used: {why}; install it (Debian: libibverbs1, ibverbs-providers)"
    )]
    Library {
        /// The loader's reason.
        why: String,
    },
    /// The device has no such address.
    #[error(
        "RDMA device {device} has no address {address}; `ibv_devinfo -v` and `rdma link` list what there is"
    )]
    Address {
        /// Its name.
        device: String,
        /// What was asked for.
        address: IpAddr,
    },
    /// The device refused something.
    #[error("RDMA device {device}: cannot {step}: {source}")]
    Device {
        /// Its name.
        device: String,
        /// What was to be done.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Memory cannot be registered.
    #[error(
        "RDMA device {device}: cannot register {bytes} bytes of memory: {source}; `ulimit -l` prints how \
         much may be locked, and a line `* - memlock unlimited` in /etc/security/limits.conf raises it"
    )]
    Register {
        /// Its name.
        device: String,
        /// How much it was.
        bytes: usize,
        /// Why not.
        source: io::Error,
    },
    /// A connection has failed.
    #[error("RDMA device {device}: a message has ended with {status:?}")]
    Ended {
        /// Its name.
        device: String,
        /// The status of its completion.
        status: Status,
    },
    /// A range that is not in the memory.
    #[error(
        "bytes {begin} to {end} are not in memory of {bytes} bytes, or too many for one message"
    )]
    Range {
        /// The first.
        begin: usize,
        /// One behind the last.
        end: usize,
        /// How long the memory is.
        bytes: usize,
    },
}
