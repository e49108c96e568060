//! Running groups that are replaced by others: without a straggler, or with a host that became ready later.

use std::{collections::BTreeMap, time::Duration};

use super::{group::PushGroup, host::Host, object::Object};

/// The least age of a group that is replaced for a host that became ready later.
const REGROUP_AFTER: Duration = Duration::from_secs(1);
/// A group with less than this fraction of the object left is not replaced.
const REGROUP_PART: u64 = 8;
/// How much faster a group must be after hosts were deferred; otherwise these were not the cause, and no
/// further one is deferred.
const FASTER: f64 = 1.2;

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

/// Whether a member that has sent a share is done, and the rest of what it has sent a share of is worth being cut anew.
pub(super) fn has_idle_source(
    hosts: &[Host],
    groups: &BTreeMap<u64, PushGroup>,
    object: &Object,
    now: Duration,
) -> bool {
    groups.values().any(|group| {
        let same = groups.values().filter(|other| other.part.hosts == group.part.hosts);
        same.count() < group.part.shares
    }) && are_worth_replacing(hosts, groups, object, now)
}

/// Whether so much is left of what several members send shares of that it may be cut anew.
pub(super) fn may_be_cut(
    hosts: &[Host],
    groups: &BTreeMap<u64, PushGroup>,
    object: &Object,
) -> bool {
    let bytes = object.bytes();
    groups
        .values()
        .any(|group| group.part.shares > 1 && group.left(hosts, bytes) > bytes / REGROUP_PART)
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
