//! Checks after a push.

use files::{PushError, machines::Step};

use super::{
    facts::{Injected, PushEnd},
    scenario::{Fault, HostFaults, HostScenario, SourceFaults},
    traffic::Traffic,
    world::{SECOND_NS, World},
};

/// What the faults of a run may have disturbed.
#[derive(Default)]
struct Disturbances {
    /// Whether the root or all hosts were disturbed: any host may fail.
    all: bool,
    /// Whether this host was disturbed and may fail.
    host: bool,
    /// How many lost connections it was an end of: a host fails at the second.
    connections_lost: u32,
}

/// What hosts without faults need to prepare their targets and fabrics, and their threads to look, twice: one that connects meanwhile
/// is waited for, too.
const PREPARED_NS: u64 = 8 * SECOND_NS;
/// Storage that takes as long for a read or write may count as stuck.
const STORED_NS: u64 = 45 * SECOND_NS;
/// A host or the root that stops for less loses no connection.
const TOLERATED_NS: u64 = 2 * SECOND_NS;

fn disturbances(faults: &[Injected], host: usize) -> Disturbances {
    let own = host as u32 + 1;
    let mut disturbances = Disturbances::default();
    // Durations of short stops add up.
    let held = |of: u32| -> u64 {
        let holds = faults.iter().filter_map(|done| match &done.what {
            Fault::Freeze { machine, .. } | Fault::Pause { machine, .. } if *machine == of => {
                Some(done.what.holds_ns())
            }
            _ => None,
        });
        holds.fold(0, u64::saturating_add)
    };
    disturbances.all |= held(0) >= TOLERATED_NS;
    disturbances.host |= held(own) >= TOLERATED_NS;
    for done in faults {
        match &done.what {
            Fault::Kill { machine: 0, .. } | Fault::Cancel | Fault::Corrupt { .. } => {
                disturbances.all = true
            }
            Fault::Kill { machine, .. } | Fault::HangUp { machine } => {
                disturbances.host |= *machine == own;
            }
            Fault::Reset { machines } => {
                disturbances.connections_lost += u32::from(machines.contains(&own))
            }
            Fault::Partition { machines, .. } => {
                if machines.contains(&own) {
                    disturbances.host |= done.what.holds_ns() >= TOLERATED_NS;
                }
                disturbances.connections_lost += 1;
            }
            // Its neighbours may name each other as the cause.
            Fault::Freeze { .. } | Fault::Pause { .. } | Fault::Rate { .. } => {}
        }
    }
    disturbances
}

