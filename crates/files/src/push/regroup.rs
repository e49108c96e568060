//! Running groups that are replaced by others: without a straggler, with a host that became ready later, or with further senders.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{group::PushGroup, host::Host, object::Object};

/// The least age of a group that is replaced for a host that became ready later.
const REGROUP_AFTER: Duration = Duration::from_secs(1);
/// A group with less than this fraction of the object left is not replaced.
pub(super) const REGROUP_PART: u64 = 8;
/// How much faster a group must be after hosts were deferred; otherwise these were not the cause, and no
/// further one is deferred.
const FASTER: f64 = 1.2;
/// How often the rest is cut anew: each time costs what is under way.
pub(super) const CUTS_MAX: u32 = 8;
/// When a share is done the others go on at the rate of all shares, if not their senders' links are the limit.
const SLOW_ALONE: f64 = 0.8;

/// Defers hosts that delay the others.
pub(super) struct Slowness {
    /// The least rate of groups in bytes per second; `None`: any.
    rate_min: Option<u64>,
    /// The rate of the group from which hosts were deferred last.
    last_deferred_at: Option<f64>,
}

impl Slowness {
    pub(super) fn new(rate_min: Option<u64>) -> Self {
        Self { rate_min, last_deferred_at: None }
    }

    /// If the group is too slow: defers the stragglers, and returns them with the group's rate in bytes per second.
    /// `bytes`: length of the object.
    pub(super) fn judge(
        &mut self,
        group: &mut PushGroup,
        hosts: &mut [Host],
        bytes: u64,
        now: Duration,
    ) -> Option<(Vec<usize>, u64)> {
        let rate_min = self.rate_min?;
        let members: Vec<usize> = group.members().collect();
        let unfinished = members.iter().map(|&host| hosts[host].bytes).filter(|&has| has < bytes);
        let slowest_bytes = unfinished.min()?;
        let by_rank: Vec<Option<usize>> = group.by_rank().collect();
        let (ranks, host_of) = (by_rank.len(), |rank: u32| by_rank[rank as usize]);
        let suspicions = |rank: u32| host_of(rank).map_or(0, |host| hosts[host].suspicions);
        let slow = group.rate.judge(now, slowest_bytes, ranks, rate_min as f64, &suspicions)?;
        let stragglers: Vec<usize> = slow.ranks.iter().filter_map(|&rank| host_of(rank)).collect();
        if stragglers.is_empty() {
            tracing::warn!(rate = slow.rate, "this machine delays the others");
            return None;
        }
        for &rank in &slow.suspects {
            if let Some(host) = host_of(rank) {
                hosts[host].suspicions += 1;
            }
        }
        let is_deferred = |host: &Host| host.deferred_at.is_some();
        let deferred = hosts.iter().filter(|host| is_deferred(host)).count();
        let others = members
            .iter()
            .filter(|host| !stragglers.contains(host) && !is_deferred(&hosts[**host]));
        let is_of_use = self.last_deferred_at.is_none_or(|rate| slow.rate >= rate * FASTER);
        if others.count() == 0 || (deferred + stragglers.len()) * 2 > hosts.len() || !is_of_use {
            return None;
        }
        self.last_deferred_at = Some(slow.rate);
        for &host in &stragglers {
            hosts[host].deferred_at = Some(slow.rate as u64);
        }
        Some((stragglers, slow.rate as u64))
    }
}

/// When the rest of what several members send shares of is cut anew.
#[derive(Default)]
pub(super) struct Recuts {
    count: u32,
    /// Hosts that have sent shares.
    hosts: BTreeSet<usize>,
    /// Since a share is done.
    alone: Option<Alone>,
}

/// What was when a share was done, and others were not.
struct Alone {
    since: Duration,
    left: u64,
    /// What all shares brought before, in bytes per second.
    rate: f64,
}

impl Recuts {
    /// A host sends a share.
    pub(super) fn add(&mut self, host: usize) {
        self.hosts.insert(host);
    }

    /// Whether this host may have to send more of the rest, so that it does not publish yet.
    pub(super) fn may_need(
        &self,
        host: usize,
        hosts: &[Host],
        groups: &BTreeMap<u64, PushGroup>,
        bytes: u64,
    ) -> bool {
        let mut shares = groups.values().filter(|group| group.part.shares > 1);
        self.count < CUTS_MAX
            && self.hosts.contains(&host)
            && shares.any(|group| group.left(hosts, bytes) > bytes / REGROUP_PART)
    }

    /// Whether the groups are to be replaced, since a share is done and the others have become slow: more members can send.
    pub(super) fn is_due(
        &mut self,
        hosts: &[Host],
        groups: &BTreeMap<u64, PushGroup>,
        object: &Object,
        now: Duration,
    ) -> bool {
        let is_alone = |group: &&PushGroup| {
            let own = takers(group);
            let same = groups.values().filter(|other| takers(other) == own);
            same.count() < group.part.shares
        };
        let group = groups.values().find(is_alone).filter(|_| self.count < CUTS_MAX);
        let Some(group) = group.filter(|_| are_worth_replacing(hosts, groups, object, now)) else {
            self.alone = None;
            return false;
        };
        let left = group.left(hosts, object.bytes());
        let rate = |before: u64, since: Duration| {
            before.saturating_sub(left) as f64 / now.saturating_sub(since).as_secs_f64()
        };
        let Some(alone) = &self.alone else {
            let at_start = object.bytes().saturating_sub(group.rate.window_bytes());
            self.alone = Some(Alone { since: now, left, rate: rate(at_start, group.since) });
            return false;
        };
        let is_slow = rate(alone.left, alone.since) < alone.rate * SLOW_ALONE;
        let is_due = is_slow && now >= alone.since + REGROUP_AFTER;
        if is_due {
            (self.count, self.alone) = (self.count + 1, None);
        }
        is_due
    }
}

/// Hosts that have the part of a group afterwards, and had not.
fn takers(group: &PushGroup) -> BTreeSet<usize> {
    group.part.takers().collect()
}

/// How much of an object of this length a group has brought its slowest host, if what that lacks is divided evenly among its groups.
pub(super) fn sent(
    group: &PushGroup,
    groups: &BTreeMap<u64, PushGroup>,
    hosts: &[Host],
    bytes: u64,
) -> u64 {
    let own = takers(group);
    let same = groups.values().filter(|other| takers(other) == own).count();
    let left = group.left(hosts, bytes) / same.max(1) as u64;
    group.part.ranges.bytes().saturating_sub(left)
}

/// Whether a ready host is in no group, and the running groups are worth replacing: those of a stream always are.
pub(super) fn has_unserved_host(
    hosts: &[Host],
    groups: &BTreeMap<u64, PushGroup>,
    object: &Object,
    now: Duration,
) -> bool {
    let bytes = object.bytes();
    let mut ready = hosts
        .iter()
        .enumerate()
        .filter(|(_, host)| host.is_ready() && !host.is_last() && !host.has.covers((0, bytes)));
    let is_member = |host: usize| groups.values().any(|group| group.has_member(host));
    ready.any(|(host, _)| !is_member(host)) && are_worth_replacing(hosts, groups, object, now)
}

fn are_worth_replacing(
    hosts: &[Host],
    groups: &BTreeMap<u64, PushGroup>,
    object: &Object,
    now: Duration,
) -> bool {
    groups.values().all(|group| {
        let is_old = now >= group.since + REGROUP_AFTER;
        let is_worth_it =
            object.is_stream() || group.left(hosts, object.bytes()) > object.bytes() / REGROUP_PART;
        group.is_running() && is_old && is_worth_it
    })
}
