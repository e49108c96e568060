//! A push to many hosts, for its figures.

use serde::Serialize;

use super::{
    run::run,
    scenario::{HostScenario, PushScenario},
    traffic::Traffic,
};
use crate::{network::NetworkPlan, subject::Options};

const MS: u64 = 1_000_000;
/// After all else, also if it is counted from later.
const NEVER_NS: u64 = u64::MAX / 2;

/// A push to many hosts in one network: real state machines at both ends and real engines.
#[derive(Clone, Copy, Debug)]
pub struct ManyHosts {
    /// How many.
    pub hosts: usize,
    /// Length of the object.
    pub bytes: u64,
    /// Length of the listing of a tree; 0 for a file.
    pub listing_bytes: u64,
    /// Length of a block.
    pub block_bytes: u64,
    /// Rate of every port in bytes per second.
    pub rate_bytes_per_s: u64,
    /// How long a login takes.
    pub login_ns: u64,
    /// How many logins each machine makes, at the same time: the root to the first, these to the next, and so on.
    pub fanout: usize,
    /// One in this many hosts never connects, without an error; 0: none.
    pub one_silent_in: usize,
    /// One in this many hosts is killed, one after the other; 0: none.
    pub one_killed_in: usize,
    /// The last hosts whose ports have a tenth of the rate.
    pub slow: usize,
    /// The least rate below which a host is deferred, in percent of the ports' rate; 0: none.
    pub rate_min_percent: u64,
    /// How often each host may be lost and reconnect.
    pub retries: u32,
}

/// What became of a push to many hosts.
#[derive(Clone, Debug, Serialize)]
pub struct ManyReport {
    /// How many hosts there were, and how many have a copy.
    pub hosts: usize,
    /// See `hosts`.
    pub published: usize,
    /// When groups were started for the first time, in seconds.
    pub begun_s: f64,
    /// When half of those that have a copy had it.
    pub median_s: f64,
    /// When all hosts had it that are not slow and were not killed or silent.
    pub others_s: f64,
    /// When all had it.
    pub last_s: f64,
    /// How often groups were created for missing bytes.
    pub rounds: u64,
    /// Messages on control connections.
    pub traffic: Traffic,
    /// Steps of the simulation.
    pub steps: u64,
}

impl ManyHosts {
    /// A file of 64 MB in 64 blocks over links of 8 Gbit/s, with a thousandth of bytes and rate; logins of 0.3 s, 32 by each machine; no
    /// faults.
    pub fn new(hosts: usize) -> Self {
        Self {
            hosts,
            bytes: 64_000,
            listing_bytes: 0,
            block_bytes: 1_000,
            rate_bytes_per_s: 1_000_000,
            login_ns: 300 * MS,
            fanout: 32,
            one_silent_in: 0,
            one_killed_in: 0,
            slow: 0,
            rate_min_percent: 0,
            retries: 0,
        }
    }

    /// As [`ManyHosts::new`], with 140 GB in 1,400 blocks, as model weights of 70 billion parameters in 16 bits: with a hundred-thousandth of bytes
    /// and rate.
    pub fn long(hosts: usize) -> Self {
        Self { bytes: 1_400_000, rate_bytes_per_s: 10_000, ..Self::new(hosts) }
    }

    /// Runs it to its end.
    ///
    /// Errors: a violation of what the simulator checks.
    pub fn run(&self) -> Result<ManyReport, String> {
        let mut scenario = self.scenario();
        if self.one_killed_in > 0 {
            // In the middle of the transfer.
            let undisturbed = Self { one_killed_in: 0, ..*self }.run()?;
            let step = undisturbed.steps / 2;
            let killed = (0..self.hosts).filter(|&host| is_one_in(self.one_killed_in, host));
            killed.for_each(|host| scenario.kill(host as u32 + 1, step));
        }
        self.report(&scenario)
    }

    fn report(&self, scenario: &PushScenario) -> Result<ManyReport, String> {
        let outcome = run(scenario, Options { counts_bytes: true, ..Options::default() });
        if let Some(violation) = outcome.violations.first() {
            return Err(violation.clone());
        }
        let end = outcome.ends.first().ok_or("the push has no end")?;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let published = || end.published_ns.iter().enumerate();
        let is_other = |host| {
            let fails = |one_in| is_one_in(one_in, host);
            !self.is_slow(host) && !fails(self.one_killed_in) && !fails(self.one_silent_in)
        };
        let others = published().filter(|&(host, _)| is_other(host));
        let others_ns = others.filter_map(|(_, &time)| time).max();
        let mut times: Vec<u64> = published().filter_map(|(_, &time)| time).collect();
        times.sort_unstable();
        Ok(ManyReport {
            hosts: self.hosts,
            published: times.len(),
            begun_s: seconds(end.first_round_ns.unwrap_or(0)),
            median_s: seconds(times.get(times.len() / 2).copied().unwrap_or(0)),
            others_s: seconds(others_ns.unwrap_or(0)),
            last_s: seconds(times.last().copied().unwrap_or(0)),
            rounds: outcome.counts.rounds,
            traffic: end.traffic,
            steps: outcome.counts.basics.steps,
        })
    }

    fn scenario(&self) -> PushScenario {
        PushScenario {
            bytes: self.bytes,
            block_bytes: self.block_bytes,
            chunk_bytes: self.block_bytes,
            retries: self.retries,
            rate_min_percent: self.rate_min_percent,
            network: self.network(),
            word_ns_max: MS / 10,
            look_ns_max: MS / 10,
            digest_ns: 1,
            hosts: (0..self.hosts).map(|host| self.host(host)).collect(),
            hosts_per_rack: u32::MAX,
            files: if self.listing_bytes > 0 { vec![self.bytes] } else { Vec::new() },
            listing_bytes: self.listing_bytes,
            ..PushScenario::default()
        }
    }

    fn network(&self) -> NetworkPlan {
        NetworkPlan {
            rate_bytes_per_s: self.rate_bytes_per_s,
            latency_ns: MS / 20,
            control_jitter_ns_max: MS / 10,
            loss_detection_ns: MS,
            silence_timeout_ms: 8_000,
            drain_timeout_ms: 5_000,
            ..NetworkPlan::default()
        }
    }

    fn host(&self, host: usize) -> HostScenario {
        // Machine 0 is the root's; machine m was started by machine (m - 1) / fanout.
        let (mut machine, mut logins) = (host + 1, 0);
        while machine > 0 {
            machine = (machine - 1) / self.fanout.max(1);
            logins += 1;
        }
        let is_silent = is_one_in(self.one_silent_in, host);
        HostScenario {
            start_ns: if is_silent { NEVER_NS } else { logins * self.login_ns },
            disk_ns: MS,
            verify_ns: MS,
            rate_bytes_per_s: self.is_slow(host).then_some(self.rate_bytes_per_s / 10),
            ..HostScenario::default()
        }
    }

    fn is_slow(&self, host: usize) -> bool {
        host >= self.hosts - self.slow
    }
}

/// Whether a host is the one in this many hosts; 0: none is.
fn is_one_in(many: usize, host: usize) -> bool {
    many > 0 && host.is_multiple_of(many)
}
