//! What is measured of a storage system.

use mcrdma::plan::Device;
use roce::rc::RequesterConfig;

use super::layout::Layout;
use crate::{Config, Distribution, Pattern};

/// What is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct StorageSettings {
    /// The network; its links are the paper's.
    pub config: Config,
    /// How long messages are.
    pub distribution: Distribution,
    /// How many hosts share a lowest switch.
    pub layout: Layout,
    /// Whether the switches above the lowest can copy.
    pub above: Device,
    /// Ways of replication.
    pub patterns: Vec<Pattern>,
    /// Groups of each store, which a write chooses from, each with queue pairs of its own.
    pub groups_of_store: usize,
    /// Bytes that clients ask to read and to write / what the links above their lowest switches carry in that time.
    pub loads: Vec<f64>,
    /// Before it is measured, in virtual time.
    pub warm_up_ms: u64,
    /// Requests that begin in this time after that are measured, in virtual time.
    pub duration_ms: u64,
}

impl StorageSettings {
    /// A fat tree all of whose switches copy. Packets have up to 4 KiB, to simulate fewer of them.
    #[must_use]
    pub fn new(distribution: Distribution) -> Self {
        let config = Config::default();
        let requester = RequesterConfig { mtu_bytes: 4096, ..config.requester };
        Self {
            config: Config { requester, ..config },
            distribution,
            layout: Layout::ThreePerEdge,
            above: Device::Copies,
            patterns: Pattern::ALL.to_vec(),
            groups_of_store: 1,
            loads: vec![0.2, 0.4, 0.6],
            warm_up_ms: 50,
            duration_ms: 100,
        }
    }
}
