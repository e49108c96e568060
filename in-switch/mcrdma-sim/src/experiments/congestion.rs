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
    /// As many as the most congested member sends ([`mcrdma::Merger::notify`]).
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
/// Sampling interval of a sender's rate after a change.
const SAMPLE_US: u64 = 10;

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

    /// The rate limit of the first flow's sender.
    fn sender_gbit_per_s(&self) -> f64 {
        let pair = self.loads[0].replicator.forward().first();
        pair.map_or(0.0, |&pair| self.network.bits_per_s(pair) / 1e9)
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
    /// How long it is measured after that, in virtual time.
    pub measure_ms: u64,
}

impl Default for NotificationsSettings {
    /// DCQCN takes about 50 ms to share a link evenly.
    fn default() -> Self {
        Self { config: Config::default(), settle_ms: 50, measure_ms: 30 }
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
    let mut flows = group_of_seven(rule.config(settings.config), congested)?.0;
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

/// A group from A1 to seven members, and a flow to each of the first `congested` of them. The last member's link
/// carries no other flow if there are fewer than seven.
fn group_of_seven(config: Config, congested: usize) -> Result<(Flows, [Node; 7]), NoGroup> {
    let mut flows = Flows::new(config);
    let [sender, members @ ..] =
        hosts(flows.network.topology(), ["A1", "B1", "C1", "D1", "A2", "B2", "C2", "D2"]);
    flows.add(sender, &members)?;
    for at in 0..congested {
        // As the paper has it: from C1 to B1, from D1 to C1, and so on.
        flows.add(members[(at + 1) % members.len()], &[members[at]])?;
    }
    Ok((flows, members))
}

/// Flows at the tightest link beside the group, which leave it a quarter.
const TIGHTENING: usize = 3;

/// The member whose link becomes the tightest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tightened {
    /// Its link carried no other flow.
    Free,
    /// Its link carried one other flow, like those of the other congested members.
    Congested,
}

impl Tightened {
    /// As in commands and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Congested => "congested",
        }
    }
}

/// How a group reacts when a member's link becomes the tightest.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ReactionRow {
    /// Which CNPs are forwarded to the group's sender.
    pub rule: Rule,
    /// Members whose links carry one other flow from the start; 0 to 6.
    pub congested: usize,
    /// Whose link becomes the tightest.
    pub tightened: Tightened,
    /// The sender's rate when flows start to that member's link, until there are three.
    pub before_gbit_per_s: f64,
    /// From then until the sender's rate has fallen by a tenth; not more than `measure_ms`.
    pub begun_us: u64,
    /// From then until it is within a tenth of a quarter of the link, the group's new share; not more than `measure_ms`.
    pub reacted_us: u64,
    /// What the group gets in the second half of `measure_ms`.
    pub after_gbit_per_s: f64,
}

/// How fast the group of figure 6 reacts when flows start at the link of a member, which then is twice as tight as those where
/// one flow competes.
///
/// Errors: the switches do not serve the group.
pub fn reaction(settings: &NotificationsSettings) -> Result<Vec<ReactionRow>, NoGroup> {
    let cases = [
        (1, Tightened::Free),
        (3, Tightened::Free),
        (3, Tightened::Congested),
        (6, Tightened::Congested),
    ];
    let mut rows = Vec::new();
    for rule in Rule::ALL {
        for (congested, tightened) in cases {
            rows.push(reacted(settings, rule, congested, tightened)?);
        }
    }
    Ok(rows)
}

fn reacted(
    settings: &NotificationsSettings,
    rule: Rule,
    congested: usize,
    tightened: Tightened,
) -> Result<ReactionRow, NoGroup> {
    let (mut flows, members) = group_of_seven(rule.config(settings.config), congested)?;
    // To the first member there is a flow from the second already.
    let (target, sources) = match tightened {
        Tightened::Free => (members[6], &members[..TIGHTENING]),
        Tightened::Congested => (members[0], &members[2..=TIGHTENING]),
    };
    for &source in sources {
        flows.add(source, &[target])?;
    }
    let start_ps = settings.settle_ms * PS_PER_MS;
    for flow in 0..=congested {
        flows.network.at(0, flow as u64);
    }
    for flow in 1..=sources.len() {
        flows.network.at(start_ps, (congested + flow) as u64);
    }
    flows.run(start_ps);
    let before = flows.sender_gbit_per_s();
    let share = settings.config.host_link.bits_per_s as f64 / 1e9 / (TIGHTENING + 1) as f64;
    let mut reached_us = [settings.measure_ms * 1000; 2];
    let mut received_half = 0;
    for at_us in (SAMPLE_US..=settings.measure_ms * 1000).step_by(SAMPLE_US as usize) {
        flows.run(start_ps + at_us * PS_PER_MS / 1000);
        let rate = flows.sender_gbit_per_s();
        for (reached_us, limit) in reached_us.iter_mut().zip([0.9 * before, 1.1 * share]) {
            if rate <= limit {
                *reached_us = at_us.min(*reached_us);
            }
        }
        if at_us <= settings.measure_ms * 500 {
            received_half = flows.received()[0];
        }
    }
    let half_ps = settings.measure_ms * PS_PER_MS / 2;
    Ok(ReactionRow {
        rule,
        congested,
        tightened,
        before_gbit_per_s: before,
        begun_us: reached_us[0],
        reacted_us: reached_us[1],
        after_gbit_per_s: gbit_per_s(flows.received()[0] - received_half, half_ps),
    })
}

/// What a host's link can carry of full packets' payload.
fn payload_gbit_per_s(config: &Config) -> f64 {
    // Ethernet, IP, UDP, BTH, both check sequences, preamble and gap.
    let (payload, headers) = (f64::from(config.requester.mtu_bytes), 82.0);
    config.host_link.bits_per_s as f64 / 1e9 * payload / (payload + headers)
}
