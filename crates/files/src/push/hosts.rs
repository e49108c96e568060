//! All hosts of a push: their states, ranges and deadlines.
//!
//! Reports of a host about itself are handled here. Those that concern groups, and hosts to give up, are returned
//! to the state machine.

use std::{
    net::{IpAddr, SocketAddr},
    ops::{Deref, DerefMut},
    time::Duration,
};

use rdmc::{Fabric, Waited};

use super::{
    effects::Effects,
    host::{Host, Step},
    parts::Holder,
    retry,
    settings::{HostPlan, HostState, PushError, PushEvent, PushSettings},
    timeouts::{Timeouts, VERIFY_TIMEOUT},
};
use crate::{
    messages::{Blamed, JOIN_TIMEOUT, ToReceiver, ToRoot},
    ranges::{RangeList, Ranges},
    reason::shortened,
    subtrees::SubtreeDigest,
};

/// A report of a host that concerns others.
pub(super) enum HostEvent {
    /// How long it has waited for members of a group.
    Waited { group: u64, waited: Vec<Waited> },
    /// A group has closed with success.
    Closed { group: u64 },
    /// A group has failed: the ranks of the member that it blames and of those that it could not connect to, and the ranges that
    /// it has.
    GroupFailed {
        group: u64,
        blamed: Option<Blamed>,
        unconnected: Vec<u32>,
        detail: String,
        has: Ranges,
    },
    /// What it got of a stream in a group at this place is not what was sent.
    Altered { group: u64, at: u64 },
    /// It has read subtrees of files, each with where it begins.
    Read { digests: Vec<(u64, SubtreeDigest)> },
    /// It cannot continue.
    Failed { reason: String },
}

impl HostEvent {
    /// The group that it concerns.
    pub(super) fn group(&self) -> Option<u64> {
        match *self {
            Self::Waited { group, .. }
            | Self::Closed { group }
            | Self::GroupFailed { group, .. }
            | Self::Altered { group, .. } => Some(group),
            Self::Read { .. } | Self::Failed { .. } => None,
        }
    }
}

/// Hosts by index.
pub struct Hosts<'a> {
    all: Vec<Host>,
    settings: &'a PushSettings,
    /// Length of the object; of a stream, what was read so far.
    bytes: u64,
    is_stream: bool,
    timeouts: Timeouts,
    /// When the first group started to send.
    pub(super) first_sent: Option<Duration>,
    /// A host was ordered to publish its copy.
    is_publishing: bool,
    /// The push ends early: no deadline is extended.
    is_ending: bool,
}

impl Deref for Hosts<'_> {
    type Target = [Host];

    fn deref(&self) -> &[Host] {
        &self.all
    }
}

impl DerefMut for Hosts<'_> {
    fn deref_mut(&mut self) -> &mut [Host] {
        &mut self.all
    }
}

impl<'a> Hosts<'a> {
    /// The hosts of a push of an object of this length so far.
    pub(super) fn new(settings: &'a PushSettings, bytes: u64, is_stream: bool) -> Self {
        let host = |plan| Host::new(plan, settings.retries, settings.start_timeout);
        Self {
            all: settings.hosts.iter().cloned().map(host).collect(),
            settings,
            bytes,
            is_stream,
            timeouts: Timeouts::new(bytes, !is_stream),
            first_sent: None,
            is_publishing: false,
            is_ending: false,
        }
    }

    /// Begins with all hosts that do not fail, however late they are.
    pub fn wait_for_all(&mut self) {
        self.timeouts.wait_for_all();
    }

    /// This much of the stream was read.
    pub(super) fn set_bytes(&mut self, bytes: u64) {
        (self.bytes, self.timeouts.bytes) = (bytes, bytes);
    }

