//! The root's decisions, as a state machine without threads, clock and connections.
//!
//! The driver sets [`RootMachine::now`], passes events in and calls [`RootMachine::advance`]; operations go out
//! through [`Effects`]. Each host goes through the steps of [`Step`], mostly on its own ([`Hosts`]): only starting
//! a fabric and the first groups wait for all. When no group is running and a host lacks data, new groups send
//! what is missing ([`super::parts`]).

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use plan::choice::Choice;
use rdmc::{Error, Fabric, Failure};

use super::{
    blame::{Blame, Response, Round},
    effects::Effects,
    group::{PushGroup, Verdict},
    group_plan::GroupPlan,
    host::{Host, Step},
    hosts::{HostEvent, Hosts},
    links::Links,
    object::{Object, Source},
    parts::Part,
    regroup::{Recuts, Slowness, has_unserved_host, sent},
    settings::{HostPlan, PushError, PushEvent, PushSettings},
    shares::{SendRates, Shares},
    stream_source::{StreamPart, StreamSource},
};
use crate::{
    SourceError,
    digests::Digests,
    link::MESSAGES_IN_FLIGHT,
    messages::{ALTERED, GIVEN_UP, ToReceiver, ToRoot},
    ranges::Ranges,
    resume::{ChunkDigests, Chunking},
    subtrees::Subtrees,
};

/// How long a push that ends early waits for hosts that publish.
const LAST_ANSWER: Duration = Duration::from_secs(10);

pub struct RootMachine<'a> {
    /// Since the start of the push.
    pub now: Duration,
    pub(super) settings: &'a PushSettings,
    object: Object,
    /// Of a session whose hosts fetch.
    links: Option<Links>,
    pub hosts: Hosts<'a>,
    groups: BTreeMap<u64, PushGroup>,
    /// The first groups have been started; hosts that become ready later get groups of their own.
    has_begun: bool,
    /// The listing of the tree is sent in a group to the first hosts that need it.
    relays_listing: bool,
    fabric: Option<Fabric>,
    /// How often groups were started; groups of one round often fail together, for one cause.
    rounds: u32,
    blame: Blame,
    /// Why members relay instead of switches.
    pub fell_back: Option<String>,
    slowness: Slowness,
    /// How fast members have sent.
    send_rates: SendRates,
    recuts: Recuts,
    /// Hosts may publish: always, or of a push to all or none since every host has had a verified copy on disk.
    has_agreed: bool,
    /// Why the push ends early; then nothing new is started, and only hosts that publish are waited for.
    pub stopped: Option<PushError>,
    /// Members of the largest group of the last round, the root included.
    pub members: usize,
    pub choice: Option<Choice>,
}

impl<'a> RootMachine<'a> {
    /// A push of an object of this length; 0 without one.
    pub fn new(settings: &'a PushSettings, bytes: u64) -> Self {
        Self::of(settings, Object::Source(Source::new(bytes, None)))
    }

    /// The same for a push of a tree with a listing of this length: each host verifies the files that it did not have.
    pub fn of_tree(settings: &'a PushSettings, bytes: u64, listing_bytes: u64) -> Self {
        let all_bytes = listing_bytes.saturating_mul(settings.hosts.len() as u64);
        let relays_listing = all_bytes > settings.listings_bytes_max;
        let object = Object::Source(Source::new(bytes, Some(listing_bytes)));
        Self { relays_listing, ..Self::of(settings, object) }
    }

    /// Of a tree: its hosts read it themselves at a URL; with its division.
    #[must_use]
    pub fn read_by_hosts(mut self, subtrees: Subtrees) -> Self {
        self.object.read_by_hosts(subtrees);
        self
    }

    /// The same for a push of a stream, which is read until it ends.
    pub fn of_stream(settings: &'a PushSettings) -> Self {
        Self::of(settings, Object::Stream(Box::default()))
    }

