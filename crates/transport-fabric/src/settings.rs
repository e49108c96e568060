//! What a fabric is made of.

use std::{net::IpAddr, time::Duration};

/// What a fabric is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricSettings {
    /// The provider, as libfabric calls it: `verbs`, `tcp`, `sockets`, `shm`, `efa`, `cxi`, ...
    pub provider: String,
    /// The devices (libfabric: domains) that blocks take by turns, as rails; none for one that is
    /// chosen. Both ends of a link use as many rails as the one with fewer has.
    pub devices: Vec<String>,
    /// With no device named: the one that has this address of the host.
    pub near: Option<IpAddr>,
    /// How long connecting one link may take.
    pub connect_timeout: Duration,
    /// How long nothing that was sent over a link may be acknowledged, blocks at 10 MiB/s aside,
    /// before the link is given up. Some adapters lose packets for ever without saying so.
    pub answer_timeout: Duration,
    /// Whether blocks pass through copies in memory of the transport's own.
    pub copies: Copies,
}

/// When blocks pass through copies in memory that devices can reach, which costs memory and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Copies {
    /// Where the kernel refuses to pin the application's memory, as it does with mappings of some files.
    #[default]
    WhereNeeded,
    /// Always: a device then never reaches the application's memory.
    Always,
}

impl FabricSettings {
    /// The provider with the device that it prefers.
    pub fn new(provider: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            devices: Vec::new(),
            near: None,
            connect_timeout: Duration::from_secs(15),
            answer_timeout: Duration::from_secs(15),
            copies: Copies::default(),
        }
    }
}
