//! The contract of [`transport::Transport`], with the members in one process.

use std::time::Duration;

use transport_contract::{Harness, Network};
use transport_shm::{Beside, BesideLink, ShmSettings, ShmTransport};
use transport_tcp::TcpTransport;

use crate::common::{SILENCE_TIMEOUT, beside_tcp, links, settings, start, tcp_links};

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
    transport_contract::contract_tests!(super::Shm(super::settings().ring_bytes(16 << 10)));
}

/// Beside TCP: which links are over shared memory.
struct BesideTcp(fn(left: usize, right: usize) -> bool);

impl Harness for BesideTcp {
    type Transport = Beside<TcpTransport>;

    fn network(&mut self, members: usize) -> Network<Self::Transport> {
        let transports = (0..members).map(|_| beside_tcp()).collect();
        Network::connected(transports, |(left, _), (right, _)| {
            if (self.0)(left, right) {
                let (one, other) = links();
                (BesideLink::Shm(one), BesideLink::Shm(other))
            } else {
                let (one, other) = tcp_links();
                (BesideLink::Other(one), BesideLink::Other(other))
            }
        })
    }

    fn silence(&mut self, _: &mut Network<Self::Transport>, _: usize) -> Option<Duration> {
        Some(SILENCE_TIMEOUT + Duration::from_secs(1))
    }
}

mod beside_tcp_shared {
    transport_contract::contract_tests!(super::BesideTcp(|_, _| true));
}

mod beside_tcp_other {
    transport_contract::contract_tests!(super::BesideTcp(|_, _| false));
}

/// The first two members share memory; clauses of two members have a link of one kind, those of more of both.
mod beside_tcp_mixed {
    transport_contract::contract_tests!(super::BesideTcp(|left, right| left + right == 1));
}

/// As before, with the kinds swapped.
mod beside_tcp_mixed_otherwise {
    transport_contract::contract_tests!(super::BesideTcp(|left, right| left + right != 1));
}
