//! All hosts of a push: what each does and has, and until when it may take.
//!
//! What a host says of itself is handled here; what it says of groups is answered as [`Said`], and which hosts
//! have to be given up is answered too.

use std::{
    net::{IpAddr, SocketAddr},
    ops::{Deref, DerefMut},
    time::Duration,
};

use rdmc::Waited;

use super::{
    host::{Host, Step},
    patience::{Patience, VERIFY_TIMEOUT},
    retry,
    settings::{HostPlan, HostState, PushEvent, PushSettings},
    stage::Stage,
};
use crate::{
    messages::{JOIN_TIMEOUT, ToReceiver, ToRoot},
    ranges::{RangeList, Ranges},
};

/// What a host has said that concerns others than itself.
pub(super) enum Said {
    /// Whom it has waited for in a group.
    Waited { group: u64, waited: Vec<Waited> },
    /// A group has closed with success.
    Closed { group: u64 },
    /// A group has failed; which member it blames, by rank, and what it has.
    GroupFailed { group: u64, member: Option<u32>, detail: String, has: Ranges },
    /// It cannot go on.
    Failed { reason: String },
}

/// By their indices.
pub struct Hosts<'a> {
    all: Vec<Host>,
    settings: &'a PushSettings,
    /// Length of the object.
    bytes: u64,
    patience: Patience,
    /// When the root, or a host for it, has sent for the first time.
    pub(super) first_sent: Option<Duration>,
    /// The push is to end: nobody gets more time.
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
    pub(super) fn new(settings: &'a PushSettings, bytes: u64) -> Self {
        let host = |plan| Host::new(plan, settings.retries, settings.start_timeout);
        Self {
            all: settings.hosts.iter().cloned().map(host).collect(),
            settings,
            bytes,
            patience: Patience::new(bytes),
            first_sent: None,
            is_ending: false,
        }
    }

    /// One more, that was not planned; answers its index.
    pub(super) fn add(&mut self, plan: HostPlan, now: Duration) -> usize {
        let until = now.saturating_add(self.settings.start_timeout);
        let mut host = Host::new(plan, self.settings.retries, until);
        // It may have come before, by the same name.
        let may_have = |known: &Host| known.plan.name == host.plan.name && known.may_have_published;
        host.may_have_published = self.all.iter().any(may_have);
        self.all.push(host);
        self.all.len() - 1
    }

    /// Whether a host is waited for, so that it may come.
    pub fn expects(&self, host: usize) -> bool {
        matches!(self.all[host].step, Step::Awaited(_))
    }

    /// Whether hosts that the first groups wait for are still on their way to being ready.
    pub(super) fn are_gathering(&self, now: Duration) -> bool {
        self.all.iter().any(|host| self.patience.waits_for(host, now))
    }

    /// When the first groups wait for one host less.
    pub(super) fn next_unawaited(&self, now: Duration) -> Option<Duration> {
        let times = self.all.iter().filter_map(|host| self.patience.waits_until(host));
        times.filter(|&at| now < at).min()
    }

    /// When one of them is late.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.all.iter().filter_map(Host::deadline).min()
    }

    pub(super) fn set(&mut self, stage: &mut impl Stage, host: usize, step: Step, now: Duration) {
        let before = self.all[host].state();
        self.all[host].step = step;
        self.all[host].progressed_at = now;
        self.tell_state(stage, host, &before);
    }

    fn tell_state(&self, stage: &mut impl Stage, host: usize, before: &HostState) {
        let state = self.all[host].state();
        if state != *before {
            stage.observe(PushEvent::Host { host, state });
        }
    }

    /// A host is there, and has been told what is to come.
    pub(super) fn came(
        &mut self,
        stage: &mut impl Stage,
        host: usize,
        (ip, own_ip): (IpAddr, IpAddr),
        now: Duration,
    ) {
        let known = &mut self.all[host];
        (known.ip, known.own_ip) = (Some(ip), Some(own_ip));
        self.set(stage, host, Step::Preparing(now + self.patience.prepare_timeout()), now);
    }

    /// What a host has of an earlier session was compared.
    pub(super) fn checked(
        &mut self,
        stage: &mut impl Stage,
        host: usize,
        right: Ranges,
        now: Duration,
    ) {
        if self.all[host].step == Step::Checking {
            self.all[host].resumed_bytes = right.bytes();
            self.all[host].has = right;
            self.set(stage, host, Step::Prepared, now);
        }
    }

    /// A host has said something.
    pub(super) fn said(
        &mut self,
        stage: &mut impl Stage,
        host: usize,
        message: ToRoot,
        now: Duration,
    ) -> Option<Said> {
        let step = self.all[host].step.clone();
        match (message, step) {
            (ToRoot::Prepared { fabrics, leftover }, Step::Preparing(_)) => {
                self.all[host].fabrics = fabrics;
                match leftover {
                    Some(leftover) => {
                        self.set(stage, host, Step::Checking, now);
                        stage.check(host, leftover);
                    }
                    None => self.set(stage, host, Step::Prepared, now),
                }
            }
            (ToRoot::Ready { port }, Step::Starting(_)) => {
                self.all[host].port = port;
                self.set(stage, host, Step::Ready, now);
            }
            (ToRoot::Progress { bytes }, _) if bytes > self.all[host].bytes => {
                self.all[host].bytes = bytes;
                stage.observe(PushEvent::Progress { host, bytes });
            }
            (ToRoot::Worked { bytes }, _) => {
                self.patience.worked(&mut self.all[host], bytes, now, self.is_ending);
            }
            (ToRoot::Waited { round, waited }, _) => {
                let waited = waited.into_iter().map(Waited::from).collect();
                return Some(Said::Waited { group: round, waited });
            }
            (ToRoot::Whole, Step::Ready) => self.note_whole(stage, host, now),
            (ToRoot::RoundClosed { round }, _) => return Some(Said::Closed { group: round }),
            (ToRoot::RoundFailed { round, member, detail, has }, _) => {
                // It may know less than others have told of it: what it says was on its way.
                let has = has.within(self.bytes);
                return Some(Said::GroupFailed { group: round, member, detail, has });
            }
            (ToRoot::Compared { equal: true }, Step::Comparing(_)) => {
                self.set(stage, host, Step::Verified, now);
            }
            (ToRoot::Compared { equal: false }, Step::Comparing(_)) => {
                self.set(stage, host, Step::Differs, now);
            }
            (ToRoot::Published { peak_resident_bytes, was_there }, Step::Publishing(_)) => {
                self.all[host].peak_resident_bytes = peak_resident_bytes;
                self.all[host].was_there = was_there;
                self.set(stage, host, Step::Published, now);
            }
            (ToRoot::Failed { reason }, step) if self.all[host].is_open() => {
                // It says itself that it has not.
                self.all[host].may_have_published &= !matches!(step, Step::Publishing(_));
                return Some(Said::Failed { reason });
            }
            // Heartbeats, and words of what is over.
            _ => {}
        }
        None
    }

    /// A host has everything.
    pub(super) fn note_whole(&mut self, stage: &mut impl Stage, host: usize, now: Duration) {
        if self.all[host].replication.is_none() {
            let since = self.first_sent.unwrap_or(now);
            self.all[host].replication = Some(now.saturating_sub(since));
            let state = self.all[host].state();
            stage.observe(PushEvent::Host { host, state });
        }
    }

    /// Tries those again whose pause is over; answers whom to give up since they are late, and why.
    pub(super) fn late(&mut self, stage: &mut impl Stage, now: Duration) -> Vec<(usize, String)> {
        let mut late = Vec::new();
        for host in 0..self.all.len() {
            let known = &mut self.all[host];
            if known.deadline().is_none_or(|until| now < until) {
                continue;
            }
            if matches!(known.step, Step::Resting(_)) {
                known.step = Step::Awaited(now.saturating_add(self.settings.start_timeout));
                let (start, reason) = (known.start, known.lost_by.clone());
                stage.expect_again(host, start);
                stage.observe(PushEvent::Retry { host, start, reason });
            } else {
                late.push((host, known.lateness(self.settings.start_timeout)));
            }
        }
        late
    }

    /// Those that can start a fabric, unless the first groups wait for others that cannot yet.
    pub(super) fn all_prepared(&mut self, is_first: bool, now: Duration) -> Vec<usize> {
        let is_prepared = |host: &Host| host.step == Step::Prepared;
        let prepared = (0..self.all.len()).filter(|&host| is_prepared(&self.all[host]));
        let prepared: Vec<usize> = prepared.collect();
        if prepared.is_empty() {
            return prepared;
        }
        self.patience.first_prepared.get_or_insert(now);
        // The first time all have to be asked what they have.
        let waits = |host: &Host| self.patience.waits_for(host, now) && !is_prepared(host);
        if is_first && self.all.iter().any(waits) { Vec::new() } else { prepared }
    }

    /// A host starts this fabric, and makes room for what it lacks.
    pub(super) fn use_fabric(
        &mut self,
        stage: &mut impl Stage,
        host: usize,
        fabric: String,
        now: Duration,
    ) {
        let has = RangeList::from(&self.all[host].has);
        stage.tell(host, &ToReceiver::Use { fabric, has });
        // What a host has may be in a file that is to be replaced, and has to be copied then.
        let timeout = match self.all[host].has.bytes() {
            0 => JOIN_TIMEOUT,
            _ => self.patience.prepare_timeout(),
        };
        self.set(stage, host, Step::Starting(now + timeout), now);
    }

    /// A host compares its copy with the digest.
    pub(super) fn compare(
        &mut self,
        stage: &mut impl Stage,
        host: usize,
        digest: blake3::Hash,
        now: Duration,
    ) {
        stage.tell(host, &ToReceiver::Digest { digest: *digest.as_bytes() });
        self.set(stage, host, Step::Comparing(now + VERIFY_TIMEOUT), now);
    }

    /// A host gives its copy its name.
    pub(super) fn publish(&mut self, stage: &mut impl Stage, host: usize, now: Duration) {
        self.all[host].may_have_published = true;
        stage.tell(host, &ToReceiver::Publish);
        self.set(stage, host, Step::Publishing(now + self.patience.sync_timeout()), now);
    }

    /// Gives a host up, or expects it again after a pause.
    pub(super) fn lose(
        &mut self,
        stage: &mut impl Stage,
        host: usize,
        reason: &str,
        now: Duration,
    ) {
        if retry::may_come_back(&self.all, host, self.bytes) {
            let before = self.all[host].state();
            self.all[host] = retry::rested(&self.all[host], reason, now);
            stage.leave(host);
            self.tell_state(stage, host, &before);
        } else {
            let step = self.all[host].given_up(reason);
            self.set(stage, host, step, now);
        }
    }

    /// The push is to end: nobody is tried again, and hosts that publish have this long to say so. Answers how
    /// many these are, and the others that have neither a copy nor failed.
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

    /// It was set aside, and has to wait until the others have all.
    pub(super) fn waits_aside(&self, host: &Host) -> bool {
        let lacks = |host: &Host| host.is_ready() && !host.has.covers((0, self.bytes));
        let others = |other: &&Host| other.set_aside.is_none() && lacks(other);
        host.set_aside.is_some() && self.all.iter().any(|other| others(&other))
    }

    /// Where members reach the root: the address that most of them have called, unless told.
    pub(super) fn own_address(&self, listening: SocketAddr) -> SocketAddr {
        let counted = |address: &IpAddr| {
            let calls = |host: &&Host| host.is_ready() && host.own_ip == Some(*address);
            self.all.iter().filter(calls).count()
        };
        let called = self.all.iter().filter_map(|host| host.own_ip).max_by_key(counted);
        let address = self.settings.advertise.or(called).unwrap_or(listening.ip());
        SocketAddr::new(address, listening.port())
    }
}
