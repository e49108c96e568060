//! The simulated network of a scenario, as plain data.

use serde::{Deserialize, Serialize};
use transport_sim::{Jitter, LinkConfig, Ports, SimConfig, SimNet};

use crate::{
    dice::Dice,
    subject::{Outcome, Smaller},
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// See [`SimConfig`].
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct NetworkPlan {
    /// Rate of every port that has no other.
    pub rate_bytes_per_s: u64,
    /// Latency of every link.
    pub latency_ns: u64,
    /// By how much longer a block may take, in percent.
    pub block_jitter_percent: u64,
    /// The maximum delay of a block's delivery; lets blocks overtake each other.
    pub delivery_jitter_ns_max: u64,
    /// The maximum delay of words, independent for each connection.
    pub control_jitter_ns_max: u64,
    /// Time from a death until neighbours detect the end of their connections.
    pub loss_detection_ns: u64,
    /// Time of silence after which a peer is considered lost.
    pub silence_timeout_ms: u64,
    /// The longest that closing a connection takes.
    pub drain_timeout_ms: u64,
    /// Length of a part, and parts under way, where ports are shared ([`Ports::Shared`]).
    #[serde(default)]
    pub shared_ports: Option<(u64, u32)>,
    /// See [`SimConfig::cut_through_bytes`].
    #[serde(default)]
    pub cut_through_bytes: Option<u64>,
    /// Links with other rates.
    pub slow_links: Vec<SlowLink>,
}

/// A link that is slower than its ports.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SlowLink {
    /// Its ends.
    pub members: [u32; 2],
    /// Its rate.
    pub rate_bytes_per_s: u64,
}

impl NetworkPlan {
    /// Returns the simulator's configuration.
    pub fn config(&self, trace_events: usize) -> SimConfig {
        let shared = |(part_bytes, parts_under_way)| Ports::Shared { part_bytes, parts_under_way };
        SimConfig {
            port_rate_bytes_per_s: self.rate_bytes_per_s,
            ports: self.shared_ports.map_or(Ports::InOrder, shared),
            link: LinkConfig { latency_ns: self.latency_ns, ..LinkConfig::IDEAL },
            block_jitter: Jitter::BlockTimes(self.block_jitter_percent as f64 / 100.0),
            delivery_jitter_ns_max: self.delivery_jitter_ns_max,
            control_jitter_ns_max: self.control_jitter_ns_max,
            loss_detection_ns: self.loss_detection_ns,
            silence_timeout_ms: Some(self.silence_timeout_ms),
            drain_timeout_ms: self.drain_timeout_ms,
            cut_through_bytes: self.cut_through_bytes,
            trace_events,
            ..SimConfig::IDEAL
        }
    }

    /// Returns the link between two members.
    pub fn link(&self, one: u32, other: u32) -> LinkConfig {
        let is_it = |link: &&SlowLink| link.members == [one, other] || link.members == [other, one];
        let slow = self.slow_links.iter().find(is_it);
        LinkConfig {
            rate_bytes_per_s: slow.map_or(u64::MAX, |link| link.rate_bytes_per_s),
            latency_ns: self.latency_ns,
        }
    }
    /// Draws a network without slow links.
    pub(crate) fn draw(dice: &mut Dice, rate_bytes_per_s: u64) -> Self {
        Self {
            rate_bytes_per_s,
            latency_ns: dice.rarely(70, 10, 50 * US),
            block_jitter_percent: dice.rarely(50, 10, 300),
            delivery_jitter_ns_max: dice.rarely(50, 10, 100 * US),
            control_jitter_ns_max: dice.rarely(50, 10, 100 * US),
            loss_detection_ns: dice.rarely(70, 100, MS),
            silence_timeout_ms: dice.between(2, 20),
            drain_timeout_ms: dice.between(1, 10),
            ..Self::default()
        }
    }

    /// Draws a lower rate, at which no block takes as long as a stall timeout.
    pub(crate) fn slower(dice: &mut Dice, rate_bytes_per_s: u64) -> u64 {
        (rate_bytes_per_s / dice.magnitude(2, 100)).max(1_000_000)
    }

    /// Runs something over the network. A panic is a violation.
    pub(crate) fn run<C: Default, E>(
        &self,
        seed: u64,
        trace_events: usize,
        run: impl FnOnce(&SimNet) -> Result<Outcome<C, E>, String>,
    ) -> Outcome<C, E> {
        let network = SimNet::new(self.config(trace_events), seed);
        let mut outcome = Outcome::of(|| run(&network));
        outcome.digest = network.digest();
        if trace_events > 0 && outcome.trace.is_empty() {
            outcome.trace = network.trace();
        }
        outcome
    }

    /// Adds scenarios of which this network disturbs less.
    pub(crate) fn reduce<S: Clone>(to: &mut Smaller<'_, S>, network: impl Fn(&mut S) -> &mut Self) {
        to.with(|it| network(it).slow_links.clear());
        to.with(|it| network(it).block_jitter_percent = 0);
        to.with(|it| network(it).delivery_jitter_ns_max = 0);
        to.with(|it| network(it).control_jitter_ns_max = 0);
        to.with(|it| network(it).latency_ns = 0);
        to.with(|it| network(it).loss_detection_ns = 0);
    }
}
