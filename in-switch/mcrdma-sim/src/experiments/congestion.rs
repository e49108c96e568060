//! Figures 5 and 6: multicast and unicast flows at the same links.

use mcrdma::plan::Node;
use serde::Serialize;

use super::{
    gbit_per_s,
    load::{ClosedLoop, received},
    testbed::{hosts, testbed},
};
use crate::{Config, Network, NoGroup, Notice, PS_PER_S, Pattern};

/// Which CNPs are forwarded to a group's sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// All of them (the paper's section IV-D).
    All,
    /// In each window as many as the member that has most.
    Most,
}

impl Rule {
    /// Both.
    pub const ALL: [Self; 2] = [Self::All, Self::Most];

    /// As in commands and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Most => "most",
        }
    }

    fn config(self, config: Config) -> Config {
        Config { all_notifications: self == Self::All, ..config }
    }
}

/// Flows never run out of messages of this length.
const MESSAGE_BYTES: u32 = 1 << 20;
const DEPTH: usize = 8;
const PS_PER_MS: u64 = PS_PER_S / 1000;

/// Flows that have all they can get.
struct Flows {
    network: Network,
    loads: Vec<ClosedLoop>,
    /// By pair.
    owners: Vec<usize>,
}

impl Flows {
    fn new(config: Config) -> Self {
        Self { network: Network::new(testbed(), config), loads: Vec::new(), owners: Vec::new() }
    }

    fn add(&mut self, from: Node, to: &[Node]) -> Result<(), NoGroup> {
        let pattern = if to.len() > 1 { Pattern::InSwitch } else { Pattern::Fanout };
        let load = ClosedLoop::new(&mut self.network, pattern, from, to, MESSAGE_BYTES)?;
        self.owners.extend(load.replicator.pairs().map(|_| self.loads.len()));
        self.loads.push(load);
        Ok(())
    }

    /// A timer's token starts the flow of that number.
    fn run(&mut self, until_ps: u64) {
        while let Some(notice) = self.network.next(until_ps) {
            match notice {
                Notice::Timer { token } => {
                    self.loads[token as usize].start(&mut self.network, DEPTH);
                }
                Notice::Completed { pair, .. } | Notice::Arrived { pair, .. } => {
                    self.loads[self.owners[pair]].handle(&mut self.network, notice);
                }
            }
        }
    }

    fn received(&self) -> Vec<u64> {
        self.loads.iter().map(|load| received(&self.network, load)).collect()
    }
}

/// What figure 5 is made of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FairnessSettings {
    /// The network.
    pub config: Config,
    /// Between the starts of flows, and from the last to the end, in virtual time.
    pub phase_ms: u64,
    /// Sampling interval of rates, in virtual time.
    pub sample_ms: u64,
}

impl Default for FairnessSettings {
    /// DCQCN takes about 50 ms to share a link evenly, after the first reactions to a new flow.
    fn default() -> Self {
        Self { config: Config::default(), phase_ms: 100, sample_ms: 4 }
    }
}

/// What flows got in the time before a moment.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FairnessRow {
    /// Which CNPs are forwarded to groups' senders.
    pub rule: Rule,
    /// The moment.
    pub at_ms: u64,
    /// A1 to C1 and D1.
    pub multicast_1_gbit_per_s: f64,
    /// C1 to D1 and A2.
    pub multicast_2_gbit_per_s: f64,
    /// D1 to A2.
    pub unicast_gbit_per_s: f64,
}

/// Figure 5: flows that start one after another. The first shares D1's link with the second, which
/// shares A2's with the third.
///
/// Errors: the switches do not serve the groups.
pub fn fairness(settings: &FairnessSettings) -> Result<Vec<FairnessRow>, NoGroup> {
    let mut rows = Vec::new();
    for rule in Rule::ALL {
        let mut flows = Flows::new(rule.config(settings.config));
        let [a1, c1, d1, a2] = hosts(flows.network.topology(), ["A1", "C1", "D1", "A2"]);
        flows.add(a1, &[c1, d1])?;
        flows.add(c1, &[d1, a2])?;
        flows.add(d1, &[a2])?;
        for flow in 0..3 {
            flows.network.at(flow * settings.phase_ms * PS_PER_MS, flow);
        }
        let mut before = flows.received();
        let samples = 3 * settings.phase_ms / settings.sample_ms.max(1);
        for at_ms in (1..=samples).map(|sample| sample * settings.sample_ms) {
            flows.run(at_ms * PS_PER_MS);
            let now = flows.received();
            let rate =
                |flow: usize| gbit_per_s(now[flow] - before[flow], settings.sample_ms * PS_PER_MS);
            rows.push(FairnessRow {
                rule,
                at_ms,
                multicast_1_gbit_per_s: rate(0),
                multicast_2_gbit_per_s: rate(1),
                unicast_gbit_per_s: rate(2),
            });
            before = now;
        }
    }
    Ok(rows)
}

