//! The root's decisions, as a state machine without threads, clock and connections.
//!
//! The driver sets [`Coordinator::now`], passes events in and calls [`Coordinator::advance`]; operations go out
//! through [`Effects`]. Each host goes through the steps of [`Step`], mostly on its own ([`Hosts`]): only starting
//! a fabric and the first groups wait for all. When no group is running and a host lacks data, new groups send
//! what is missing ([`super::parts`]).

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use plan::choice::Choice;
use rdmc::{Algorithm, Error, Fabric, Failure};

use super::{
    blame::{Blame, Response},
    effects::Effects,
    group::{PushGroup, Verdict},
    host::{Host, Step},
    hosts::{HostEvent, Hosts},
    parts::{Holder, Part, parts},
    regroup::{Slowness, has_unserved_host},
    settings::{HostPlan, PushError, PushEvent, PushSettings},
    source_digest::{Mismatch, SourceDigest},
    source_look::SourceLook,
};
use crate::{
    SourceError,
    digests::Digests,
    messages::{GIVEN_UP, Start, ToReceiver, ToRoot},
    ranges::{RangeList, Ranges},
};

/// How long a push that ends early waits for hosts that publish.
const LAST_ANSWER: Duration = Duration::from_secs(10);
/// The reason for a host whose copy differs from a source that gave the same digest twice.
const DIFFERS: &str = "its copy differs from the source, which has the same digest as before: either it was \
                       written to during the push and its modification time was kept, or that machine's \
                       memory or network is faulty. Run the push again";

pub struct Coordinator<'a> {
    /// Since the start of the push.
    pub now: Duration,
    pub(super) settings: &'a PushSettings,
    /// Length of the object.
    bytes: u64,
    /// The object is a tree, whose files have digests of their own.
    is_tree: bool,
    pub hosts: Hosts<'a>,
    groups: BTreeMap<u64, PushGroup>,
    /// The first groups have been started; hosts that become ready later get groups of their own.
    has_begun: bool,
    source_digest: SourceDigest,
    source_look: SourceLook,
    fabric: Option<Fabric>,
    /// How often groups were started; groups of one round often fail together, for one cause.
    rounds: u32,
    blame: Blame,
    /// Why members relay instead of switches.
    pub fell_back: Option<String>,
    slowness: Slowness,
    /// Why the push ends early; then nothing new is started, and only hosts that publish are waited for.
    pub stopped: Option<PushError>,
    /// Members of the largest group of the last round, the root included.
    pub members: usize,
    pub choice: Option<Choice>,
}

impl<'a> Coordinator<'a> {
    /// A push of an object of this length; 0 without one.
    pub fn new(settings: &'a PushSettings, bytes: u64) -> Self {
        Self {
            now: Duration::ZERO,
            settings,
            bytes,
            is_tree: false,
            hosts: Hosts::new(settings, bytes),
            groups: BTreeMap::new(),
            has_begun: false,
            source_digest: SourceDigest::default(),
            source_look: SourceLook::default(),
            fabric: None,
            rounds: 0,
            blame: Blame::default(),
            fell_back: None,
            slowness: Slowness::new(settings.rate_min),
            stopped: None,
            members: 0,
            choice: None,
        }
    }

    /// The same for a push of a tree: each host verifies the files that it did not have.
    pub fn of_tree(settings: &'a PushSettings, bytes: u64) -> Self {
        Self { is_tree: true, ..Self::new(settings, bytes) }
    }

    /// Whether every host has published or failed, and no group is left.
    pub fn is_over(&self) -> bool {
        self.groups.is_empty() && !self.hosts.iter().any(Host::is_open)
    }

    /// Whether the first groups still wait for hosts.
    pub fn is_gathering(&self) -> bool {
        self.hosts.are_gathering(self.now)
    }

    /// The state of all hosts and groups, for messages of simulations.
    pub fn describe(&self) -> String {
        let steps: Vec<&Step> = self.hosts.iter().map(|host| &host.step).collect();
        format!("{steps:?} in {:?}", self.groups)
    }