    /// Adds a host that joins; returns its index.
    pub(super) fn add(&mut self, plan: HostPlan, now: Duration) -> usize {
        let until = now.saturating_add(self.settings.start_timeout);
        let mut host = Host::new(plan, self.settings.retries, until);
        // A host of this name may have taken part before.
        let may_have = |known: &Host| known.plan.name == host.plan.name && known.may_have_published;
        host.may_have_published = self.all.iter().any(may_have);
        self.all.push(host);
        self.all.len() - 1
    }

    /// Whether a connection of this host is expected.
    pub fn expects(&self, host: usize) -> bool {
        matches!(self.all[host].step, Step::Awaited(_))
    }

    /// Whether the first groups still wait for hosts.
    pub(super) fn are_gathering(&self, now: Duration) -> bool {
        self.all.iter().any(|host| self.timeouts.waits_for(host, now))
    }

    /// When the first groups stop waiting for the next host.
    pub(super) fn next_unawaited(&self, now: Duration) -> Option<Duration> {
        let times = self.all.iter().filter_map(|host| self.timeouts.waits_until(host));
        times.filter(|&at| now < at).min()
    }

    /// The next deadline of any host.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.all.iter().filter_map(Host::deadline).min()
    }

    pub(super) fn set(
        &mut self,
        effects: &mut impl Effects,
        host: usize,
        step: Step,
        now: Duration,
    ) {
        let before = self.all[host].state();
        self.all[host].step = step;
        self.all[host].progressed_at = now;
        self.observe_state(effects, host, &before);
    }

    fn observe_state(&self, effects: &mut impl Effects, host: usize, before: &HostState) {
        let state = self.all[host].state();
        if state != *before {
            effects.observe(PushEvent::Host { host, state });
        }
    }

    /// A host has connected and got the offer.
    pub(super) fn on_connected(
        &mut self,
        effects: &mut impl Effects,
        host: usize,
        ip: IpAddr,
        own_ip: IpAddr,
        now: Duration,
    ) {
        let known = &mut self.all[host];
        (known.ip, known.own_ip) = (Some(ip), Some(own_ip));
        if known.start == 0 && host < self.settings.hosts.len() {
            self.timeouts.connected(now);
        }
        self.prepare(effects, host, now);
    }

    /// A host's existing data was compared with the source.
    pub(super) fn on_compared(
        &mut self,
        effects: &mut impl Effects,
        host: usize,
        matching: Ranges,
        now: Duration,
    ) {
        if self.all[host].step == Step::Checking {
            let known = &mut self.all[host];
            known.has.extend(matching.iter());
            known.resumed_bytes = known.has.bytes();
            self.set_prepared(effects, host, now);
        }
    }

    fn set_prepared(&mut self, effects: &mut impl Effects, host: usize, now: Duration) {
        let known = &mut self.all[host];
        known.changes = known.changes.take().map(|changes| effects.settle(changes, &known.has));
        self.set(effects, host, Step::Prepared, now);
    }

    /// A message from a host.
    pub(super) fn on_message(
        &mut self,
        effects: &mut impl Effects,
        host: usize,
        message: ToRoot,
        now: Duration,
    ) -> Option<HostEvent> {
        if self.is_stream {
            self.timeouts.heard(&mut self.all[host], now, self.is_ending);
        }
        let step = self.all[host].step.clone();
        match (message, step) {
            (ToRoot::Prepared { fabrics, kept, digests, changes }, Step::Preparing(_)) => {
                let known = &mut self.all[host];
                known.fabrics = fabrics;
                known.changes = Some(changes);
                // A host could keep what it likes of a file as well; then its digest would differ.
                known.has = kept.within(self.bytes);
                known.keeps_unread = !known.has.is_empty();
                known.resumed_bytes = known.has.bytes();
                match digests {
                    Some(digests) => {
                        self.set(effects, host, Step::Checking, now);
                        effects.compare(host, digests);
                    }
                    None => self.set_prepared(effects, host, now),
                }
            }
            (ToRoot::NeedsListing { fabrics }, Step::Preparing(_)) => {
                self.all[host].fabrics = fabrics;
                self.set(effects, host, Step::Unlisted, now);
            }
            (ToRoot::Ready { port }, Step::Opening(_)) => {
                self.all[host].port = port;
                self.set(effects, host, Step::Opened, now);
            }
            (ToRoot::Ready { port }, Step::Starting(_)) => {
                self.all[host].port = port;
                self.set(effects, host, Step::Ready, now);
            }
            (ToRoot::Progress { bytes }, _) if bytes > self.all[host].bytes => {
                self.all[host].bytes = bytes;
                if self.is_stream {
                    self.all[host].has.add((0, bytes.min(self.bytes)));
                }
                effects.observe(PushEvent::Progress { host, bytes });
            }
            (ToRoot::Worked { bytes }, _) => {
                self.timeouts.worked(&mut self.all[host], bytes, now, self.is_ending);
            }
            (ToRoot::Waited { group, waited }, _) => {
                let waited = waited.into_iter().map(Waited::from).collect();
                return Some(HostEvent::Waited { group, waited });
            }
            (ToRoot::Read { digests }, _) => return Some(HostEvent::Read { digests }),
            (ToRoot::Complete, Step::Ready) => self.set_complete(effects, host, now),
            (ToRoot::GroupClosed { group }, _) => return Some(HostEvent::Closed { group }),
            (ToRoot::GroupFailed { group, blamed, unconnected, detail, has }, _) => {
                // May lack ranges already known by the success of a group: the message is older.
                let (has, detail) = (has.within(self.bytes), shortened(&detail));
                return Some(HostEvent::GroupFailed { group, blamed, unconnected, detail, has });
            }
            (ToRoot::Altered { group, at }, _) => return Some(HostEvent::Altered { group, at }),
            (ToRoot::Said { line }, Step::Publishing(_)) => {
                self.all[host].said = Some(shortened(&line));
            }
            (ToRoot::Compared { equal: true }, Step::Comparing(_)) => {
                self.set(effects, host, Step::Verified, now);
            }
            (ToRoot::Compared { equal: false }, Step::Comparing(_)) => {
                self.set(effects, host, Step::Mismatch, now);
            }
            (ToRoot::Stored, Step::Storing(_)) => self.set(effects, host, Step::Stored, now),
            (ToRoot::Published { peak_resident_bytes, was_there }, Step::Publishing(_)) => {
                self.all[host].peak_resident_bytes = peak_resident_bytes;
                self.all[host].was_there = was_there;
                self.all[host].published = Some(now);
                self.set(effects, host, Step::Published, now);
            }
            (ToRoot::Leaving, Step::Published) => self.all[host].shares = false,
            (ToRoot::Shares { host: other }, Step::Preparing(_))
                if self.all.iter().any(|host| host.plan.name == other) =>
            {
                self.set(effects, host, Step::Shares(other), now);
            }
            (ToRoot::Failed { reason }, step) if self.all[host].is_open() => {
                // A host that reports failure while publishing has not published.
                self.all[host].may_have_published &= !matches!(step, Step::Publishing(_));
                return Some(HostEvent::Failed { reason: shortened(&reason) });
            }
            // Heartbeats, and late messages of earlier steps.
            _ => {}
        }
        None
    }

    /// These hosts are sent these ranges.
    pub(super) fn count_repeated(&mut self, hosts: impl Iterator<Item = usize>, ranges: &Ranges) {
        for host in hosts {
            let known = &mut self.all[host];
            known.repeated_bytes += known.has.intersection(ranges).bytes();
        }
    }

    /// A host has all bytes.
    pub(super) fn set_complete(&mut self, effects: &mut impl Effects, host: usize, now: Duration) {
        if self.all[host].replication.is_none() {
            let since = self.first_sent.unwrap_or(now);
            self.all[host].replication = Some(now.saturating_sub(since));
            let state = self.all[host].state();
            effects.observe(PushEvent::Host { host, state });
        }
    }

    /// Retries hosts whose backoff is over; returns hosts to give up because they are late, or lack the fabric that was chosen before
    /// they connected, with the reason.
    pub(super) fn given_up(
        &mut self,
        effects: &mut impl Effects,
        chosen: Option<&Fabric>,
        now: Duration,
    ) -> Vec<(usize, String)> {
        let mut late = chosen.map_or_else(Vec::new, |chosen| self.lacking(chosen));
        for host in 0..self.all.len() {
            let known = &mut self.all[host];
            if known.deadline().is_none_or(|until| now < until) {
                continue;
            }
            if matches!(known.step, Step::Backoff(_)) {
                known.step = Step::Awaited(now.saturating_add(self.settings.start_timeout));
                let (start, reason) = (known.start, known.lost_reason.clone());
                effects.expect_again(host, start);
                effects.observe(PushEvent::Retry { host, start, reason });
            } else {
                late.push((host, known.lateness(self.settings.start_timeout)));
            }
        }
        late
    }

    /// Hosts that are prepared and lack this fabric, with the reason.
    fn lacking(&self, chosen: &Fabric) -> Vec<(usize, String)> {
        // A host refuses one that was asked for with its own reason.
        if self.settings.fabric.is_some() {
            return Vec::new();
        }
        let name = chosen.name();
        let lacks = |host: &Host| host.step == Step::Prepared && !host.fabrics.contains(&name);
        let lacking = self.all.iter().enumerate().filter(|(_, host)| lacks(host));
        lacking.map(|(index, host)| (index, host.lack_of(&name))).collect()
    }

    /// In a dry run: releases the hosts that have reported what they lack.
    pub(super) fn examine(&mut self, effects: &mut impl Effects, now: Duration) {
        for host in 0..self.all.len() {
            if self.all[host].step == Step::Prepared {
                let reason = "this was a dry run".to_owned();
                effects.send_message(host, &ToReceiver::Abort { reason, keep: true });
                self.set(effects, host, Step::Examined, now);
            }
        }
    }

    /// Hosts that need the listing of the tree; none while others may come to need it as well.
    pub(super) fn all_unlisted(&mut self, now: Duration) -> Vec<usize> {
        let unlisted = self.at(|step| *step == Step::Unlisted);
        if unlisted.is_empty() {
            return unlisted;
        }
        self.timeouts.first_prepared.get_or_insert(now);
        let may_come = |host: &Host| {
            let comes = matches!(host.step, Step::Awaited(_) | Step::Preparing(_));
            comes && self.timeouts.waits_for(host, now)
        };
        if self.all.iter().any(may_come) { Vec::new() } else { unlisted }
    }

    /// Whether all of these hosts can use this fabric.
    pub(super) fn can_use(&self, hosts: &[usize], fabric: &Fabric) -> bool {
        let name = fabric.name();
        hosts.iter().all(|&host| self.all[host].fabrics.contains(&name))
    }

    /// Hosts that can take part in the group for the listing; none while others start their fabrics.
    pub(super) fn all_opened(&self) -> Vec<usize> {
        let opening = self.at(|step| matches!(step, Step::Opening(_)));
        if opening.is_empty() { self.at(|step| *step == Step::Opened) } else { Vec::new() }
    }

    fn at(&self, is_there: impl Fn(&Step) -> bool) -> Vec<usize> {
        (0..self.all.len()).filter(|&host| is_there(&self.all[host].step)).collect()
    }

    /// Lets a host start this fabric, to get the listing.
    pub(super) fn open(
        &mut self,
        effects: &mut impl Effects,
        host: usize,
        fabric: String,
        now: Duration,
    ) {
        effects.send_message(host, &ToReceiver::Use { fabric, has: RangeList::default() });
        self.set(effects, host, Step::Opening(now + JOIN_TIMEOUT), now);
    }

    /// Sends hosts the listing that could not be relayed to them.
    pub(super) fn send_listing(
        &mut self,
        effects: &mut impl Effects,
        hosts: &[usize],
        now: Duration,
    ) {
        for &host in hosts {
            effects.send_listing(host);
            self.prepare(effects, host, now);
        }
    }

    /// A host has the listing, or gets it: prepares its target.
    pub(super) fn prepare(&mut self, effects: &mut impl Effects, host: usize, now: Duration) {
        self.set(effects, host, Step::Preparing(now + self.timeouts.prepare_timeout()), now);
    }

    /// Hosts that can start a fabric; none while the first groups wait for others.
    pub(super) fn all_prepared(&mut self, is_first: bool, now: Duration) -> Vec<usize> {
        let is_prepared = |host: &Host| host.step == Step::Prepared;
        let prepared = self.at(|step| *step == Step::Prepared);
        if prepared.is_empty() {
            return prepared;
        }
        self.timeouts.first_prepared.get_or_insert(now);
        // The first choice of a fabric needs every host's list.
        let waits = |host: &Host| self.timeouts.waits_for(host, now) && !is_prepared(host);
        if is_first && self.all.iter().any(waits) { Vec::new() } else { prepared }
    }

    /// Lets a host start this fabric and reserve space.
    pub(super) fn use_fabric(
        &mut self,
        effects: &mut impl Effects,
        host: usize,
        fabric: String,
        now: Duration,
    ) {
        self.all[host].kept = self.all[host].has.clone();
        let has = RangeList::from(&self.all[host].has);
        effects.send_message(host, &ToReceiver::Use { fabric, has });
        // It changes its disk: reserves space, copies existing data out of a file that is to be replaced, makes directories.
        self.set(effects, host, Step::Starting(now + self.timeouts.prepare_timeout()), now);
    }

    /// Lets a host compare its copy with the digest.
    pub(super) fn compare(
        &mut self,
        effects: &mut impl Effects,
        host: usize,
        digest: blake3::Hash,
        now: Duration,
    ) {
        effects.send_message(host, &ToReceiver::Digest { digest: *digest.as_bytes() });
        self.set(effects, host, Step::Comparing(now + VERIFY_TIMEOUT), now);
    }

    /// Lets a host do everything that comes before publishing its copy.
    pub(super) fn store(&mut self, effects: &mut impl Effects, host: usize, now: Duration) {
        effects.send_message(host, &ToReceiver::Store);
        self.set(effects, host, Step::Storing(now + self.timeouts.sync_timeout()), now);
    }

    /// Lets a host publish its copy.
    pub(super) fn publish(&mut self, effects: &mut impl Effects, host: usize, now: Duration) {
        if !std::mem::replace(&mut self.is_publishing, true) {
            effects.observe(PushEvent::Publishing);
        }
        self.all[host].may_have_published = true;
        effects.send_message(host, &ToReceiver::Publish);
        self.set(effects, host, Step::Publishing(now + self.timeouts.sync_timeout()), now);
    }

    /// Keeps each host's share in the delay of a group that has ended.
    pub(super) fn keep_shares(&mut self, shares: impl Iterator<Item = (usize, f64)>) {
        for (host, share) in shares {
            self.all[host].waiting_share = Some(share);
        }
    }

    /// Gives a host up, or schedules a retry.
    pub(super) fn lose(
        &mut self,
        effects: &mut impl Effects,
        host: usize,
        reason: &str,
        now: Duration,
    ) {
        if retry::may_come_back(&self.all, host, self.bytes) {
            let before = self.all[host].state();
            self.all[host] = retry::backed_off(&self.all[host], reason, now);
            effects.finish_connection(host);
            self.observe_state(effects, host, &before);
        } else {
            let step = self.all[host].given_up(reason);
            self.set(effects, host, step, now);
        }
    }

    /// Ends all retries; hosts that publish get this long to confirm. Returns their number, and the other hosts
    /// that have neither published nor failed.
    pub(super) fn end(&mut self, last_answer: Duration, now: Duration) -> (usize, Vec<usize>) {
        self.is_ending = true;
        let (mut publishing, mut others) = (0, Vec::new());
        for (host, known) in self.all.iter_mut().enumerate() {
            known.retries = 0;
            if let Step::Publishing(until) = &mut known.step {
                *until = (*until).min(now + last_answer);
                publishing += 1;
            } else if known.is_open() {
                others.push(host);
            }
        }
        (publishing, others)
    }

    /// Whether a host gets its copy after others, which still lack data.
    pub(super) fn must_wait(&self, host: &Host) -> bool {
        let lacks = |host: &Host| host.is_ready() && !host.has.covers((0, self.bytes));
        let others = |other: &&Host| !other.is_last() && lacks(other);
        host.is_last() && self.all.iter().any(|other| others(&other))
    }

    /// Hosts that the next groups are for.
    pub(super) fn holders(&self) -> Vec<Holder<'_>> {
        let ready = self.all.iter().enumerate().filter(|(_, host)| host.is_ready());
        let now = ready.filter(|(_, host)| !self.must_wait(host));
        now.map(|(index, host)| {
            let is_source = self.settings.source_hosts.contains(&host.plan.name);
            Holder::new(index, host, is_source)
        })
        .collect()
    }

    /// The first host that was given up, with the reason: of a push to all or none.
    pub(super) fn first_given_up(&self) -> Option<PushError> {
        self.all.iter().find_map(|host| match &host.step {
            Step::Failed(reason) | Step::Unknown(reason) => {
                Some(PushError::NotAll { host: host.plan.name.clone(), reason: reason.clone() })
            }
            _ => None,
        })
    }

    /// Where members reach the root: the configured address, else the one that most hosts connected to.
    pub(super) fn own_address(&self, listening: SocketAddr) -> SocketAddr {
        let connected = self.reached_address(|host| host.is_ready() || host.step == Step::Opened);
        let address = self.settings.advertise.or(connected).unwrap_or(listening.ip());
        SocketAddr::new(address, listening.port())
    }

    /// The root's address that most of these hosts connected to.
    pub(super) fn reached_address(&self, counts: impl Fn(&Host) -> bool) -> Option<IpAddr> {
        let counted = |address: &IpAddr| {
            let calls = |host: &&Host| counts(host) && host.own_ip == Some(*address);
            self.all.iter().filter(calls).count()
        };
        self.all.iter().filter_map(|host| host.own_ip).max_by_key(counted)
    }
}