    /// The same for an object with this division that hosts fetch: they come at any time. Of a tree, with the length of its listing.
    pub fn of_served(
        settings: &'a PushSettings,
        chunking: Chunking,
        listing_bytes: Option<u64>,
    ) -> Self {
        let object = Object::Source(Source::new(chunking.bytes, listing_bytes));
        Self { links: Some(Links::new(chunking)), ..Self::of(settings, object) }
    }

    fn of(settings: &'a PushSettings, object: Object) -> Self {
        Self {
            links: None,
            now: Duration::ZERO,
            settings,
            hosts: Hosts::new(settings, object.bytes(), object.is_stream()),
            object,
            groups: BTreeMap::new(),
            has_begun: false,
            relays_listing: false,
            fabric: None,
            rounds: 0,
            blame: Blame::default(),
            fell_back: None,
            slowness: Slowness::new(settings.rate_min),
            send_rates: SendRates::default(),
            recuts: Recuts::default(),
            has_agreed: !settings.all_or_none,
            stopped: None,
            members: 0,
            choice: None,
        }
    }

    /// Whether its hosts fetch.
    pub fn is_served(&self) -> bool {
        self.links.is_some()
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

    /// When [`RootMachine::advance`] must be called at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let groups = self.groups.values().filter_map(PushGroup::deadline);
        let unawaited = self.hosts.next_unawaited(self.now).filter(|_| !self.has_begun);
        let links = self.links.as_ref().and_then(|links| links.deadline(&self.hosts, self.now));
        let others = [self.object.deadline(), unawaited, links];
        groups.chain(self.hosts.deadline()).chain(others.into_iter().flatten()).min()
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
        self.hosts.on_connected(effects, host, ip, own_ip, self.now);
    }

    /// A host's connection has ended.
    pub fn on_disconnected(&mut self, effects: &mut impl Effects, host: usize, reason: &str) {
        let is_publishing = matches!(self.hosts[host].step, Step::Publishing(_));
        let when = if is_publishing { " while it published its copy" } else { "" };
        if self.hosts[host].is_sharing() {
            self.hosts[host].shares = false;
            effects.observe(PushEvent::Left { host });
            self.end_links_of(effects, host);
        }
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
        if self.object.on_digests(digests) { Ok(()) } else { Err(effects.source_differs()) }
    }

    /// Further chunks of the source were read, of a session whose hosts fetch.
    pub fn on_chunks_read(&mut self, digests: ChunkDigests) {
        if let Some(links) = &mut self.links {
            links.on_read(digests);
        }
    }

    /// The source was looked at again, and has not changed.
    pub fn on_source_unchanged(&mut self) {
        self.object.on_unchanged();
    }

    /// The reader of the stream has read once.
    pub fn on_read(&mut self, part: StreamPart) {
        if let Some(stream) = self.object.as_stream_mut() {
            stream.on_read(part, self.now);
            self.hosts.set_bytes(stream.end());
        }
    }

