//! What the root decides, as a state machine: it has no thread, no clock and no connection.
//!
//! Whoever drives it sets [`Coordinator::now`], tells it what has happened, and calls
//! [`Coordinator::advance`]; what it wants done it asks of a [`Stage`]. A host goes through the
//! steps of [`Step`], mostly on its own: only starting a fabric and the first groups wait for all.
//! Whenever no group is under way, and somebody lacks something, groups are made for what is missing
//! ([`super::parts`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use rdmc::{Error, Fabric, Failure, Waited, choice::Choice};

use super::{
    attempt::Attempt,
    host::{Host, Step},
    parts::{Holder, Part, parts},
    settings::{HostState, PushError, PushEvent, PushSettings},
    stage::Stage,
};
use crate::{
    messages::{GIVEN_UP, JOIN_TIMEOUT, Start, ToReceiver, ToRoot},
    ranges::{RangeList, Ranges},
};

pub struct Coordinator<'a> {
    /// In the push's time.
    pub now: Duration,
    pub(super) settings: &'a PushSettings,
    pub(super) bytes: u64,
    pub hosts: Vec<Host>,
    pub(super) attempts: BTreeMap<u64, Attempt>,
    /// Groups have been started: who is not ready yet comes later.
    has_begun: bool,
    /// When the first host could have taken part.
    pub(super) first_prepared: Option<Duration>,
    digest: Option<blake3::Hash>,
    /// It was asked for a second time: some copy differs.
    pub(super) is_reading_again: bool,
    /// It was read a second time, and was the same.
    pub(super) reads_the_same: bool,
    fabric: Option<Fabric>,
    first_sent: Option<Duration>,
    /// How often groups were started; those of one round often fail together, of one cause.
    pub(super) rounds: u32,
    /// Rounds in which a group has failed and nobody was to blame.
    pub(super) unexplained: BTreeSet<u32>,
    /// Why members relay although switches were to copy.
    pub fell_back: Option<String>,
    /// How fast the group was from which a host was set aside last.
    pub(super) last_set_aside: Option<f64>,
    is_publishing: bool,
    /// Why the push ends early: nothing new is begun, and only hosts that publish are waited for.
    pub stopped: Option<PushError>,
    /// Members of the largest group of the last attempt, the root included, and how it travelled.
    pub members: usize,
    pub choice: Option<Choice>,
}

impl<'a> Coordinator<'a> {
    /// A push of an object of this length; a bench has none.
    pub fn new(settings: &'a PushSettings, bytes: u64) -> Self {
        let host = |plan| Host::new(plan, settings.retries, settings.start_timeout);
        Self {
            now: Duration::ZERO,
            settings,
            bytes,
            hosts: settings.hosts.iter().cloned().map(host).collect(),
            attempts: BTreeMap::new(),
            has_begun: false,
            first_prepared: None,
            digest: None,
            is_reading_again: false,
            reads_the_same: false,
            fabric: None,
            first_sent: None,
            rounds: 0,
            unexplained: BTreeSet::new(),
            fell_back: None,
            last_set_aside: None,
            is_publishing: false,
            stopped: None,
            members: 0,
            choice: None,
        }
    }

    /// Whether every host has published or failed, and no group is left.
    pub fn is_over(&self) -> bool {
        self.attempts.is_empty() && !self.hosts.iter().any(Host::is_open)
    }

    /// Whether hosts that the first groups wait for are still on their way to being ready.
    pub fn is_gathering(&self) -> bool {
        self.hosts.iter().any(|host| self.is_waited_for(host))
    }

    /// Who is how far, for messages of simulations.
    pub fn describe(&self) -> String {
        let steps: Vec<&Step> = self.hosts.iter().map(|host| &host.step).collect();
        format!("{steps:?} in {:?}", self.attempts)
    }

