//! The contract of [`transport::Transport`], with the members in one process.

use std::time::Duration;

use transport_contract::{Harness, Network};
use transport_shm::{ShmSettings, ShmTransport};

use crate::common::{SILENCE_TIMEOUT, links, settings, start};

struct Shm(ShmSettings);

impl Harness for Shm {
    type Transport = ShmTransport;

    fn network(&mut self, members: usize) -> Network<ShmTransport> {
        let transports = (0..members).map(|_| start(self.0.clone())).collect();
        Network::connected(transports, |_, _| links())
    }

    /// Not polling is enough: heartbeats end, and the connections stay open.
    fn silence(&mut self, _: &mut Network<ShmTransport>, _: usize) -> Option<Duration> {
        Some(SILENCE_TIMEOUT)
    }
}

mod direct {
    transport_contract::contract_tests!(super::Shm(super::settings()));
}

/// Writes go through the ring.
mod copied {
    transport_contract::contract_tests!(super::Shm(super::settings().direct_writes(false)));
}

/// Every record waits for space.
mod shortest_ring {
    transport_contract::contract_tests!(super::Shm(super::settings().ring_bytes(4096)));
}