#[cfg(test)]
mod tests {
    use rdmc::Secret;

    use super::*;
    use crate::Reach;

    fn plan(name: &str) -> HostPlan {
        let name = name.to_owned();
        HostPlan { name, destination: String::new(), rack: 0, reach: Reach::Calls }
    }

    #[test]
    fn a_late_host_without_the_network_of_the_others_is_given_up_with_the_remedy() {
        let hosts = vec![plan("early"), plan("late"), plan("equal")];
        let mut settings = PushSettings::new(hosts, Secret::from_bytes([1; 32]));
        let lacking = |settings: &PushSettings| {
            let mut hosts = Hosts::new(settings, 1, false);
            for (host, (step, fabrics)) in hosts.iter_mut().zip([
                (Step::Ready, &["verbs", "tcp"][..]),
                (Step::Prepared, &["tcp"]),
                (Step::Prepared, &["verbs"]),
            ]) {
                (host.step, host.fabrics) = (step, fabrics.iter().map(|&it| it.into()).collect());
            }
            hosts.lacking(&Fabric::libfabric("verbs"))
        };
        let [(1, reason)] = &lacking(&settings)[..] else { panic!("the second lacks it") };
        assert!(reason.contains("over verbs") && reason.contains("--fabric tcp"), "{reason}");
        settings.fabric = Some(Fabric::libfabric("verbs"));
        assert_eq!(lacking(&settings), [], "the receiver says more");
    }
}
