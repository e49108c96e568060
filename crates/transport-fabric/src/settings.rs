//! Settings of a fabric.

use std::{net::IpAddr, time::Duration};

/// Which provider and devices a fabric uses, and its timeouts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricSettings {
    /// The provider, as libfabric calls it: `verbs`, `tcp`, `sockets`, `shm`, `efa`, `cxi`, ...
    pub provider: String,
    /// The devices (libfabric: domains) that blocks use in turn, as rails; if empty, one is chosen.
    /// A link uses as many rails as the end with fewer has.
    pub devices: Vec<String>,
    /// If no device is named: chooses the one that has this address of the host.
    pub near: Option<IpAddr>,
    /// How long connecting one link may take.
    pub connect_timeout: Duration,
    /// A link breaks if nothing that was sent over it is acknowledged for this long, plus the time
    /// that the longest block takes at 10 MiB/s. Some adapters lose packets for ever without
    /// reporting it.
    pub answer_timeout: Duration,
    /// Whether blocks pass through copies in memory of the transport's own.
    pub copies: Copies,
    /// Tell peers of writes only once they are in their memory, as on networks that report no writes
    /// at the peer; for tests.
    pub awaits_delivery: bool,
}

/// When blocks pass through copies in memory that devices can reach, which costs memory and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Copies {
    /// If the kernel refuses to pin the application's memory, as it does with mappings of some
    /// files.
    #[default]
    WhereNeeded,
    /// Always: devices never access the application's memory.
    Always,
}

impl FabricSettings {
    /// Returns the settings for a provider and the device that it prefers.
    pub fn new(provider: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            devices: Vec::new(),
            near: None,
            connect_timeout: Duration::from_secs(15),
            answer_timeout: Duration::from_secs(15),
            copies: Copies::default(),
            awaits_delivery: false,
        }
    }
}