    /// What was read of the object, if it is a stream.
    pub(super) fn stream(&self) -> Option<&StreamSource> {
        self.object.as_stream()
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
                if !state.part.is_listing() {
                    self.hosts.first_sent.get_or_insert(self.now);
                }
                match self.object {
                    // As it is read.
                    Object::Stream(_) => Ok(()),
                    Object::Source(_) => effects.send_ranges(group, &state.part.ranges),
                }
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
            // Members may still write it out.
            Ok(()) if self.object.is_stream() || self.links.is_some() => {}
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
            Some(event) if !self.concerns_member(&event, host) => {}
            Some(HostEvent::Closed { group })
                if self.object.is_stream() || self.ends_at_other(group, host) =>
            {
                let hosts = &mut self.hosts;
                self.groups.entry(group).and_modify(|state| state.closed_at(host, hosts));
            }
            Some(HostEvent::Closed { group }) => self.succeeded(effects, group),
            Some(HostEvent::Read { digests }) => {
                let read = self.object.on_read_at(effects, host, &digests);
                read.unwrap_or_else(|error| self.stop(effects, error));
            }
            Some(HostEvent::Altered { group, at }) => {
                effects.observe(PushEvent::Altered { host, at });
                self.groups.entry(group).and_modify(|state| state.altered_at(host));
                let name = &self.hosts[host].plan.name;
                self.begin_failing(effects, group, &format!("failed at {name}: {ALTERED}"));
            }
            Some(HostEvent::GroupFailed { group, blamed, unconnected, detail, has }) => {
                if let Some(state) = self.groups.get_mut(&group) {
                    self.hosts[host].has.extend(has.iter());
                    state.reported(host, blamed, &detail, &unconnected, self.now);
                    if state.awaits_reports(self.now) {
                        return;
                    }
                    // No host is blamed for a failure of switches, so the reason has to name the member.
                    let name = state.is_in_switch().then_some(&self.hosts[host].plan.name);
                    let reason = name.map_or(detail.clone(), |name| format!("{name}: {detail}"));
                    self.begin_failing(effects, group, &reason);
                }
            }
            Some(HostEvent::Failed { reason }) => self.fail(effects, host, &reason),
            None => {}
        }
    }

    /// False if a host says something of a group that it is not in, which counts for nothing.
    fn concerns_member(&self, event: &HostEvent, host: usize) -> bool {
        event
            .group()
            .is_none_or(|group| self.groups.get(&group).is_some_and(|state| state.has_member(host)))
    }

    /// Whether the end of a group counts at other members: of a link at the one that has compared what it got, and of what is
    /// read at a URL at the reader, whose digests have come before.
    fn ends_at_other(&self, group: u64, host: usize) -> bool {
        self.groups.get(&group).is_some_and(|state| match state.part.source == Some(host) {
            true => self.links.is_some(),
            false => state.part.reads,
        })
    }

    /// Does everything that is possible now. Errors: those that end the push.
    pub fn advance(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        self.gather(effects)?;
        if self.stopped.is_some() {
            self.release(effects);
            return Ok(());
        }
        self.check_all()?;
        self.check_rates(effects)?;
        self.conclude_failed(effects)?;
        self.start_groups(effects)?;
        let replaced = self.object.send(effects, &self.hosts, &mut self.groups, self.now)?;
        replaced.into_iter().for_each(|group| self.regroup(effects, &[group]));
        self.verify_and_publish(effects)?;
        self.check_all()
    }

    /// Errors: a host was given up before all hosts agreed to publish.
    fn check_all(&self) -> Result<(), PushError> {
        if self.has_agreed {
            return Ok(());
        }
        self.hosts.first_given_up().map_or(Ok(()), Err)
    }

    /// Gives up hosts that are late and starts fabrics.
    pub fn gather(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        for (host, reason) in self.hosts.given_up(effects, self.fabric.as_ref(), self.now) {
            self.fail(effects, host, &reason);
        }
        if self.settings.dry_run {
            self.hosts.examine(effects, self.now);
        }
        let unlisted = self.hosts.all_unlisted(self.now);
        if unlisted.len() > 1 && std::mem::take(&mut self.relays_listing) {
            let fabric = self.fabric_for(effects, &unlisted)?;
            unlisted.iter().for_each(|&to| self.hosts.open(effects, to, fabric.clone(), self.now));
        } else {
            self.hosts.send_listing(effects, &unlisted, self.now);
        }
        // Of those that come at any time the first one chooses.
        let is_first = self.fabric.is_none() && self.links.is_none();
        let prepared = self.hosts.all_prepared(is_first, self.now);
        if prepared.is_empty() {
            return Ok(());
        }
        let fabric = self.fabric_for(effects, &prepared)?;
        for host in prepared {
            self.hosts.use_fabric(effects, host, fabric.clone(), self.now);
            self.object.read_for(effects, &self.hosts[host])?;
            let lacking = self.links.as_mut().map(|links| links.request(&self.hosts[host].has));
            if let Some(lacking) = lacking.filter(|lacking| !lacking.is_empty()) {
                effects.digest_chunks(&lacking)?;
            }
        }
        Ok(())
    }

    /// The name of the fabric of the push: the best that these hosts have if there is none yet.
    fn fabric_for(
        &mut self,
        effects: &mut impl Effects,
        hosts: &[usize],
    ) -> Result<String, PushError> {
        if self.fabric.is_none() {
            let all = &self.hosts;
            self.fabric = Some(effects.start_fabric(&|fabric| all.can_use(hosts, fabric))?);
        }
        Ok(self.fabric.as_ref().map(Fabric::name).unwrap_or_default())
    }

    /// Whether a host that connects now gets the listing of the tree in a group.
    pub(super) fn relays_listing(&self, host: usize) -> bool {
        self.relays_listing && self.hosts[host].start == 0 && host < self.settings.hosts.len()
    }

    /// Checks the rates of running groups. Errors: the source has changed.
    fn check_rates(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        if self.links.is_some() {
            return Ok(());
        }
        let is_due = |(&group, state): (&u64, &mut PushGroup)| {
            let has_rate = state.is_running() && !state.part.is_listing();
            (has_rate && state.rate.is_due(self.now)).then_some(group)
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
            let slow = self.slowness.judge(state, &mut self.hosts, self.object.bytes(), self.now);
            let Some((stragglers, bytes_per_second)) = slow else { continue };
            for host in stragglers {
                tracing::info!(host = self.hosts[host].plan.name, bytes_per_second, "deferred");
                effects.observe(PushEvent::Deferred { host, bytes_per_second });
            }
            self.regroup(effects, &[group]);
        }
        let (hosts, groups, object) = (&self.hosts, &self.groups, &self.object);
        let cuts = self.recuts.is_due(hosts, groups, object, self.now);
        if cuts || has_unserved_host(hosts, groups, object, self.now) {
            self.regroup(effects, &due);
        }
        Ok(())
    }

    /// Ends these groups; what is missing is planned again once their members have reported what they have.
    fn regroup(&mut self, effects: &mut impl Effects, groups: &[u64]) {
        for &group in groups {
            let Some(state) = self.groups.get(&group) else { continue };
            let sent = sent(state, &self.groups, &self.hosts, self.object.bytes());
            self.send_rates.note(state.part.source, sent, self.now.saturating_sub(state.since));
            self.groups.entry(group).and_modify(|state| state.is_wanted = false);
            self.begin_failing(effects, group, "new groups replace it");
        }
    }

    /// Concludes failed groups whose members have reported, or had their time.
    fn conclude_failed(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        let groups: Vec<u64> = self.groups.keys().copied().collect();
        for group in groups {
            if let Some(reason) = self.groups.get(&group).and_then(|it| it.overdue(self.now)) {
                self.begin_failing(effects, group, reason);
            }
            let Some(state) = self.groups.get_mut(&group) else { continue };
            if state.has_closed() {
                self.groups.remove(&group);
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
        if state.part.is_listing() {
            let is_left = |host: &usize| matches!(self.hosts[*host].step, Step::Preparing(_));
            let left: Vec<usize> = state.members().filter(is_left).collect();
            self.hosts.send_listing(effects, &left, self.now);
        }
        if let Some(links) = &mut self.links {
            for (host, reason) in links.on_failed(&state, silent, &self.hosts) {
                self.fail(effects, host, &reason);
            }
            return Ok(());
        }
        let in_vain = self.object.on_failed(&state, &self.hosts, &mut self.blame);
        let round = Round { number: self.rounds, may_set_apart: !self.object.is_stream() };
        match self.blame.judge(&state, silent, &round, &mut self.hosts) {
            Response::Continue => {}
            Response::FailHosts(given_up) => {
                given_up.iter().for_each(|(host, why)| self.fail(effects, *host, why));
            }
            Response::Relay if self.fell_back.is_none() => {
                tracing::info!(reason = why, "switches cannot copy; members relay");
                effects.observe(PushEvent::FellBack { reason: why.clone() });
                self.fell_back = Some(why);
            }
            Response::Relay => {}
            Response::End => return Err(PushError::Group(why)),
        }
        in_vain.into_iter().for_each(|(host, reason)| self.fail(effects, host, reason));
        Ok(())
    }

    /// If no group is running: starts groups for what is missing.
    fn start_groups(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        let opened = self.hosts.all_opened();
        if !opened.is_empty() {
            // From now on they prepare as soon as they have it.
            opened.iter().for_each(|&host| self.hosts.prepare(effects, host, self.now));
            return self.start(effects, Part::listing(opened));
        }
        if self.links.is_some() {
            return self.start_links(effects);
        }
        let waits = !self.has_begun && self.is_gathering();
        if waits || !self.groups.is_empty() {
            return Ok(());
        }
        let holders = self.hosts.holders();
        let shares = Shares::new(self.settings.share_bytes_min, &self.send_rates);
        let parts = self.object.parts(&holders, &shares);
        self.has_begun |= !holders.is_empty();
        let Some(members) = parts.iter().map(|part| part.hosts.len() + 1).max() else {
            return Ok(());
        };
        self.members = members;
        self.rounds += 1;
        effects.observe(PushEvent::Round { members });
        for part in parts {
            part.source.filter(|_| part.shares > 1).into_iter().for_each(|it| self.recuts.add(it));
            self.start(effects, part)?;
        }
        Ok(())
    }

    /// Starts and ends links, so that each host that lacks something gets it.
    fn start_links(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        let Some(links) = &mut self.links else { return Ok(()) };
        links.tell(effects, &self.hosts);
        let shares = Shares::new(self.settings.share_bytes_min, &self.send_rates);
        let plan = links.plan(&self.hosts, &self.groups, &shares, self.now);
        self.regroup(effects, &plan.released);
        for (host, reason) in plan.given_up {
            self.fail(effects, host, &reason);
        }
        for part in plan.parts {
            self.start(effects, part)?;
        }
        Ok(())
    }

    fn start(&mut self, effects: &mut impl Effects, part: Part) -> Result<(), PushError> {
        let Some(fabric) = &self.fabric else { return Ok(()) };
        let direct_until = self.object.as_stream().and_then(StreamSource::direct_until);
        self.hosts.count_repeated(part.takers(), &part.ranges);
        let plan = GroupPlan {
            part: &part,
            is_direct: direct_until.is_some(),
            may_switch: self.fell_back.is_none(),
            messages: match &self.links {
                Some(links) => (links.message_bytes(), MESSAGES_IN_FLIGHT),
                None => self.object.messages(&part),
            },
            settings: self.settings,
            hosts: &self.hosts,
            listening: effects.address(),
            fabric,
        };
        let (number, choice) = plan.begin(effects)?;
        if part.source.is_some() {
            self.hosts.first_sent.get_or_insert(self.now);
        }
        if !part.is_listing() {
            self.choice = Some(choice);
        }
        let mut state =
            PushGroup::new(part, choice.algorithm, &self.hosts, self.now, self.settings);
        state.direct_until = direct_until;
        state.is_link = self.links.is_some();
        self.groups.insert(number, state);
        Ok(())
    }

    /// Verifies and publishes complete copies.
    fn verify_and_publish(&mut self, effects: &mut impl Effects) -> Result<(), PushError> {
        let given_up = self.object.verify(effects, &mut self.hosts, self.now)?;
        given_up.into_iter().for_each(|(host, reason)| self.fail(effects, host, reason));
        let together = !self.has_agreed;
        let ready = if together { self.all_stored(effects) } else { self.all_free() };
        let publishable =
            self.object.publishable(effects, &self.hosts, ready, together, self.now)?;
        self.has_agreed |= !publishable.is_empty();
        for host in publishable {
            self.end_links_of(effects, host);
            self.hosts.publish(effects, host, self.now);
        }
        self.release(effects);
        Ok(())
    }

    /// Lets hosts go that have fetched, and from which no other gets the object: they need not wait for the others. Ends the
    /// connections of hosts that were given up: nobody waits for the end of a session without an end of its own.
    fn release(&self, effects: &mut impl Effects) {
        if self.links.is_none() {
            return;
        }
        for host in effects.connected() {
            let known = &self.hosts[host];
            let is_needed = || self.groups.values().any(|group| group.needs(host));
            match known.step {
                Step::Published if !known.shares && !is_needed() => {
                    effects.send_message(host, &ToReceiver::Finish);
                    effects.finish_connection(host);
                    effects.observe(PushEvent::Left { host });
                }
                Step::Failed(_) | Step::Unknown(_) => effects.finish_connection(host),
                _ => {}
            }
        }
    }

    /// Hosts with verified copies that no group needs any more: one that publishes leaves its groups, in which others may still
    /// need it as a relay. Who fetches waits for others only a moment ([`Links::needs`]); they get another sender.
    fn all_free(&self) -> Vec<usize> {
        let is_needed = |host: usize| match &self.links {
            Some(links) => links.needs(host, &self.hosts, &self.groups, self.now),
            None => {
                let (hosts, groups) = (&self.hosts, &self.groups);
                groups.values().any(|state| state.needs(host))
                    || self.recuts.may_need(host, hosts, groups, self.object.bytes())
            }
        };
        let verified =
            (0..self.hosts.len()).filter(|&host| self.hosts[host].step == Step::Verified);
        verified.filter(|&host| !is_needed(host)).collect()
    }

    /// Of a push to all or none: all hosts that do not leave the copy to another, once each of them has stored its copy. Lets them
    /// store copies once no host needs another for its own any more.
    fn all_stored(&mut self, effects: &mut impl Effects) -> Vec<usize> {
        let open: Vec<usize> =
            (0..self.hosts.len()).filter(|&it| self.hosts[it].is_open()).collect();
        if open.iter().all(|&host| self.hosts[host].step == Step::Stored) {
            return open;
        }
        let free = self.all_free();
        let stores = |host: usize| matches!(self.hosts[host].step, Step::Storing(_) | Step::Stored);
        if open.iter().all(|&host| free.contains(&host) || stores(host)) {
            free.into_iter().for_each(|host| self.hosts.store(effects, host, self.now));
        }
        Vec::new()
    }

    /// Ends the links in which this host, which leaves, takes part.
    fn end_links_of(&mut self, effects: &mut impl Effects, host: usize) {
        if self.links.is_some() {
            // It leaves them by itself, without a report.
            let groups = self.groups.iter_mut();
            let its: Vec<u64> =
                groups.filter_map(|(&number, group)| group.lose(host).then_some(number)).collect();
            self.regroup(effects, &its);
        }
    }

    /// A group has closed: all of its members have its part.
    fn succeeded(&mut self, effects: &mut impl Effects, group: u64) {
        let Some(state) = self.groups.remove(&group) else { return };
        let time = self.now.saturating_sub(state.since);
        self.send_rates.note(state.part.source, state.part.ranges.bytes(), time);
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

    /// Ends the push early; it is over when [`RootMachine::is_over`]. Groups and all other hosts are given up at
    /// once. Hosts that were ordered to publish may have done so and are waited for, up to [`LAST_ANSWER`]. A second
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
        let good = self.object.as_stream_mut().map(|stream| stream.stop(&self.hosts));
        let reason = reason + &good.unwrap_or_default();
        self.stopped = Some(error);
        self.hosts.iter_mut().for_each(|host| host.shares = false);
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
        let all_published = self.hosts.iter().all(Host::is_done);
        match self.stopped.take() {
            Some(error) if !all_published => Err(error),
            _ => Ok(()),
        }
    }
}
