//! Data planes of a switch that copies: [`KernelPlane`] (eBPF on tc), and [`UserspacePlane`] for kernels
//! without it.
//!
//! Both implement `mcrdma`: the second calls it, the program in `bpf/` is written after it, and tests
//! compare the two. [`Groups`] is an agent's handle of either, or of another [`DataPlane`], and checks every
//! change first.

mod error;
mod groups;
mod kernel;
mod plane;
mod userspace;

use std::{net::IpAddr, time::Duration};

pub use error::PlaneError;
pub use groups::{GroupState, Groups};
pub use kernel::KernelPlane;
pub use plane::{DataPlane, Entry};
pub use userspace::{Forwarded, UserspacePlane, UserspaceTables};

/// Whether this build has the switch in the kernel, which is compiled with clang. Without it opening one
/// fails with [`PlaneError::NotBuilt`].
pub const HAS_KERNEL_PLANE: bool = cfg!(ebpf);

/// Run-time statistics of the program in the kernel, over all ports, while they are enabled
/// ([`KernelPlane::enable_statistics`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Number of runs: one per frame.
    pub frames: u64,
    /// Time in the program, including the transmission of copies.
    pub time: Duration,
}

/// Progress of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberState {
    /// Its address.
    pub address: IpAddr,
    /// The PSN that it expects next, in the sender's numbering.
    pub expected: roce::Serial,
    /// Its message sequence number: messages completed.
    pub msn: roce::Serial,
}
