//! The scenario of a team as plain data: it can be printed, kept in files, and shrunk.

use std::{fmt, time::Duration};

use collective::{Thresholds, WaySelection, model::WriteCosts};
use serde::{Deserialize, Serialize};
use team::TeamSettings;

use super::{calls::CallPlan, fault::TeamFault};
use crate::{clock::Clock, faults::PlannedFault, member_fault::MemberFault, network::NetworkPlan};

/// How often rank 0 measures the time of a write.
const PROBES: u64 = 8;

/// The team's number.
pub(super) const NUMBER: u64 = 7;

/// A scenario determines a run: equal scenarios give equal runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TeamScenario {
    /// Seed of all random choices during the run, and of the contributions.
    pub seed: u64,
    /// The network between the members.
    pub network: NetworkPlan,
    /// See [`collective::Settings::slots`].
    pub slots: u32,
    /// See [`collective::Settings::slot_bytes`].
    pub slot_bytes: u32,
    /// Ways are chosen by the costs of transmitting and folding a byte, in ns, and not by the thresholds below.
    #[serde(default)]
    pub costs: Option<[u32; 2]>,
    /// With costs, rank 0 measures the time of a write to this member first.
    #[serde(default)]
    pub probed: Option<u32>,
    /// The first is [`collective::Thresholds::degree`].
    pub degrees: Vec<(u64, u32)>,
    /// See [`collective::Thresholds::exchange_bytes`].
    #[serde(default = "defaults::exchange_bytes")]
    pub exchange_bytes: u64,
    /// See [`collective::Thresholds::long_bytes`].
    #[serde(default = "defaults::long_bytes")]
    pub long_bytes: u64,
    /// See [`collective::Thresholds::block_bytes`].
    #[serde(default = "defaults::block_bytes")]
    pub block_bytes: u32,
    /// See [`TeamSettings::ask_after`].
    pub ask_after_ns: u64,
    /// How long applications wait for an operation, and for the others at the end.
    pub timeout_ns: u64,
    /// What all members call, in this order; then a barrier, after which they leave.
    pub calls: Vec<CallPlan>,
    /// One for each member, by rank.
    pub members: Vec<TeamMemberPlan>,
    /// Faults, by step.
    pub faults: Vec<PlannedFault<TeamFault>>,
}

/// Of scenarios that were kept before they had these settings.
mod defaults {
    pub(super) fn exchange_bytes() -> u64 {
        4096
    }

    pub(super) fn long_bytes() -> u64 {
        u64::MAX
    }

    pub(super) fn block_bytes() -> u32 {
        128 << 10
    }
}

/// One member: its machine and its application.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TeamMemberPlan {
    /// When it joins the team.
    pub start_ns: u64,
    /// The maximum delay from a completion until its process polls.
    pub poll_delay_ns_max: u64,
    /// How many completions one poll reports; 0: all.
    pub batch: u32,
    /// Its clock.
    pub clock: Clock,
    /// Rate of its port, if it is not the network's.
    pub rate_bytes_per_s: Option<u64>,
    /// How many operations it has under way at most, from 1.
    pub window: usize,
    /// Whether it lends memory to each operation that goes through slots; then it has one under way at a time.
    pub lends: bool,
    /// The maximum time that it computes before each call.
    pub compute_ns_max: u64,
}

impl TeamScenario {
    /// Returns how many members there are.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// Returns the settings of a member.
    pub fn settings(&self, rank: u32) -> TeamSettings {
        let mut settings = TeamSettings::new(NUMBER, self.size(), rank);
        (settings.core.slots, settings.core.slot_bytes) = (self.slots, self.slot_bytes);
        // Rank 0 tells its costs.
        settings.takes_costs = self.costs.is_some();
        settings.probed = self.probed.filter(|member| settings.links().contains(member));
        if rank == 0 || !settings.takes_costs {
            settings.core.ways = self.ways();
        }
        settings.ask_after = Duration::from_nanos(self.ask_after_ns);
        settings
    }

    fn ways(&self) -> WaySelection {
        if let Some(costs) = self.costs {
            let [transmit_us_per_byte, fold_us_per_byte] = costs.map(|ns| f64::from(ns) / 1e3);
            let costs = WriteCosts { transmit_us_per_byte, fold_us_per_byte, ..WriteCosts::PAPER };
            return WaySelection::ByCosts(costs);
        }
        WaySelection::ByThresholds(Thresholds {
            degree: self.degrees.first().map_or(1, |&(_, degree)| degree),
            exchange_bytes: self.exchange_bytes,
            long_bytes: self.long_bytes,
            block_bytes: self.block_bytes,
        })
    }

    /// Returns the call of this number, which all members are to make: the last is a barrier.
    pub(super) fn call(&self, number: u64) -> CallPlan {
        self.calls.get(number as usize).cloned().unwrap_or(CallPlan::BARRIER)
    }

    /// Returns the maximum time until a control word was sent, has arrived and is polled.
    pub(super) fn word_ns(&self) -> u64 {
        let look_ns = self.members.iter().map(|member| member.poll_delay_ns_max).max().unwrap_or(0);
        self.network.latency_ns + self.network.control_jitter_ns_max + look_ns
    }

    /// Returns how long the news of a failure may take to reach all members that are not stopped.
    pub(super) fn news_ns(&self) -> u64 {
        // Linked members learn it at once; larger teams are not linked completely.
        let hops = if self.size() <= collective::ALL_PAIRS_MAX { 1 } else { self.size().into() };
        self.network.loss_detection_ns + 2 * hops * self.word_ns()
    }