impl World<'_> {
    /// Returns how long a push may take after the last disturbance.
    pub(super) fn bound_ns(&self) -> u64 {
        let members = u64::from(self.scenario.machines());
        let own_ns = |host: &HostScenario| {
            let HostFaults { absent_ns, prepare_ns, fabric_ns, .. } = host.faults;
            let rate = host.rate_bytes_per_s.unwrap_or(self.scenario.network.rate_bytes_per_s);
            let alone_ns = self.scenario.bytes.saturating_mul(SECOND_NS) / rate;
            // Each block is written, and read again for those that it is relayed to.
            let jobs = (self.scenario.bytes / self.scenario.block_bytes + 2) * members
                + self.scenario.files.len() as u64;
            absent_ns + prepare_ns + fabric_ns + host.verify_ns + alone_ns + jobs * host.store_ns
        };
        let slowest_ns = self.scenario.hosts.iter().map(own_ns).max().unwrap_or(0);
        (600 * SECOND_NS * u64::from(self.scenario.retries + 1)).max(slowest_ns * 3)
    }

    /// Checks that the first groups have not waited for hosts that connect late or never.
    ///
    /// Without faults, of a file or a tree: the beginning of a stream is not kept, so all hosts are waited for.
    fn check_start(&mut self) {
        // One that joins while others prepare is waited for as they are.
        let faultless = |host: &HostScenario| host.faults == HostFaults::default() && !host.joins;
        // Of one that has everything only the copy is compared and published, however long that takes.
        let files = self.scenario.files.len().max(1);
        let lacks =
            |host: &HostScenario| host.partial_percent < 100 && host.kept_files.len() < files;
        let is_judged = self.scenario.stream.is_none()
            && !self.scenario.serves
            && self.facts.pushes == 1
            && self.facts.faults.is_empty()
            // A group for the listing may fail by a firewall.
            && (self.scenario.firewalls.is_empty() || self.scenario.listing_bytes == 0)
            && self.scenario.hosts.iter().all(faultless)
            && self.scenario.hosts.iter().all(lacks);
        let (Some(first_ns), true) = (self.facts.first_round_ns, is_judged) else { return };
        // Without bytes that it lacks a copy is published without a group.
        let published = self.facts.hosts.iter().filter_map(|host| host.published_ns);
        let began_ns = published.chain([first_ns]).min().unwrap_or(first_ns);
        let connected = &self.facts.connected_ns;
        let late_from = |count: usize| {
            let median = connected[(count - 1) / 2];
            connected[count - 1] + (2 * SECOND_NS).max(3 * median)
        };
        // The last of those that were waited for.
        let is_last =
            |&count: &usize| connected.get(count).is_none_or(|&next| next > late_from(count));
        let Some(count) = (1..=connected.len()).find(is_last) else { return };
        // Comparing what a host has takes a quarter of digesting everything at most.
        let prepared_ns = PREPARED_NS + self.scenario.digest_ns / 4;
        if began_ns > late_from(count) + prepared_ns + self.listing_ns() {
            self.facts.violated(format!(
                "groups began at {began_ns} ns, hosts connected at {connected:?}"
            ));
        }
    }

    /// Returns how much later hosts may be prepared that get a listing first: they all begin once it has come, one after the other
    /// at worst.
    fn listing_ns(&self) -> u64 {
        if self.scenario.listing_bytes == 0 {
            return 0;
        }
        let rates = self.scenario.hosts.iter().filter_map(|host| host.rate_bytes_per_s);
        let rate = rates.chain([self.scenario.network.rate_bytes_per_s]).min().unwrap_or(1).max(1);
        // Blocks may take longer than their bytes.
        let bytes = 2 * self.scenario.listing_bytes * u64::from(self.scenario.machines());
        PREPARED_NS + bytes.saturating_mul(SECOND_NS) / rate
    }

    /// Checks the first push after its end.
    pub(super) fn check_push(&mut self) {
        self.check_start();
        let root_died = self.root.outcome.is_none();
        if let Some(outcome) = &self.root.outcome {
            let end = PushEnd {
                error: outcome.as_ref().err().map(ToString::to_string),
                steps: (0..self.scenario.hosts.len())
                    .map(|host| self.step_of(host).cloned())
                    .collect(),
                published_ns: self.facts.hosts.iter().map(|host| host.published_ns).collect(),
                first_round_ns: self.facts.first_round_ns.take(),
                traffic: Traffic::default(),
            };
            self.facts.ends.push(end);
        }
        if let Some(Err(error)) = &self.root.outcome {
            let is_explained = match error {
                PushError::Cancelled => {
                    self.facts.faults.iter().any(|done| done.what == Fault::Cancel)
                }
                PushError::Source(_) => {
                    self.is_first() && self.has_source_faults() || self.is_replaced(self.push_ns())
                }
                PushError::Group(_) => self.facts.faults.len() > 1,
                PushError::Input(_) => self.reader_fails(),
                // Its host is checked below.
                PushError::NotAll { .. } => {
                    let has_published = self.facts.hosts.iter().any(|host| host.has_published);
                    self.scenario.all_or_none && !has_published
                }
                _ => false,
            };
            if !is_explained {
                let error = error.to_string();
                self.facts.violated(format!("the push has failed: {error}"));
            }
        }
        if self.scenario.all_or_none {
            let published = self.facts.hosts.iter().filter(|host| host.has_published).count();
            let kind =
                if published == 0 { 2 } else { usize::from(published < self.facts.hosts.len()) };
            self.facts.counts.all_or_none.0[kind] += 1;
        }
        for host in 0..self.scenario.hosts.len() {
            if !root_died {
                self.check_host(host);
            }
            let facts = &mut self.facts.hosts[host];
            (facts.has_published, facts.published_ns) = (false, None);
            (facts.verified_ns, facts.has_stored) = (None, false);
            facts.has_connected = false;
        }
    }

    fn check_host(&mut self, host: usize) {
        let plan = &self.scenario.hosts[host];
        let now_ns = self.now_ns();
        let published = self.machines[host + 1].disk.published(now_ns);
        let is_whole = published.is_some_and(|copy| copy == &self.source[..]);
        let Some(step) = self.step_of(host) else { return };
        let disturbances = disturbances(&self.facts.faults, host);
        let is_first = self.facts.pushes == 1;
        let is_late = is_first && (plan.is_absent || plan.start_ns >= 29 * SECOND_NS);
        let is_stuck = plan.store_ns >= STORED_NS;
        let has_faults = plan.faults != HostFaults::default() || self.has_source_faults();
        let may_differ = has_faults
            || self.facts.faults.iter().any(|done| matches!(done.what, Fault::Corrupt { .. }));
        let own = host as u32 + 1;
        let firewalls = &self.scenario.firewalls;
        // Others get their copies from the root, but for a stream, whose beginning is not kept.
        let is_cut_off = self.scenario.has_firewall(0, own)
            || self.scenario.stream.is_some() && firewalls.iter().any(|pair| pair.contains(&own));
        let may_fail = is_first
            && (has_faults
                || disturbances.all
                || matches!(
                    self.root.outcome,
                    Some(Err(PushError::Source(_) | PushError::Input(_)))
                )
                || disturbances.host
                || disturbances.connections_lost > 1)
            || is_late
            || is_stuck
            || is_cut_off;
        let not_all = match &self.root.outcome {
            Some(Err(error @ PushError::NotAll { .. })) => Some(error.to_string()),
            _ => None,
        };
        let has_published = self.facts.hosts[host].has_published;
        let problem = match step {
            Step::Published if !has_published || !is_whole => "counts as published".to_owned(),
            Step::Failed(reason) if has_published => format!("has published, and not: {reason}"),
            Step::Published => {
                self.facts.counts.published += 1;
                return;
            }
            // Whatever faults hit a host, the bytes that it reports as received are correct.
            Step::Failed(reason) if reason.contains("differs from the source") && !may_differ => {
                format!("was taken for whole: {reason}")
            }
            Step::Failed(reason) if !may_fail && not_all.as_ref() != Some(reason) => {
                format!("failed although no fault had hit it: {reason}")
            }
            Step::Unknown(reason) if !may_fail => format!("is not known of: {reason}"),
            Step::Failed(_) | Step::Unknown(_) => {
                self.facts.counts.failed += 1;
                return;
            }
            step => format!("has neither a copy nor failed: {step:?}"),
        };
        self.facts.violated(format!("push {}, host {host} {problem}", self.facts.pushes));
    }

    /// Returns whether something other than a second writer befalls the source.
    fn has_source_faults(&self) -> bool {
        let others = SourceFaults { replaced_ns: None, ..self.scenario.source.clone() };
        others != SourceFaults::default()
    }

    /// Checks that no host is sent bytes again that the root has recorded as received. Only once all connections
    /// are settled: machines that stood still at the end of the push take late bytes of its groups then.
    pub(super) fn check_repeats(&mut self) {
        (0..self.scenario.hosts.len()).for_each(|host| self.check_repeats_of(host));
    }

    fn check_repeats_of(&mut self, host: usize) {
        let Some(core) = &self.root.core else { return };
        // A host that has joined again is a new host to the root.
        let seats = (core.hosts.iter().zip(&self.root.seats)).filter(|(_, seat)| seat.host == host);
        let (known, resumed) = seats.fold((0, 0), |(known, resumed), (host, _)| {
            (known + host.repeated_bytes, resumed + host.resumed_bytes)
        });
        let came = std::mem::take(&mut self.facts.hosts[host].bytes_again);
        self.facts.counts.resumed_bytes += resumed;
        self.facts.counts.bytes_again += came;
        self.facts.counts.bytes += self.scenario.bytes;
        if came > known {
            self.facts.violated(format!(
                "push {}, host {host} was sent {came} bytes again, and the root knows of {known}",
                self.facts.pushes
            ));
        }
    }

    /// Checks for leaks after the end.
    pub(super) fn check_leaks(&mut self) {
        for index in 0..self.processes.len() {
            let process = &self.processes[index];
            let leaks = process.watch.leaks();
            let stands_still = self.machines[process.machine].held_until_ns == u64::MAX;
            if !process.is_dead() && process.is_gone() && !stands_still && !leaks.is_empty() {
                self.facts.violated(format!("process {index}: {leaks} at the end"));
            }
        }
        for machine in 0..self.machines.len() {
            let is_living = |index: usize| !self.processes[index].is_gone();
            let disk = &self.machines[machine].disk;
            if disk.owner.is_some_and(|owner| !is_living(owner)) {
                self.facts.violated(format!("machine {machine}: the target was not let go of"));
            }
        }
        for line in 0..self.lines.len() {
            let [root, receiver] = [self.lines[line].root, self.lines[line].receiver];
            let are_gone = self.processes[root].is_gone() && self.processes[receiver].is_gone();
            if are_gone && !self.lines[line].has_ended() {
                self.facts.violated(format!("line {line} is open at the end"));
            }
        }
    }
}