    /// When [`Coordinator::advance`] must be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let groups = self.groups.values().filter_map(PushGroup::deadline);
        let unawaited = self.hosts.next_unawaited(self.now).filter(|_| !self.has_begun);
        let look = self.source_look.deadline();
        groups.chain(self.hosts.deadline()).chain(unawaited).chain(look).min()
    }

    /// Adds a host that joins; returns its index.
    pub fn admit(&mut self, plan: HostPlan) -> usize {
        self.hosts.add(plan, self.now)
    }

    /// A host has connected and got the offer.
    pub fn on_connected(
        &mut self,
        effects: &mut impl Effects,
        host: usize,
        ip: IpAddr,
        own_ip: IpAddr,
    ) {
        self.hosts.on_connected(effects, host, (ip, own_ip), self.now);
    }

    /// A host's connection has ended.
    pub fn on_disconnected(&mut self, effects: &mut impl Effects, host: usize, reason: &str) {
        let when = match self.hosts[host].step {
            Step::Publishing(_) => " while it published its copy",
            _ => "",
        };
        if self.hosts[host].is_open() {
            self.fail(effects, host, &format!("its receiver was lost{when}: {reason}"));
        }
    }

    /// A receiver cannot be started, or has ended early.
    pub fn on_start_failed(
        &mut self,
        effects: &mut impl Effects,
        host: usize,
        start: u32,
        reason: &str,
    ) {
        if self.hosts.expects(host) && self.hosts[host].start == start {
            self.fail(effects, host, reason);
        }
    }

    /// A host's existing data was compared with the source.
    pub fn on_compared(&mut self, effects: &mut impl Effects, host: usize, matching: Ranges) {
        self.hosts.on_compared(effects, host, matching, self.now);
    }

    /// The source was read. Errors: a second read gave another digest.
    pub fn on_source_digest(
        &mut self,
        effects: &mut impl Effects,
        digests: Digests,
    ) -> Result<(), PushError> {
        if self.source_digest.on_read(digests) { Ok(()) } else { Err(effects.source_differs()) }
    }

    /// The source was looked at again, and has not changed.
    pub fn on_source_unchanged(&mut self) {
        self.source_look.on_unchanged();
    }

    /// Whether the root is joining this group, to send in it.
    pub fn is_joining(&self, group: u64) -> bool {
        self.groups.get(&group).is_some_and(PushGroup::is_joining)
    }

    /// The root has joined a group, or failed to.
    pub fn on_joined(
        &mut self,
        effects: &mut impl Effects,
        group: u64,
        outcome: Result<(), Error>,
    ) -> Result<(), PushError> {
        let Some(state) = self.groups.get_mut(&group) else { return Ok(()) };
        match outcome {
            // Aborted meanwhile.
            Ok(()) if !state.is_joining() => Ok(()),
            Ok(()) => {
                state.start_running(self.now);
                self.hosts.first_sent.get_or_insert(self.now);
                let ranges = state.part.ranges.clone();
                effects.send_ranges(group, &ranges)
            }
            Err(error) => {
                state.not_joined_here(&error);
                self.begin_failing(effects, group, "a member could not join");
                Ok(())
            }
        }
    }

    /// The root's group has closed with success, or failed.
    pub fn on_ended(
        &mut self,
        effects: &mut impl Effects,
        group: u64,
        outcome: Result<(), Failure>,
    ) {
        match outcome {
            Ok(()) => self.succeeded(effects, group),
            Err(failure) => {
                if let Some(state) = self.groups.get_mut(&group) {
                    state.failed_here(&failure);
                    self.begin_failing(effects, group, "the group has failed");
                }
            }
        }
    }

    /// A message from a host.
    pub fn on_message(&mut self, effects: &mut impl Effects, host: usize, message: ToRoot) {
        match self.hosts.on_message(effects, host, message, self.now) {
            Some(HostEvent::Waited { group, waited }) => {
                if let Some(state) = self.groups.get_mut(&group) {
                    state.set_waited(Some(host), waited);
                }
            }
            // What a host says of a group that it is not in counts for nothing.
            Some(HostEvent::Closed { group } | HostEvent::GroupFailed { group, .. })
                if !self.groups.get(&group).is_some_and(|it| it.has_member(host)) => {}
            Some(HostEvent::Closed { group }) => self.succeeded(effects, group),
            Some(HostEvent::GroupFailed { group, blamed, detail, has }) => {
                if let Some(state) = self.groups.get_mut(&group) {
                    self.hosts[host].has.extend(has.iter());
                    state.reported(host, blamed);
                    let reason = match state.is_in_switch() {
                        // No host is blamed for that, so the reason has to name the member.
                        true => format!("{}: {detail}", self.hosts[host].plan.name),
                        false => detail,
                    };
                    self.begin_failing(effects, group, &reason);
                }
            }
            Some(HostEvent::Failed { reason }) => self.fail(effects, host, &reason),
            None => {}
        }
    }

    /// Does everything that is possible now. Errors: those that end the push.
    pub fn advance(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        self.gather(effects)?;
        if self.stopped.is_some() {
            return Ok(());
        }
        self.check_rates(effects)?;
        self.conclude_failed(effects)?;
        self.start_groups(effects)?;
        self.verify_and_publish(effects)
    }

    /// Gives up hosts that are late and starts fabrics.
    pub fn gather(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        for (host, reason) in self.hosts.late(effects, self.now) {
            self.fail(effects, host, &reason);
        }
        if self.settings.dry_run {
            self.hosts.examine(effects, self.now);
        }
        let prepared = self.hosts.all_prepared(self.fabric.is_none(), self.now);
        if prepared.is_empty() {
            return Ok(());
        }
        let fabric = match self.fabric.take() {
            Some(fabric) => fabric,
            None => effects.start_fabric(&|fabric| {
                let name = fabric.name();
                prepared.iter().all(|&host| self.hosts[host].fabrics.contains(&name))
            })?,
        };
        for host in prepared {
            self.hosts.use_fabric(effects, host, fabric.name(), self.now);
            if self.is_tree {
                let lacking = self.source_digest.request(&self.hosts[host].kept, self.bytes);
                if !lacking.is_empty() {
                    effects.digest_source(&lacking)?;
                }
            }
        }
        self.fabric = Some(fabric);
        Ok(())
    }

    /// Checks the rates of running groups. Errors: the source has changed.
    fn check_rates(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        let is_due = |(&group, state): (&u64, &mut PushGroup)| {
            (state.is_running() && state.rate.is_due(self.now)).then_some(group)
        };
        let due: Vec<u64> = self.groups.iter_mut().filter_map(is_due).collect();
        if due.is_empty() {
            return Ok(());
        }
        effects.check_source()?;
        for &group in &due {
            let Some(state) = self.groups.get_mut(&group) else { continue };
            if state.part.source.is_none() {
                state.set_waited(None, effects.waited(group));
            }
            let slow = self.slowness.judge(state, &mut self.hosts, self.bytes, self.now);
            if let Some((host, bytes_per_second)) = slow {
                tracing::info!(host = self.hosts[host].plan.name, bytes_per_second, "deferred");
                effects.observe(PushEvent::Deferred { host, bytes_per_second });
                self.regroup(effects, &[group]);
            }
        }
        if has_unserved_host(&self.hosts, &self.groups, self.bytes, self.now) {
            self.regroup(effects, &due);
        }
        Ok(())
    }

    /// Ends these groups; what is missing is planned again once their members have reported what they have.
    fn regroup(&mut self, effects: &mut impl Effects, groups: &[u64]) {
        for &group in groups {
            if let Some(state) = self.groups.get_mut(&group) {
                state.is_wanted = false;
                self.begin_failing(effects, group, "new groups replace it");
            }
        }
    }

    /// Concludes failed groups whose members have reported, or had their time.
    fn conclude_failed(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        let groups: Vec<u64> = self.groups.keys().copied().collect();
        for group in groups {
            let Some(state) = self.groups.get_mut(&group) else { continue };
            if state.is_joining() && state.deadline().is_some_and(|until| self.now >= until) {
                self.begin_failing(effects, group, "it took too long to join");
            } else if state.is_failing()
                && let Verdict::Over { silent } = state.judge(self.now)
            {
                self.conclude(effects, group, &silent)?;
            }
        }
        Ok(())
    }

    /// After a failed group: gives up the hosts that are lost; the others stay ready.
    fn conclude(
        &mut self,
        effects: &mut impl Effects,
        group: u64,
        silent: &[usize],
    ) -> Result<(), PushError> {
        let Some(state) = self.groups.remove(&group) else { return Ok(()) };
        self.hosts.keep_shares(state.shares());
        // A changed source explains any failure, and no further group could succeed.
        effects.check_source()?;
        let why = state.why();
        for &host in silent {
            self.fail(effects, host, &format!("it no longer answers: {why}"));
        }
        match self.blame.judge(&state, silent, self.rounds, &mut self.hosts) {
            Response::Continue => {}
            Response::FailHost(host) => self.fail(effects, host, &format!("it {why}")),
            Response::Relay if self.fell_back.is_none() => {
                tracing::info!(reason = why, "switches cannot copy; members relay");
                effects.observe(PushEvent::FellBack { reason: why.clone() });
                self.fell_back = Some(why);
            }
            Response::Relay => {}
            Response::End => return Err(PushError::Group(why)),
        }
        Ok(())
    }

    /// If no group is running: starts groups for what is missing.
    fn start_groups(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        let waits = !self.has_begun && self.is_gathering();
        if waits || !self.groups.is_empty() {
            return Ok(());
        }
        let ready = self.hosts.iter().enumerate().filter(|(_, host)| host.is_ready());
        let holders: Vec<Holder<'_>> = ready
            .filter(|(_, host)| !self.hosts.must_wait(host))
            .map(|(index, host)| Holder {
                host: index,
                has: &host.has,
                sends: host.deferred_at.is_none() && !host.keeps_unread,
            })
            .collect();
        let parts = parts(self.bytes, &holders);
        self.has_begun |= !holders.is_empty();
        let Some(members) = parts.iter().map(|part| part.hosts.len() + 1).max() else {
            return Ok(());
        };
        self.members = members;
        self.rounds += 1;
        effects.observe(PushEvent::Round { members });
        for part in parts {
            self.start(effects, part)?;
        }
        Ok(())
    }

    fn start(&mut self, effects: &mut impl Effects, part: Part) -> Result<(), PushError> {
        let Some(fabric) = &self.fabric else { return Ok(()) };
        let root = part.source.is_none();
        let mut addresses = Vec::new();
        let mut racks = Vec::new();
        if root {
            addresses.push(self.hosts.own_address(effects.address()));
            racks.push(self.settings.root_rack);
        } else {
            self.hosts.first_sent.get_or_insert(self.now);
        }
        for &host in part.source.iter().chain(&part.hosts) {
            let known = &self.hosts[host];
            addresses.extend(known.ip.map(|ip| SocketAddr::new(ip, known.port)));
            racks.push(known.plan.rack);
        }
        for &host in &part.hosts {
            let known = &mut self.hosts[host];
            known.repeated_bytes += known.has.intersection(&part.ranges).bytes();
        }
        let (members, algorithm) = (addresses.len(), self.algorithm(&part));
        let choice = self.settings.choose(algorithm, &racks, part.ranges.bytes(), fabric);
        self.choice = Some(choice);
        let window = self.settings.window(members, choice.block_bytes);
        let mut start = Start {
            group: effects.group_number()?,
            rank: 0,
            ranges: RangeList::from(&part.ranges),
            addresses,
            racks,
            algorithm: choice.algorithm.code(),
            block_bytes: choice.block_bytes,
            window_receives: window.receives,
            window_sends: window.sends,
            messages_in_flight: part.ranges.iter().count().clamp(2, 16) as u32,
            offload: self.settings.offload,
        };
        if root {
            effects.join(&start)?;
            start.rank = 1;
        }
        let joining_until = self.now + self.settings.join_timeout();
        let state = PushGroup::new(part, choice.algorithm, self.now, joining_until);
        for host in state.members() {
            effects.send_message(host, &ToReceiver::Start(start.clone()));
            start.rank += 1;
        }
        self.groups.insert(start.group, state);
        Ok(())
    }

    /// The requested algorithm; `None` for the fastest. Switches copy only what the root sends, and only
    /// until that has failed.
    fn algorithm(&self, part: &Part) -> Option<Algorithm> {
        let can_copy = part.source.is_none() && self.fell_back.is_none();
        self.settings.algorithm.filter(|&asked| asked != Algorithm::InSwitch || can_copy)
    }

    /// Verifies and publishes complete copies.
    fn verify_and_publish(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        for host in 0..self.hosts.len() {
            if self.hosts[host].step == Step::Mismatch {
                effects.check_source()?;
                match self.source_digest.on_mismatch() {
                    Mismatch::ReadAgain(ranges) => effects.digest_source(&ranges)?,
                    Mismatch::Wait => {}
                    Mismatch::CopyIsWrong => self.fail(effects, host, DIFFERS),
                }
            }
            let known = &self.hosts[host];
            if known.step == Step::Ready && known.has.covers((0, self.bytes)) {
                self.hosts.set_complete(effects, host, self.now);
                let kept = &self.hosts[host].kept;
                if let Some(digest) = self.source_digest.of_copy(self.is_tree, kept, self.bytes) {
                    self.hosts.compare(effects, host, digest, self.now);
                }
            }
        }
        let verified: Vec<usize> =
            (0..self.hosts.len()).filter(|&host| self.hosts[host].step == Step::Verified).collect();
        // A host that publishes leaves its groups, in which others may still need it as a relay.
        let is_needed = |host: usize| self.groups.values().any(|state| state.needs(host));
        let free: Vec<usize> = verified.into_iter().filter(|&host| !is_needed(host)).collect();
        let starts = free.iter().map(|&host| (host, self.hosts[host].start)).collect();
        let look = self.source_look.judge(starts, self.now)?;
        if look.begins {
            effects.look_at_source()?;
        }
        for host in look.unchanged {
            self.hosts.publish(effects, host, self.now);
        }
        Ok(())
    }

    /// A group has closed: all of its members have its part.
    fn succeeded(&mut self, effects: &mut impl Effects, group: u64) {
        let Some(state) = self.groups.remove(&group) else { return };
        self.hosts.keep_shares(state.shares());
        for host in state.receivers_left() {
            self.hosts[host].has.extend(state.part.ranges.iter());
        }
        // The root's own group may not have ended yet.
        if state.is_failing() {
            effects.abort(group, "all members have it");
        }
    }

    fn begin_failing(&mut self, effects: &mut impl Effects, group: u64, reason: &str) {
        let Some(state) = self.groups.get_mut(&group) else { return };
        if !state.begin_failing(self.now, reason) {
            return;
        }
        tracing::debug!(group, reason, "aborting a group");
        effects.abort(group, GIVEN_UP);
        for host in state.members() {
            if !state.has_reported(host) {
                effects.send_message(host, &ToReceiver::Leave { group });
            }
        }
    }

    /// Gives a host up or schedules a retry; its groups fail.
    pub fn fail(&mut self, effects: &mut impl Effects, host: usize, reason: &str) {
        let keep = self.keeps_partial();
        let known = &self.hosts[host];
        tracing::debug!(host = known.plan.name, reason, "host failed");
        effects.send_message(host, &ToReceiver::Abort { reason: reason.to_owned(), keep });
        let name = known.plan.name.clone();
        self.hosts.lose(effects, host, reason, self.now);
        let groups = self.groups.iter_mut();
        let its_groups: Vec<u64> =
            groups.filter_map(|(&group, state)| state.lose(host).then_some(group)).collect();
        for group in its_groups {
            self.begin_failing(effects, group, &format!("{name}: {reason}"));
        }
    }

    /// Ends the push early; it is over when [`Coordinator::is_over`]. Groups and all other hosts are given up at
    /// once. Hosts that were told to publish may have done so and are waited for, up to [`LAST_ANSWER`]. A second
    /// interrupt ends that wait; other errors after the first are ignored.
    pub fn stop(&mut self, effects: &mut impl Effects, error: PushError) {
        let is_interrupt = matches!(error, PushError::Cancelled);
        let reason = match &error {
            PushError::Cancelled => "interrupted at the root".to_owned(),
            other => other.to_string(),
        };
        if self.stopped.is_some() {
            let open = (0..self.hosts.len()).filter(|&host| self.hosts[host].is_open());
            let open: Vec<usize> = open.filter(|_| is_interrupt).collect();
            open.into_iter().for_each(|host| self.fail(effects, host, &reason));
            return;
        }
        self.stopped = Some(error);
        let (publishing, others) = self.hosts.end(LAST_ANSWER, self.now);
        others.into_iter().for_each(|host| self.fail(effects, host, &reason));
        for group in std::mem::take(&mut self.groups).into_keys() {
            effects.abort(group, &reason);
        }
        if publishing > 0 {
            effects.observe(PushEvent::Stopping { publishing });
        }
    }

    /// Whether hosts keep their partial copies for a later push: unless the source has changed.
    fn keeps_partial(&self) -> bool {
        !matches!(self.stopped, Some(PushError::Source(SourceError::Changed { .. })))
    }

    /// The outcome of a push that is over.
    pub fn outcome(&mut self) -> Result<(), PushError> {
        let is_done =
            |host: &Host| matches!(host.step, Step::Published | Step::Examined | Step::Shares(_));
        let all_published = self.hosts.iter().all(is_done);
        match self.stopped.take() {
            Some(error) if !all_published => Err(error),
            _ => Ok(()),
        }
    }
}
