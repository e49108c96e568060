//! Data planes of a switch that copies: [`KernelPlane`], in the kernel, and [`UserspacePlane`], for places
//! without eBPF.
//!
//! What they do is what `mcrdma` says. The second runs it as it is; the program for the kernel (`bpf/`)
//! does the same, and tests compare the two. [`Groups`] is what an agent holds of either: it checks what
//! the plane is told.

mod error;
mod groups;
mod kernel;
mod userspace;

use std::{net::IpAddr, time::Duration};

pub use error::PlaneError;
pub use groups::{GroupState, Groups};
pub use kernel::KernelPlane;
pub use userspace::{Forwarded, UserspacePlane, UserspaceTables};

/// Whether this build has the switch in the kernel. It takes clang to build it; without it opening
/// one fails and says so.
pub const HAS_KERNEL_PLANE: bool = cfg!(ebpf);

/// What the program in the kernel has cost, on all ports, while the kernel kept statistics
/// ([`KernelPlane::enable_statistics`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Frames that it was run for.
    pub frames: u64,
    /// Time in the program, up to where copies wait at their ports' other ends.
    pub time: Duration,
}

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
