//! The contract of [`transport::Transport`], over an ideal network and one with delays and jitter.

use std::time::Duration;

use transport_contract::{Harness, Network};
use transport_sim::{Fault, Jitter, LinkConfig, Placement, Ports, SimConfig, SimNet, SimTransport};

struct Simulated {
    config: SimConfig,
    seed: u64,
    net: Option<SimNet>,
}

impl Simulated {
    fn new(config: SimConfig, seed: u64) -> Self {
        Self { config, seed, net: None }
    }
}

impl Harness for Simulated {
    type Transport = SimTransport;

    fn network(&mut self, members: usize) -> Network<SimTransport> {
        let net = SimNet::new(self.config.clone(), self.seed);
        let connected = Network::connected(net.members(members), |(left, _), (right, _)| {
            net.connect(left, right)
        });
        self.net = Some(net);
        connected
    }

    fn silence(&mut self, _network: &mut Network<SimTransport>, index: usize) -> Option<Duration> {
        let timeout_ms = self.config.silence_timeout_ms?;
        self.net.as_ref()?.inject(Fault::Stall { member: index, lasting: Duration::MAX });
        Some(Duration::from_millis(timeout_ms))
    }

    fn has_real_time(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        self.net.as_ref().map(SimNet::trace).unwrap_or_default()
    }
}

mod ideal {
    transport_contract::contract_tests!(super::Simulated::new(super::SimConfig::IDEAL, 0));
}

mod data_centre {
    transport_contract::contract_tests!(super::Simulated::new(super::SimConfig::default(), 1));
}

mod shared_ports {
    use super::{Ports, SimConfig};

    const PORTS: Ports = Ports::Shared { part_bytes: 10_000, parts_under_way: 3 };

    transport_contract::contract_tests!(super::Simulated::new(
        SimConfig { ports: PORTS, cut_through_bytes: Some(10_000), ..SimConfig::default() },
        5
    ));
}

mod cut_through {
    use super::SimConfig;

    transport_contract::contract_tests!(super::Simulated::new(
        SimConfig { cut_through_bytes: Some(10_000), ..SimConfig::default() },
        4
    ));
}

/// Bytes of writes become visible one by one, in any order.
const ANY_ORDER: Placement =
    Placement { in_order: false, whole_words: false, lasting_ns: 3_000_000 };

/// Bytes of writes become visible before they are reported.
fn placing(in_order: bool, whole_words: bool) -> Simulated {
    let placement = Placement { in_order, whole_words, lasting_ns: 100_000 };
    let config = SimConfig { write_placement: Some(placement), ..SimConfig::default() };
    Simulated::new(config, 3)
}

mod bytes_in_order {
    transport_contract::contract_tests!(super::placing(true, false));
}

mod whole_words {
    transport_contract::contract_tests!(super::placing(false, true));
}

/// A slow network with high latency, and every source of randomness.
fn unruly() -> SimConfig {
    SimConfig {
        port_rate_bytes_per_s: 200_000_000,
        link: LinkConfig { rate_bytes_per_s: 150_000_000, latency_ns: 2_000_000 },
        block_overhead_ns: 100,
        block_jitter: Jitter::BlockTimes(1.5),
        delivery_jitter_ns_max: 20_000_000,
        control_jitter_ns_max: 10_000_000,
        write_placement: Some(ANY_ORDER),
        silence_timeout_ms: Some(700),
        ..SimConfig::default()
    }
}

mod unruly_network {
    transport_contract::contract_tests!(super::Simulated::new(super::unruly(), 2));
}