    /// When [`Coordinator::advance`] has to be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let hosts = self.hosts.iter().filter_map(Host::deadline);
        let attempts = self.attempts.values().filter_map(Attempt::deadline);
        let gathering = self.next_unawaited().filter(|_| !self.has_begun);
        hosts.chain(attempts).chain(gathering).min()
    }

    /// Whether a host is waited for, so that it may come.
    pub fn expects(&self, host: usize) -> bool {
        matches!(self.hosts[host].step, Step::Awaited(_))
    }

    /// A host is there, and has been told what is to come.
    pub fn came(&mut self, stage: &mut impl Stage, host: usize, ip: IpAddr, own_ip: IpAddr) {
        let known = &mut self.hosts[host];
        (known.ip, known.own_ip) = (Some(ip), Some(own_ip));
        self.set(stage, host, Step::Preparing(self.now + self.prepare_timeout()));
    }

    /// A host's connection has ended.
    pub fn gone(&mut self, stage: &mut impl Stage, host: usize, how: &str) {
        let when = match self.hosts[host].step {
            Step::Publishing(_) => " while it published its copy",
            _ => "",
        };
        if self.hosts[host].is_open() {
            self.fail(stage, host, &format!("its receiver was lost{when}: {how}"));
        }
    }

    /// Whoever starts receivers says that one cannot be started.
    pub fn not_started(&mut self, stage: &mut impl Stage, host: usize, start: u32, reason: &str) {
        if self.expects(host) && self.hosts[host].start == start {
            self.fail(stage, host, reason);
        }
    }

    /// What a host has of an earlier session was compared.
    pub fn checked(&mut self, stage: &mut impl Stage, host: usize, right: Ranges) {
        if self.hosts[host].step == Step::Checking {
            self.hosts[host].resumed_bytes = right.bytes();
            self.hosts[host].has = right;
            self.set(stage, host, Step::Prepared);
        }
    }

    /// The source was read. Errors: for the second time, and it was not the same.
    pub fn digested(
        &mut self,
        stage: &mut impl Stage,
        digest: blake3::Hash,
    ) -> Result<(), PushError> {
        match *self.digest.get_or_insert(digest) {
            first if first != digest => return Err(stage.reads_differently()),
            _ if self.is_reading_again => self.reads_the_same = true,
            _ => {}
        }
        Ok(())
    }

    /// Whether the root is to send in this group, once it stands.
    pub fn is_joining(&self, group: u64) -> bool {
        self.attempts.get(&group).is_some_and(Attempt::is_joining)
    }

    /// The root has joined a group, or could not.
    pub fn joined(
        &mut self,
        stage: &mut impl Stage,
        group: u64,
        outcome: Result<(), Error>,
    ) -> Result<(), PushError> {
        let Some(attempt) = self.attempts.get_mut(&group) else { return Ok(()) };
        match outcome {
            // Given up meanwhile.
            Ok(()) if !attempt.is_joining() => Ok(()),
            Ok(()) => {
                attempt.stands(self.now);
                self.first_sent.get_or_insert(self.now);
                let ranges = attempt.part.ranges.clone();
                stage.send(group, &ranges)
            }
            Err(error) => {
                attempt.not_joined_here(&error);
                self.begin_failing(stage, group, "a member could not join");
                Ok(())
            }
        }
    }

    /// The root's group has closed with success, or failed.
    pub fn ended(&mut self, stage: &mut impl Stage, group: u64, outcome: Result<(), Failure>) {
        match outcome {
            Ok(()) => self.succeeded(stage, group),
            Err(failure) => {
                if let Some(attempt) = self.attempts.get_mut(&group) {
                    attempt.failed_here(&failure);
                    self.begin_failing(stage, group, "the group has failed");
                }
            }
        }
    }

    /// A host has said something.
    pub fn said(&mut self, stage: &mut impl Stage, host: usize, message: ToRoot) {
        let step = self.hosts[host].step.clone();
        match (message, step) {
            (ToRoot::Prepared { fabrics, leftover }, Step::Preparing(_)) => {
                self.hosts[host].fabrics = fabrics;
                match leftover {
                    Some(leftover) => {
                        self.set(stage, host, Step::Checking);
                        stage.check(host, leftover);
                    }
                    None => self.set(stage, host, Step::Prepared),
                }
            }
            (ToRoot::Ready { port }, Step::Starting(_)) => {
                self.hosts[host].port = port;
                self.set(stage, host, Step::Ready);
            }
            (ToRoot::Progress { bytes }, _) if bytes > self.hosts[host].bytes => {
                self.hosts[host].bytes = bytes;
                stage.observe(PushEvent::Progress { host, bytes });
            }
            (ToRoot::Worked { bytes }, _) => self.worked(host, bytes),
            (ToRoot::Waited { round, waited }, _) => {
                if let Some(attempt) = self.attempts.get_mut(&round) {
                    attempt.heard(Some(host), waited.into_iter().map(Waited::from).collect());
                }
            }
            (ToRoot::Whole, Step::Ready) => self.note_whole(stage, host),
            (ToRoot::RoundClosed { round }, _) => self.succeeded(stage, round),
            (ToRoot::RoundFailed { round, member, detail, has }, _) => {
                if let Some(attempt) = self.attempts.get_mut(&round) {
                    // It may know less than others have told of it: what it says was on its way.
                    self.hosts[host].has.extend(has.within(self.bytes).iter());
                    attempt.reported(host, member);
                    let reason = match attempt.is_in_switch() {
                        // Nobody is blamed for that; it has to be said who cannot.
                        true => format!("{}: {detail}", self.hosts[host].plan.name),
                        false => detail,
                    };
                    self.begin_failing(stage, round, &reason);
                }
            }
            (ToRoot::Compared { equal: true }, Step::Comparing(_)) => {
                self.set(stage, host, Step::Verified);
            }
            (ToRoot::Compared { equal: false }, Step::Comparing(_)) => {
                self.set(stage, host, Step::Differs);
            }
            (ToRoot::Published { peak_resident_bytes, was_there }, Step::Publishing(_)) => {
                self.hosts[host].peak_resident_bytes = peak_resident_bytes;
                self.hosts[host].was_there = was_there;
                self.set(stage, host, Step::Published);
            }
            (ToRoot::Failed { reason }, step) if self.hosts[host].is_open() => {
                // It says itself that it has not.
                self.hosts[host].may_have_published &= !matches!(step, Step::Publishing(_));
                self.fail(stage, host, &reason);
            }
            // Heartbeats, and words of what is over.
            _ => {}
        }
    }

    /// Does everything that can be done now. Errors: those that end the push.
    pub fn advance(&mut self, stage: &mut impl Stage) -> Result<(), PushError> {
        self.gather(stage)?;
        if self.stopped.is_some() {
            return Ok(());
        }
        self.look(stage)?;
        self.settle(stage)?;
        self.begin(stage)?;
        self.finish(stage)
    }

    /// Gives up hosts that are late, and starts fabrics.
    pub fn gather(&mut self, stage: &mut impl Stage) -> Result<(), PushError> {
        for host in 0..self.hosts.len() {
            if self.hosts[host].deadline().is_none_or(|until| self.now < until) {
                continue;
            }
            if matches!(self.hosts[host].step, Step::Resting(_)) {
                self.try_again(stage, host);
            } else {
                let late = self.hosts[host].lateness(self.settings.start_timeout);
                self.fail(stage, host, &late);
            }
        }
        let is_prepared = |host: &Host| host.step == Step::Prepared;
        if !self.hosts.iter().any(is_prepared) {
            return Ok(());
        }
        self.first_prepared.get_or_insert(self.now);
        let fabric = match &self.fabric {
            Some(fabric) => fabric.clone(),
            // The first time all have to be asked what they have.
            None if self
                .hosts
                .iter()
                .any(|host| self.is_waited_for(host) && !is_prepared(host)) =>
            {
                return Ok(());
            }
            None => {
                let prepared: Vec<&Host> =
                    self.hosts.iter().filter(|host| is_prepared(host)).collect();
                stage.start_fabric(&|fabric| {
                    prepared.iter().all(|host| host.fabrics.contains(&fabric.name()))
                })?
            }
        };
        let name = fabric.name();
        self.fabric = Some(fabric);
        for host in 0..self.hosts.len() {
            if self.hosts[host].step == Step::Prepared {
                let has = RangeList::from(&self.hosts[host].has);
                stage.tell(host, &ToReceiver::Use { fabric: name.clone(), has });
                // What a host has may be in a file that is to be replaced, and has to be copied then.
                let patience = match self.hosts[host].has.bytes() {
                    0 => JOIN_TIMEOUT,
                    _ => self.prepare_timeout(),
                };
                self.set(stage, host, Step::Starting(self.now + patience));
            }
        }
        Ok(())
    }

    /// If no group is under way: starts groups for what is missing.
    fn begin(&mut self, stage: &mut impl Stage) -> Result<(), PushError> {
        let waits = !self.has_begun && self.is_gathering();
        if waits || !self.attempts.is_empty() {
            return Ok(());
        }
        let ready = self.hosts.iter().enumerate().filter(|(_, host)| host.is_ready());
        let holders: Vec<Holder<'_>> = ready
            .filter(|(_, host)| !self.is_aside(host))
            .map(|(index, host)| Holder {
                host: index,
                has: &host.has,
                sends: host.set_aside.is_none(),
            })
            .collect();
        let parts = parts(self.bytes, &holders);
        self.has_begun |= !holders.is_empty();
        let Some(members) = parts.iter().map(|part| part.hosts.len() + 1).max() else {
            return Ok(());
        };
        self.members = members;
        self.rounds += 1;
        stage.observe(PushEvent::Round { members });
        for part in parts {
            self.start(stage, part)?;
        }
        Ok(())
    }

    fn start(&mut self, stage: &mut impl Stage, part: Part) -> Result<(), PushError> {
        let Some(fabric) = &self.fabric else { return Ok(()) };
        let root = part.source.is_none();
        let mut addresses = Vec::new();
        let mut racks = Vec::new();
        if root {
            addresses.push(self.own_address(stage.address()));
            racks.push(self.settings.root_rack);
        } else {
            self.first_sent.get_or_insert(self.now);
        }
        for &host in part.source.iter().chain(&part.hosts) {
            let known = &mut self.hosts[host];
            addresses.extend(known.ip.map(|ip| SocketAddr::new(ip, known.port)));
            racks.push(known.plan.rack);
        }
        for &host in &part.hosts {
            let known = &mut self.hosts[host];
            known.repeated_bytes += known.has.intersection(&part.ranges).bytes();
        }
        let (members, algorithm) = (addresses.len(), self.algorithm(&part));
        let choice = self.settings.choose(algorithm, members, part.ranges.bytes(), fabric);
        self.choice = Some(choice);
        let window = self.settings.window(members, choice.block_bytes);
        let mut start = Start {
            round: stage.group_number()?,
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
            stage.join(&start)?;
            start.rank = 1;
        }
        let joining_until = self.now + self.settings.join_timeout();
        let attempt = Attempt::new(part, choice.algorithm, self.now, joining_until);
        for host in attempt.members() {
            stage.tell(host, &ToReceiver::Start(start.clone()));
            start.rank += 1;
        }
        self.attempts.insert(start.round, attempt);
        Ok(())
    }

    /// Verifies and publishes the copies that are whole.
    fn finish(&mut self, stage: &mut impl Stage) -> Result<(), PushError> {
        for host in 0..self.hosts.len() {
            if self.hosts[host].step == Step::Differs {
                self.judge_difference(stage, host)?;
            }
            let known = &self.hosts[host];
            if known.step == Step::Ready && known.has.covers((0, self.bytes)) {
                self.note_whole(stage, host);
                if let Some(digest) = self.digest {
                    stage.tell(host, &ToReceiver::Digest { digest: *digest.as_bytes() });
                    self.set(stage, host, Step::Comparing(self.now + Self::verify_timeout()));
                }
            }
        }
        let verified: Vec<usize> =
            (0..self.hosts.len()).filter(|&host| self.hosts[host].step == Step::Verified).collect();
        // Whoever publishes leaves its groups, and others may still wait for what it relays.
        let is_needed = |host: usize| self.attempts.values().any(|attempt| attempt.needs(host));
        let free: Vec<usize> = verified.into_iter().filter(|&host| !is_needed(host)).collect();
        if free.is_empty() {
            return Ok(());
        }
        stage.check_source()?;
        if !std::mem::replace(&mut self.is_publishing, true) {
            stage.observe(PushEvent::Publishing);
        }
        for host in free {
            self.hosts[host].may_have_published = true;
            stage.tell(host, &ToReceiver::Publish);
            self.set(stage, host, Step::Publishing(self.now + self.sync_timeout()));
        }
        Ok(())
    }

    /// A group has closed: everybody in it has all of its part.
    fn succeeded(&mut self, stage: &mut impl Stage, group: u64) {
        self.note_shares(group);
        let Some(attempt) = self.attempts.remove(&group) else { return };
        for host in attempt.receivers_left() {
            self.hosts[host].has.extend(attempt.part.ranges.iter());
        }
        // At the root it has closed already, or is about to.
        if attempt.is_failing() {
            stage.abort(group, "it has ended");
        }
    }

    pub(super) fn begin_failing(&mut self, stage: &mut impl Stage, group: u64, reason: &str) {
        let Some(attempt) = self.attempts.get_mut(&group) else { return };
        if !attempt.begin_failing(self.now, reason) {
            return;
        }
        tracing::debug!(group, reason, "giving a group up");
        stage.abort(group, GIVEN_UP);
        for host in attempt.members() {
            if !attempt.has_reported(host) {
                stage.tell(host, &ToReceiver::Leave { round: group });
            }
        }
    }

    fn note_whole(&mut self, stage: &mut impl Stage, host: usize) {
        if self.hosts[host].replication.is_none() {
            let since = self.first_sent.unwrap_or(self.now);
            self.hosts[host].replication = Some(self.now.saturating_sub(since));
            let state = self.hosts[host].state();
            stage.observe(PushEvent::Host { host, state });
        }
    }

    pub(super) fn set(&mut self, stage: &mut impl Stage, host: usize, step: Step) {
        let before = self.hosts[host].state();
        self.hosts[host].step = step;
        self.hosts[host].progressed_at = self.now;
        self.tell_state(stage, host, &before);
    }

    pub(super) fn tell_state(&self, stage: &mut impl Stage, host: usize, before: &HostState) {
        let state = self.hosts[host].state();
        if state != *before {
            stage.observe(PushEvent::Host { host, state });
        }
    }

    /// Gives a host up, or expects it again; groups that it is in cannot be finished.
    pub fn fail(&mut self, stage: &mut impl Stage, host: usize, reason: &str) {
        let keep = self.keeps();
        let known = &self.hosts[host];
        tracing::debug!(host = known.plan.name, reason, "host failed");
        stage.tell(host, &ToReceiver::Abort { reason: reason.to_owned(), keep });
        let name = known.plan.name.clone();
        if self.may_come_back(host) {
            self.rest(stage, host, reason);
        } else {
            let step = known.given_up(reason);
            self.set(stage, host, step);
        }
        let attempts = self.attempts.iter_mut();
        let its_groups: Vec<u64> =
            attempts.filter_map(|(&group, attempt)| attempt.lose(host).then_some(group)).collect();
        for group in its_groups {
            self.begin_failing(stage, group, &format!("{name}: {reason}"));
        }
    }

    /// Where members reach the root: the address that most of them have called, unless told.
    pub fn own_address(&self, listening: SocketAddr) -> SocketAddr {
        let counted = |address: &IpAddr| {
            let calls = |host: &&Host| host.is_ready() && host.own_ip == Some(*address);
            self.hosts.iter().filter(calls).count()
        };
        let called = self.hosts.iter().filter_map(|host| host.own_ip).max_by_key(counted);
        let address = self.settings.advertise.or(called).unwrap_or(listening.ip());
        SocketAddr::new(address, listening.port())
    }
}
