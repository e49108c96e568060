//! Data planes of a switch that copies: [`KernelPlane`], in the kernel.
//!
//! What they do is what `mcrdma` says: the program for the kernel (`bpf/`) does the same as its
//! `Switch`, and tests compare the two.

mod error;
#[cfg(ebpf)]
mod kernel;

use std::net::IpAddr;

pub use error::PlaneError;
#[cfg(ebpf)]
pub use kernel::KernelPlane;

/// Whether this build has the switch in the kernel. It takes clang to build it.
pub const HAS_KERNEL_PLANE: bool = cfg!(ebpf);

/// What a member has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberState {
    /// Who.
    pub address: IpAddr,
    /// The packet that it expects next, by the sender's numbers.
    pub expected: roce::Serial,
    /// Messages that it has completed.
    pub msn: roce::Serial,
}
