//! Settings of an agent.

use std::time::Duration;

use data_plane::{Groups, UserspaceTables};
use mcrdma::Port;

use crate::downstream::NextAgent;

/// Default duration of leases.
pub const STALE_AFTER: Duration = Duration::from_secs(60);
/// Default quota of groups of one sender's address: 1/64 of the table.
pub const GROUPS_PER_HOST_MAX: usize = mcrdma::GROUPS_MAX / 64;
/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The switch's name, by which downstream agents identify it as a caller: unique among them.
    pub name: String,
    /// Its ports: names and indices of interfaces.
    pub ports: Vec<(String, Port)>,
    /// Downstream agents.
    pub next: Vec<NextAgent>,
    /// Names (DNS names or IP addresses) whose certificates are authorized for groups of any sender: upstream
    /// switches. A host is authorized for its own address.
    pub trusted: Vec<String>,
    /// Duration of leases.
    pub stale_after: Duration,
    /// Quota of groups of one sender's address.
    pub groups_per_host_max: usize,
    /// When members are reported that seem to have failed.
    pub liveness: Liveness,
}

/// When an agent reports members that seem to have failed. A real adapter gives up after eight timeouts of
/// 134 ms: the sum of an interval, one of the others, and the time in which the sender's host asks the
/// member's ([`control::watcher::Probing`]) has to be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Liveness {
    /// How often members are observed.
    pub interval: Duration,
    /// All ports to a member have had no carrier for this long.
    pub carrier_lost_after: Duration,
    /// For this long, a member has not acknowledged what others have acknowledged.
    pub silent_after: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(50),
            carrier_lost_after: Duration::from_millis(250),
            silent_after: Duration::from_millis(300),
        }
    }
}

/// The data plane.
pub enum Plane {
    /// One that forwards as the kernel does, whose bridges and routes the agent follows: the program in the
    /// kernel, or an adapter of an ASIC that mirrors the kernel's tables ([`data_plane::DataPlane`]).
    Kernel(Box<Groups>),
    /// The bridge in userspace, which the caller runs on another thread.
    Userspace(UserspaceTables),
}
