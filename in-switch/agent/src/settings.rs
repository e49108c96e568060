//! What an agent is told.

use std::time::Duration;

use data_plane::{Groups, UserspaceTables};
use mcrdma::Port;

use crate::next::Next;

/// Groups of which nothing is heard for so long are forgotten, unless something else is said.
pub const STALE_AFTER: Duration = Duration::from_secs(60);
/// Groups of one sender that a switch takes, unless something else is said: 1 in 64 of what it has room for.
pub const GROUPS_PER_HOST_MAX: usize = mcrdma::GROUPS_MAX / 64;
/// What an agent is told.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// What the switch is called, among others by the agents behind it: unique among them.
    pub name: String,
    /// Its ports, by the names of their interfaces.
    pub ports: Vec<(String, Port)>,
    /// Which agents are behind it.
    pub next: Vec<Next>,
    /// Names (DNS names or IP addresses) whose certificates may ask for groups of any sender: switches
    /// before this one. A host may ask for those that it sends to.
    pub trusted: Vec<String>,
    /// Groups of which nothing is heard for so long are forgotten.
    pub stale_after: Duration,
    /// Groups that there may be of one sender's address: others are to find room, too.
    pub groups_per_host_max: usize,
}

/// What copies the packets.
pub enum Plane {
    /// The program in the kernel; its ports are bridged or routed by the kernel.
    Kernel(Box<Groups>),
    /// The bridge in userspace, that somebody runs meanwhile.
    Userspace(UserspaceTables),
}
