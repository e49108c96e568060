//! Groups that are ended so that others can go on in their place: without a member that holds all
//! others up, or with one that has come meanwhile.

use std::{collections::BTreeMap, time::Duration};

use super::{attempt::Attempt, host::Host};

/// How long a group goes on before it is ended for somebody who has come later.
const REGROUP_AFTER: Duration = Duration::from_secs(1);
/// Nor is it ended if less than this part of the object is left: it is over soon.
const REGROUP_PART: u64 = 8;
/// After a host was set aside the others have to be faster by this much; else it was not the cause,
/// and nobody else is.
const FASTER: f64 = 1.2;

/// Who is set aside since the others are faster without it.
pub(super) struct Slowness {
    /// Groups have to be this fast, in bytes per second; `None`: as fast as they are.
    rate_min: Option<u64>,
    /// How fast the group was from which a host was set aside last.
    last_set_aside: Option<f64>,
}

impl Slowness {
    pub(super) fn new(rate_min: Option<u64>) -> Self {
        Self { rate_min, last_set_aside: None }
    }

    /// The host that holds this group up, if it is too slow, and how fast the group is, in bytes per second.
    /// `bytes`: length of the object.
    pub(super) fn judge(
        &mut self,
        attempt: &mut Attempt,
        hosts: &mut [Host],
        bytes: u64,
        now: Duration,
    ) -> Option<(usize, u64)> {
        let rate_min = self.rate_min?;
        let members: Vec<usize> = attempt.members().collect();
        let unfinished = members.iter().map(|&host| hosts[host].bytes).filter(|&has| has < bytes);
        let slowest_bytes = unfinished.min()?;
        let by_rank: Vec<Option<usize>> = attempt.by_rank().collect();
        let (ranks, host_of) = (by_rank.len(), |rank: u32| by_rank[rank as usize]);
        let doubts = |rank: u32| host_of(rank).map_or(0, |host| hosts[host].doubts);
        let slow = attempt.pace.judge(now, slowest_bytes, (ranks, rate_min as f64), &doubts)?;
        let Some(host) = host_of(slow.rank) else {
            tracing::warn!(rate = slow.rate, "this machine holds the others up");
            return None;
        };
        for &rank in &slow.suspects {
            if let Some(host) = host_of(rank) {
                hosts[host].doubts += 1;
            }
        }
        let aside = hosts.iter().filter(|host| host.set_aside.is_some()).count();
        let others = members.iter().filter(|&&one| one != host && hosts[one].set_aside.is_none());
        let is_of_use = self.last_set_aside.is_none_or(|rate| slow.rate >= rate * FASTER);
        if others.count() == 0 || (aside + 1) * 2 > hosts.len() || !is_of_use {
            return None;
        }
        self.last_set_aside = Some(slow.rate);
        hosts[host].set_aside = Some(slow.rate as u64);
        Some((host, slow.rate as u64))
    }
}

/// Whether a host that is ready waits for groups to end, and they are worth ending. `bytes`: length of the object.
pub(super) fn has_latecomer(
    hosts: &[Host],
    attempts: &BTreeMap<u64, Attempt>,
    bytes: u64,
    now: Duration,
) -> bool {
    let mut ready = hosts.iter().enumerate().filter(|(_, host)| {
        host.is_ready() && host.set_aside.is_none() && !host.has.covers((0, bytes))
    });
    let is_member = |host: usize| {
        attempts.values().any(|attempt| attempt.members().any(|member| member == host))
    };
    ready.any(|(host, _)| !is_member(host))
        && attempts.values().all(|attempt| {
            let members = attempt.part.hosts.iter().map(|&host| hosts[host].bytes);
            let left = bytes.saturating_sub(members.min().unwrap_or(bytes));
            let is_old = now >= attempt.since + REGROUP_AFTER;
            attempt.is_running() && is_old && left > bytes / REGROUP_PART
        })
}