/// What figure 6 is made of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NotificationsSettings {
    /// The network.
    pub config: Config,
    /// Time to converge, in virtual time.
    pub settle_ms: u64,
    /// For so long it is measured after that, in virtual time.
    pub measure_ms: u64,
}

impl Default for NotificationsSettings {
    fn default() -> Self {
        Self { config: Config::default(), settle_ms: 20, measure_ms: 20 }
    }
}

/// One number of congested members by one rule.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct NotificationsRow {
    /// Which CNPs are forwarded to the group's sender.
    pub rule: Rule,
    /// Members whose links carry another flow as well.
    pub congested: usize,
    /// What the group got.
    pub multicast_gbit_per_s: f64,
    /// What the other flows got on average.
    pub unicast_gbit_per_s: f64,
    /// What the group should get in theory, of the payload that a link can carry.
    pub multicast_theory_gbit_per_s: f64,
    /// What each of the others should get.
    pub unicast_theory_gbit_per_s: f64,
}

/// Figure 6: a group of seven members, of which 1 to 7 share their link with a unicast flow.
///
/// The theory (section IV-D): flows at one link have converged when they get CNPs at the same rate. A link
/// marks a part p of all packets, so a unicast flow with rate u gets p u, and a group with rate m and n
/// congested members n p m if all are forwarded. With m + u = C that is m = C / (n + 1). With the CNPs of one
/// member the group gets C / 2.
///
/// Errors: the switches do not serve the group.
pub fn notifications(settings: &NotificationsSettings) -> Result<Vec<NotificationsRow>, NoGroup> {
    let mut rows = Vec::new();
    for rule in Rule::ALL {
        for congested in 1..=7 {
            rows.push(converged(settings, rule, congested)?);
        }
    }
    Ok(rows)
}

fn converged(
    settings: &NotificationsSettings,
    rule: Rule,
    congested: usize,
) -> Result<NotificationsRow, NoGroup> {
    let mut flows = Flows::new(rule.config(settings.config));
    let [sender, members @ ..] =
        hosts(flows.network.topology(), ["A1", "B1", "C1", "D1", "A2", "B2", "C2", "D2"]);
    flows.add(sender, &members)?;
    for at in 0..congested {
        // As the paper has it: from C1 to B1, from D1 to C1, and so on.
        flows.add(members[(at + 1) % members.len()], &[members[at]])?;
    }
    for flow in 0..=congested as u64 {
        flows.network.at(0, flow);
    }
    flows.run(settings.settle_ms * PS_PER_MS);
    let before = flows.received();
    flows.run((settings.settle_ms + settings.measure_ms) * PS_PER_MS);
    let rates: Vec<f64> = flows
        .received()
        .iter()
        .zip(before)
        .map(|(now, before)| gbit_per_s(now - before, settings.measure_ms * PS_PER_MS))
        .collect();
    let heard = if rule == Rule::All { congested as f64 } else { 1.0 };
    let capacity = payload_gbit_per_s(&settings.config);
    Ok(NotificationsRow {
        rule,
        congested,
        multicast_gbit_per_s: rates[0],
        unicast_gbit_per_s: rates[1..].iter().sum::<f64>() / congested as f64,
        multicast_theory_gbit_per_s: capacity / (heard + 1.0),
        unicast_theory_gbit_per_s: capacity * heard / (heard + 1.0),
    })
}

/// What a host's link can carry of full packets' payload.
fn payload_gbit_per_s(config: &Config) -> f64 {
    // Ethernet, IP, UDP, BTH, both check sequences, preamble and gap.
    let (payload, headers) = (f64::from(config.requester.mtu_bytes), 82.0);
    config.host_link.bits_per_s as f64 / 1e9 * payload / (payload + headers)
}
