//! What the root decides, as a state machine: it has no thread, no clock and no connection.
//!
//! Whoever drives it sets [`Coordinator::now`], tells it what has happened, and calls
//! [`Coordinator::advance`]; what it wants done it asks of a [`Stage`]. A host goes through the
//! steps of [`Step`], mostly on its own ([`Hosts`]): only starting a fabric and the first groups wait for all.
//! Whenever no group is under way, and somebody lacks something, groups are made for what is missing
//! ([`super::parts`]).

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use plan::choice::Choice;
use rdmc::{Algorithm, Error, Fabric, Failure};

use super::{
    aftermath::{Aftermath, Blame},
    attempt::{Attempt, Verdict},
    host::{Host, Step},
    hosts::{Hosts, Said},
    parts::{Holder, Part, parts},
    reading::{Reading, Suspicion},
    regroup::{Slowness, has_latecomer},
    settings::{HostPlan, PushError, PushEvent, PushSettings},
    stage::Stage,
};
use crate::{
    SourceError,
    messages::{GIVEN_UP, Start, ToReceiver, ToRoot},
    ranges::{RangeList, Ranges},
};

/// How long hosts that publish may take to say so once the push is to end.
const LAST_ANSWER: Duration = Duration::from_secs(10);
/// Of a host whose copy is not what the root has read, twice.
const DIFFERS: &str = "its copy differs from the source, which reads as it did before: it was written \
                       to while it was sent, and its modification time was kept; or that machine's \
                       memory or network is bad. Run it again";

