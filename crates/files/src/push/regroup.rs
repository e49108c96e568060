//! Groups that are ended so that others can go on in their place: without a member that holds all
//! others up, or with one that has come meanwhile.

use std::time::Duration;

use super::{
    coordinator::Coordinator,
    host::Host,
    settings::{HostPlan, PushError, PushEvent},
    stage::Stage,
};

/// How long a group goes on before it is ended for somebody who has come later.
const REGROUP_AFTER: Duration = Duration::from_secs(1);
/// Nor is it ended if less than this part of the object is left: it is over soon.
const REGROUP_PART: u64 = 8;
/// After a host was set aside the others have to be faster by this much; else it was not the cause,
/// and nobody else is.
const FASTER: f64 = 1.2;

impl Coordinator<'_> {
    /// A host that was not planned has come; answers its index.
    pub fn admit(&mut self, plan: HostPlan) -> usize {
        let until = self.now.saturating_add(self.settings.start_timeout);
        let mut host = Host::new(plan, self.settings.retries, until);
        // It may have come before, by the same name.
        let may_have = |known: &Host| known.plan.name == host.plan.name && known.may_have_published;
        host.may_have_published = self.hosts.iter().any(may_have);
        self.hosts.push(host);
        self.hosts.len() - 1
    }

    /// Looks how groups that are under way come forward. Errors: what they send has changed.
    pub(super) fn look(&mut self, stage: &mut impl Stage) -> Result<(), PushError> {
        let is_due = |(&group, attempt): (&u64, &mut super::attempt::Attempt)| {
            (attempt.is_running() && attempt.pace.is_due(self.now)).then_some(group)
        };
        let due: Vec<u64> = self.attempts.iter_mut().filter_map(is_due).collect();
        if !due.is_empty() {
            stage.check_source()?;
        }
        for &group in &due {
            if let Some(attempt) = self.attempts.get_mut(&group)
                && attempt.part.source.is_none()
            {
                attempt.heard(None, stage.waited(group));
            }
            self.judge(stage, group);
        }
        if !due.is_empty() && self.has_latecomer() {
            self.regroup(stage, &due);
        }
        Ok(())
    }

    /// Keeps who has held a group up that is over.
    pub(super) fn note_shares(&mut self, group: u64) {
        let Some(attempt) = self.attempts.get(&group) else { return };
        let shares = attempt.pace.shares(attempt.by_rank().count());
        for (member, share) in attempt.by_rank().zip(shares) {
            if let Some(host) = member {
                self.hosts[host].waiting_share = Some(share);
            }
        }
    }

    /// Sets a host aside that holds this group up, if it is too slow.
    fn judge(&mut self, stage: &mut impl Stage, group: u64) {
        let (Some(rate_min), Some(attempt)) =
            (self.settings.rate_min, self.attempts.get_mut(&group))
        else {
            return;
        };
        let hosts = &mut self.hosts;
        let members: Vec<usize> = attempt.members().collect();
        let unfinished =
            members.iter().map(|&host| hosts[host].bytes).filter(|&has| has < self.bytes);
        let Some(bytes) = unfinished.min() else { return };
        let by_rank: Vec<Option<usize>> = attempt.by_rank().collect();
        let (ranks, host_of) = (by_rank.len(), |rank: u32| by_rank[rank as usize]);
        let doubts = |rank: u32| host_of(rank).map_or(0, |host| hosts[host].doubts);
        let slow = attempt.pace.judge(self.now, bytes, (ranks, rate_min as f64), &doubts);
        let Some(slow) = slow else { return };
        let Some(host) = host_of(slow.rank) else {
            tracing::warn!(rate = slow.rate, "this machine holds the others up");
            return;
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
            return;
        }
        self.last_set_aside = Some(slow.rate);
        hosts[host].set_aside = Some(slow.rate as u64);
        let bytes_per_second = slow.rate as u64;
        tracing::info!(host = hosts[host].plan.name, bytes_per_second, "set aside");
        stage.observe(PushEvent::SetAside { host, bytes_per_second });
        self.regroup(stage, &[group]);
    }

    /// Whether a host that is ready waits for groups to end.
    fn has_latecomer(&self) -> bool {
        let mut hosts = self.hosts.iter().enumerate().filter(|(_, host)| {
            host.is_ready() && host.set_aside.is_none() && !host.has.covers((0, self.bytes))
        });
        let is_member = |host: usize| {
            self.attempts.values().any(|attempt| attempt.members().any(|member| member == host))
        };
        hosts.any(|(host, _)| !is_member(host))
            && self.attempts.values().all(|attempt| {
                let members = attempt.part.hosts.iter().map(|&host| self.hosts[host].bytes);
                let left = self.bytes.saturating_sub(members.min().unwrap_or(self.bytes));
                let is_old = self.now >= attempt.since + REGROUP_AFTER;
                attempt.is_running() && is_old && left > self.bytes / REGROUP_PART
            })
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

    /// Whether a host has to wait until the others have all: those that were set aside.
    pub(super) fn is_aside(&self, host: &Host) -> bool {
        let lacks = |host: &Host| host.is_ready() && !host.has.covers((0, self.bytes));
        let others = |other: &&Host| other.set_aside.is_none() && lacks(other);
        host.set_aside.is_some() && self.hosts.iter().any(|other| others(&other))
    }
}