    /// Returns how long all operations take at most if nothing is delayed, with the detection of a death: every piece goes
    /// along each level of a tree alone, and its slot is freed before the next. Blocks of long operations also pass all
    /// members one after another.
    pub fn moving_ns(&self) -> u64 {
        let levels = 2 * u64::from(self.size().max(2).ilog2() + 2);
        let room = u64::from(self.slot_bytes.saturating_sub(collective::HEADER_BYTES as u32));
        let call_ns = |call: &CallPlan| {
            let bytes = call.memory_bytes(self.size());
            // What is short goes through slots, whatever this says.
            let through_slots =
                (bytes.div_ceil(room.max(1)) + 2) * self.step_ns(self.slot_bytes.into());
            let in_blocks = if self.costs.is_some() {
                // Of any length from 1 KiB on.
                let blocks = bytes.div_ceil(1024) + 2 * u64::from(self.size());
                blocks * self.block_step_ns(bytes)
            } else if bytes < self.long_bytes {
                0
            } else {
                let blocks = bytes.div_ceil(self.block_bytes.into()) + 2 * u64::from(self.size());
                blocks * self.block_step_ns(u64::from(self.block_bytes).min(bytes))
            };
            2 * levels * through_slots.max(in_blocks)
        };
        let calls_ns: u64 = self.calls.iter().chain([&CallPlan::BARRIER]).map(call_ns).sum();
        let probes_ns = if self.probed.is_some() { 2 * PROBES * self.word_ns() } else { 0 };
        self.network.loss_detection_ns + probes_ns + calls_ns + self.news_ns()
    }

    /// Returns how long a piece takes to the next member, with the word that it may come, and the one that it has.
    fn step_ns(&self, bytes: u64) -> u64 {
        2 * self.word_ns() + self.port_ns(bytes) + 1_000
    }

    /// As [`TeamScenario::step_ns`], for a block, whose sending and arrival the network delays at random.
    fn block_step_ns(&self, bytes: u64) -> u64 {
        let NetworkPlan { block_jitter_percent, delivery_jitter_ns_max, .. } = self.network;
        let jitter_ns = self.port_ns(bytes) * block_jitter_percent / 100;
        self.step_ns(bytes) + jitter_ns + delivery_jitter_ns_max
    }

    /// Returns how long bytes occupy the slowest port.
    fn port_ns(&self, bytes: u64) -> u64 {
        bytes * 1_000_000_000 / self.slowest_bytes_per_s()
    }

    /// Returns how long members may compute or start late in all.
    pub fn computing_ns(&self) -> u64 {
        let calls = self.calls.len() as u64 + 1;
        let compute = self.members.iter().map(|member| member.compute_ns_max).max().unwrap_or(0);
        let start = self.members.iter().map(|member| member.start_ns).max().unwrap_or(0);
        start + calls * compute
    }

    /// Returns how long a run may last after something was delayed: the timeouts, and the rest of the run.
    pub fn deadlines_ns(&self) -> u64 {
        let net = &self.network;
        let network_ms = net.silence_timeout_ms + net.drain_timeout_ms;
        // Once for an operation, once for the end of the team.
        2 * self.timeout_ns + network_ms * 1_000_000 + self.moving_ns()
    }

    fn slowest_bytes_per_s(&self) -> u64 {
        let ports = self.members.iter().filter_map(|member| member.rate_bytes_per_s);
        let faults = self.faults.iter().filter_map(|fault| match fault.what {
            TeamFault::Member(MemberFault::Rate { bytes_per_s, .. }) => Some(bytes_per_s),
            _ => None,
        });
        let slowest = ports.chain(faults).min().unwrap_or(u64::MAX);
        slowest.min(self.network.rate_bytes_per_s).max(1)
    }

    /// Checks that a scenario from a file is valid.
    ///
    /// Errors: what is invalid.
    pub fn check(&self) -> Result<(), String> {
        let size = self.size();
        if size == 0 {
            return Err("a team needs a member".to_owned());
        }
        let settings = self.settings(0);
        settings.check().map_err(|error| error.to_string())?;
        let room = u64::from(self.slot_bytes) - collective::HEADER_BYTES as u64;
        self.calls.iter().try_for_each(|call| call.check(size, room))?;
        if self.members.iter().any(|member| member.window == 0 || member.lends && member.window > 1)
        {
            return Err("a member has an operation under way; one if it lends memory".to_owned());
        }
        // Otherwise operations that nothing disturbs time out.
        if self.timeout_ns < self.moving_ns() + self.computing_ns() {
            return Err(format!("timeout_ns has to be {} at least", self.moving_ns()));
        }
        let names_none = |planned: &&PlannedFault<TeamFault>| {
            planned.what.members().iter().any(|&it| it >= size)
        };
        match self.faults.iter().find(names_none) {
            Some(planned) => Err(format!("{:?} names no member", planned.what)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for TeamScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { members, calls, faults, .. } = self;
        let (rest_calls, rest_members, rest_faults) = (Vec::new(), Vec::new(), Vec::new());
        let rest =
            Self { calls: rest_calls, members: rest_members, faults: rest_faults, ..self.clone() };
        writeln!(f, "{} members; {rest:?}", members.len())?;
        for (rank, member) in members.iter().enumerate() {
            writeln!(f, "member {rank}: {member:?}")?;
        }
        for (number, call) in calls.iter().enumerate() {
            writeln!(f, "operation {number}: {call:?}")?;
        }
        faults.iter().try_for_each(|fault| write!(f, "{fault}"))
    }
}