pub struct Coordinator<'a> {
    /// In the push's time.
    pub now: Duration,
    pub(super) settings: &'a PushSettings,
    /// Length of the object.
    bytes: u64,
    pub hosts: Hosts<'a>,
    attempts: BTreeMap<u64, Attempt>,
    /// Groups have been started: who is not ready yet comes later.
    has_begun: bool,
    reading: Reading,
    fabric: Option<Fabric>,
    /// How often groups were started; those of one round often fail together, of one cause.
    rounds: u32,
    blame: Blame,
    /// Why members relay although switches were to copy.
    pub fell_back: Option<String>,
    slowness: Slowness,
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
        Self {
            now: Duration::ZERO,
            settings,
            bytes,
            hosts: Hosts::new(settings, bytes),
            attempts: BTreeMap::new(),
            has_begun: false,
            reading: Reading::default(),
            fabric: None,
            rounds: 0,
            blame: Blame::default(),
            fell_back: None,
            slowness: Slowness::new(settings.rate_min),
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
        self.hosts.are_gathering(self.now)
    }

    /// Who is how far, for messages of simulations.
    pub fn describe(&self) -> String {
        let steps: Vec<&Step> = self.hosts.iter().map(|host| &host.step).collect();
        format!("{steps:?} in {:?}", self.attempts)
    }

    /// When [`Coordinator::advance`] has to be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let attempts = self.attempts.values().filter_map(Attempt::deadline);
        let unawaited = self.hosts.next_unawaited(self.now).filter(|_| !self.has_begun);
        attempts.chain(self.hosts.deadline()).chain(unawaited).min()
    }

    /// A host that was not planned has come; answers its index.
    pub fn admit(&mut self, plan: HostPlan) -> usize {
        self.hosts.add(plan, self.now)
    }

    /// A host is there, and has been told what is to come.
    pub fn came(&mut self, stage: &mut impl Stage, host: usize, ip: IpAddr, own_ip: IpAddr) {
        self.hosts.came(stage, host, (ip, own_ip), self.now);
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
        if self.hosts.expects(host) && self.hosts[host].start == start {
            self.fail(stage, host, reason);
        }
    }

    /// What a host has of an earlier session was compared.
    pub fn checked(&mut self, stage: &mut impl Stage, host: usize, right: Ranges) {
        self.hosts.checked(stage, host, right, self.now);
    }

    /// The source was read. Errors: for the second time, and it was not the same.
    pub fn digested(
        &mut self,
        stage: &mut impl Stage,
        digest: blake3::Hash,
    ) -> Result<(), PushError> {
        if self.reading.read(digest) { Ok(()) } else { Err(stage.reads_differently()) }
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
                self.hosts.first_sent.get_or_insert(self.now);
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
        match self.hosts.said(stage, host, message, self.now) {
            Some(Said::Waited { group, waited }) => {
                if let Some(attempt) = self.attempts.get_mut(&group) {
                    attempt.heard(Some(host), waited);
                }
            }
            Some(Said::Closed { group }) => self.succeeded(stage, group),
            Some(Said::GroupFailed { group, member, detail, has }) => {
                if let Some(attempt) = self.attempts.get_mut(&group) {
                    self.hosts[host].has.extend(has.iter());
                    attempt.reported(host, member);
                    let reason = match attempt.is_in_switch() {
                        // Nobody is blamed for that; it has to be said who cannot.
                        true => format!("{}: {detail}", self.hosts[host].plan.name),
                        false => detail,
                    };
                    self.begin_failing(stage, group, &reason);
                }
            }
            Some(Said::Failed { reason }) => self.fail(stage, host, &reason),
            None => {}
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
        for (host, reason) in self.hosts.late(stage, self.now) {
            self.fail(stage, host, &reason);
        }
        let prepared = self.hosts.all_prepared(self.fabric.is_none(), self.now);
        if prepared.is_empty() {
            return Ok(());
        }
        let fabric = match self.fabric.take() {
            Some(fabric) => fabric,
            None => stage.start_fabric(&|fabric| {
                let name = fabric.name();
                prepared.iter().all(|&host| self.hosts[host].fabrics.contains(&name))
            })?,
        };
        for host in prepared {
            self.hosts.use_fabric(stage, host, fabric.name(), self.now);
        }
        self.fabric = Some(fabric);
        Ok(())
    }

    /// Looks how groups that are under way get on. Errors: what they send has changed.
    fn look(&mut self, stage: &mut impl Stage) -> Result<(), PushError> {
        let is_due = |(&group, attempt): (&u64, &mut Attempt)| {
            (attempt.is_running() && attempt.pace.is_due(self.now)).then_some(group)
        };
        let due: Vec<u64> = self.attempts.iter_mut().filter_map(is_due).collect();
        if due.is_empty() {
            return Ok(());
        }
        stage.check_source()?;
        for &group in &due {
            let Some(attempt) = self.attempts.get_mut(&group) else { continue };
            if attempt.part.source.is_none() {
                attempt.heard(None, stage.waited(group));
            }
            let slow = self.slowness.judge(attempt, &mut self.hosts, self.bytes, self.now);
            if let Some((host, bytes_per_second)) = slow {
                tracing::info!(host = self.hosts[host].plan.name, bytes_per_second, "set aside");
                stage.observe(PushEvent::SetAside { host, bytes_per_second });
                self.regroup(stage, &[group]);
            }
        }
        if has_latecomer(&self.hosts, &self.attempts, self.bytes, self.now) {
            self.regroup(stage, &due);
        }
        Ok(())
    }

    /// Ends these groups; what is missing is planned anew once their members have said what they
    /// have.
    fn regroup(&mut self, stage: &mut impl Stage, groups: &[u64]) {
        for &group in groups {
            if let Some(attempt) = self.attempts.get_mut(&group) {
                attempt.is_wanted = false;
                self.begin_failing(stage, group, "others take part now");
            }
        }
    }

    /// Concludes attempts that have failed, once enough has been heard of them.
    fn settle(&mut self, stage: &mut impl Stage) -> Result<(), PushError> {
        let groups: Vec<u64> = self.attempts.keys().copied().collect();
        for group in groups {
            let Some(attempt) = self.attempts.get_mut(&group) else { continue };
            if attempt.is_joining() && attempt.deadline().is_some_and(|until| self.now >= until) {
                self.begin_failing(stage, group, "it took too long to join");
            } else if attempt.is_failing()
                && let Verdict::Over { silent } = attempt.judge(self.now)
            {
                self.conclude(stage, group, &silent)?;
            }
        }
        Ok(())
    }

    /// After a failed group: gives up who is lost, and leaves the others ready.
    fn conclude(
        &mut self,
        stage: &mut impl Stage,
        group: u64,
        silent: &[usize],
    ) -> Result<(), PushError> {
        self.note_shares(group);
        let Some(attempt) = self.attempts.remove(&group) else { return Ok(()) };
        // A source that has changed explains any failure, and no further attempt could be right.
        stage.check_source()?;
        let why = attempt.why();
        for &host in silent {
            self.fail(stage, host, &format!("it no longer answers: {why}"));
        }
        match self.blame.judge(&attempt, silent, self.rounds, &mut self.hosts) {
            Aftermath::GoOn => {}
            Aftermath::GiveUp(host) => self.fail(stage, host, &format!("it {why}")),
            Aftermath::Relay if self.fell_back.is_none() => {
                tracing::info!(reason = why, "members relay, though switches were to copy");
                stage.observe(PushEvent::FellBack { reason: why.clone() });
                self.fell_back = Some(why);
            }
            Aftermath::Relay => {}
            Aftermath::End => return Err(PushError::Group(why)),
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
            .filter(|(_, host)| !self.hosts.waits_aside(host))
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
            addresses.push(self.hosts.own_address(stage.address()));
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

    /// How blocks of a part travel; `None` for what should be fastest. Switches copy what the root
    /// sends, until that has failed.
    fn algorithm(&self, part: &Part) -> Option<Algorithm> {
        let can_copy = part.source.is_none() && self.fell_back.is_none();
        self.settings.algorithm.filter(|&asked| asked != Algorithm::InSwitch || can_copy)
    }

    /// Verifies and publishes the copies that are whole.
    fn finish(&mut self, stage: &mut impl Stage) -> Result<(), PushError> {
        for host in 0..self.hosts.len() {
            if self.hosts[host].step == Step::Differs {
                stage.check_source()?;
                match self.reading.suspect() {
                    Suspicion::ReadAgain => stage.digest()?,
                    Suspicion::Wait => {}
                    Suspicion::CopyIsWrong => self.fail(stage, host, DIFFERS),
                }
            }
            let known = &self.hosts[host];
            if known.step == Step::Ready && known.has.covers((0, self.bytes)) {
                self.hosts.note_whole(stage, host, self.now);
                if let Some(digest) = self.reading.digest {
                    self.hosts.compare(stage, host, digest, self.now);
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
            self.hosts.publish(stage, host, self.now);
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

    /// Keeps who has held a group up that is over.
    fn note_shares(&mut self, group: u64) {
        let Some(attempt) = self.attempts.get(&group) else { return };
        let shares = attempt.pace.shares(attempt.by_rank().count());
        for (member, share) in attempt.by_rank().zip(shares) {
            if let Some(host) = member {
                self.hosts[host].waiting_share = Some(share);
            }
        }
    }

    fn begin_failing(&mut self, stage: &mut impl Stage, group: u64, reason: &str) {
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

    /// Gives a host up, or expects it again; groups that it is in cannot be finished.
    pub fn fail(&mut self, stage: &mut impl Stage, host: usize, reason: &str) {
        let keep = self.keeps();
        let known = &self.hosts[host];
        tracing::debug!(host = known.plan.name, reason, "host failed");
        stage.tell(host, &ToReceiver::Abort { reason: reason.to_owned(), keep });
        let name = known.plan.name.clone();
        self.hosts.lose(stage, host, reason, self.now);
        let attempts = self.attempts.iter_mut();
        let its_groups: Vec<u64> =
            attempts.filter_map(|(&group, attempt)| attempt.lose(host).then_some(group)).collect();
        for group in its_groups {
            self.begin_failing(stage, group, &format!("{name}: {reason}"));
        }
    }

    /// Ends the push for this reason, and waits for hosts that publish: until [`Coordinator::is_over`]. What is
    /// under way is given up at once; hosts that were told to publish their copies may have done so, and are
    /// waited for, but not for long. Interrupted again, it waits no longer; other reasons after the first do not
    /// matter.
    pub fn stop(&mut self, stage: &mut impl Stage, error: PushError) {
        let is_interrupt = matches!(error, PushError::Cancelled);
        let reason = match &error {
            PushError::Cancelled => "interrupted at the root".to_owned(),
            other => other.to_string(),
        };
        if self.stopped.is_some() {
            let open = (0..self.hosts.len()).filter(|&host| self.hosts[host].is_open());
            let open: Vec<usize> = open.filter(|_| is_interrupt).collect();
            open.into_iter().for_each(|host| self.fail(stage, host, &reason));
            return;
        }
        self.stopped = Some(error);
        let (publishing, others) = self.hosts.end(LAST_ANSWER, self.now);
        others.into_iter().for_each(|host| self.fail(stage, host, &reason));
        for group in std::mem::take(&mut self.attempts).into_keys() {
            stage.abort(group, &reason);
        }
        if publishing > 0 {
            stage.observe(PushEvent::Stopping { publishing });
        }
    }

    /// Whether what hosts have received is of use to a later push: unless the source has changed.
    fn keeps(&self) -> bool {
        !matches!(self.stopped, Some(PushError::Source(SourceError::Changed { .. })))
    }

    /// How a push ended for which nothing is left to be done.
    pub fn outcome(&mut self) -> Result<(), PushError> {
        let all_have_it = self.hosts.iter().all(|host| host.step == Step::Published);
        match self.stopped.take() {
            Some(error) if !all_have_it => Err(error),
            _ => Ok(()),
        }
    }
}
