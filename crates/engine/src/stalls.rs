//! Stall detection: finds the member that prevents a group from making progress.
//!
//! A member fails the group when it has waited for a neighbour for
//! [`crate::GroupSettings::stall_timeout`] without progress. Waiting alone is no fault: the last
//! receiver of sequential send waits for all copies before its own. Members therefore report to
//! their neighbours how long ago they made progress ([`Word::Moving`]). A member that waits for the
//! sender restarts its timeout from that moment, and forwards the report. Reports contain ages
//! rather than times of day, and an age only grows as it is forwarded, so members that wait for
//! each other in a circle do reach the timeout.
//!
//! The cause may be another member than the one that is waited for. After half of the timeout
//! without progress a member names the one that has to act ([`Word::Held`]): the one that the
//! neighbour it waits for has named, else that neighbour, or itself if its application has provided
//! no memory or its storage has not completed a transfer. A member that names no other is itself
//! the cause.

use std::{collections::BTreeMap, time::Duration};

use crate::words::Word;

/// The number of checks in one stall timeout.
const CHECKS_PER_TIMEOUT: u32 = 4;

/// Progress is reported again when it is newer by this fraction of the timeout.
const REPORTS_PER_TIMEOUT: u32 = 8;

/// How often a member may name another before it makes progress: enough for a chain of this many
/// members that wait for each other. The limit is needed because in a circle the names would change
/// for ever.
const NAMED_MAX: u32 = 64;

/// What a running group waits for at this member.
pub(crate) struct Situation {
    /// Messages are being relayed, or the group is closing.
    pub(crate) is_busy: bool,
    /// Neighbours that this member waits for, nearest first.
    pub(crate) waited_for: Vec<u32>,
    /// This member's application has not provided memory for the message that is next.
    pub(crate) owes_memory: bool,
    /// Since when no transfer between memory and a file has ended; `None` if there are none.
    pub(crate) storage_stuck_since: Option<Duration>,
}

/// A word for all neighbours, except the given one.
pub(crate) type ToAll = (Word, Option<u32>);

/// The result of a check.
pub(crate) enum Verdict {
    /// The group continues; these words must be written.
    GoOn(Vec<ToAll>),
    /// This member's storage has completed nothing for this long.
    StorageStuck { waited: Duration },
    /// The timeout has passed without progress; the member that has to act, as far as is known.
    Stalled { member: Option<u32> },
}

/// Progress at this member, and what neighbours have reported.
#[derive(Debug)]
pub(crate) struct Stalls {
    rank: u32,
    /// `None`: no limit.
    timeout: Option<Duration>,
    last_progress: Duration,
    /// The progress that was last reported to neighbours.
    reported: Duration,
    /// The members that neighbours have named since they last made progress, by neighbour.
    held: BTreeMap<u32, u32>,
    /// The member that this one has named since it last made progress.
    named: Option<u32>,
    /// How often this member has named one since then.
    named_times: u32,
}

impl Stalls {
    /// Makes the state of member `rank`. `timeout`: `None` is no limit.
    pub(crate) fn new(rank: u32, timeout: Option<Duration>, now: Duration) -> Self {
        Self {
            rank,
            timeout,
            last_progress: now,
            reported: now,
            held: BTreeMap::new(),
            named: None,
            named_times: 0,
        }
    }

    /// Notes that this neighbour has sent a block or a word, and so is not blocked.
    pub(crate) fn note_activity(&mut self, rank: u32) {
        self.held.remove(&rank);
    }

    /// Notes progress, or a call of the application: the timeout starts anew.
    pub(crate) fn note_progress(&mut self, at: Duration) {
        if at > self.last_progress {
            self.last_progress = at;
            self.named = None;
            self.named_times = 0;
        }
    }

    /// Returns when this member fails the group, if it waits for a neighbour or for its storage.
    fn deadline(&self, situation: &Situation) -> Option<Duration> {
        let timeout = self.timeout?;
        // Earlier than the members that wait for this one, which do not have the cause.
        let stuck = situation.storage_stuck_since.map(|since| since + timeout / 8 * 7);
        let waits = situation.waited_for.first().map(|_| self.last_progress + timeout);
        stuck.into_iter().chain(waits).min()
    }

    /// Returns when [`Stalls::check`] has to be called at the latest, if at all. `situation`: of a
    /// group that is running.
    pub(crate) fn next_check(
        &self,
        situation: Option<&Situation>,
        now: Duration,
    ) -> Option<Duration> {
        let regular = now + self.timeout? / CHECKS_PER_TIMEOUT;
        let deadline = situation.and_then(|situation| self.deadline(situation));
        Some(deadline.map_or(regular, |deadline| deadline.min(regular)))
    }

    /// Fails the group if the timeout has passed; otherwise reports progress, or names the member
    /// that has to act.
    pub(crate) fn check(&mut self, situation: &Situation, now: Duration) -> Verdict {
        let is_stuck = self.waits_for_storage(situation, now);
        if self.deadline(situation).is_none_or(|deadline| now < deadline) {
            let mut words: Vec<ToAll> = self.report_progress(situation, now).into_iter().collect();
            let idle = now.saturating_sub(self.last_progress);
            let is_idle = self.timeout.is_some_and(|timeout| idle >= timeout / 2);
            if is_idle || is_stuck {
                words.extend(self.name(situation, now));
            }
            return Verdict::GoOn(words);
        }
        match situation.storage_stuck_since {
            Some(since) if is_stuck => Verdict::StorageStuck { waited: now.saturating_sub(since) },
            _ => Verdict::Stalled { member: self.suspect(situation, now) },
        }
    }

    /// Processes a neighbour's report of how long ago it made progress. It counts here if this
    /// member waits for that neighbour.
    pub(crate) fn on_moving(
        &mut self,
        rank: u32,
        idle: Duration,
        situation: &Situation,
        now: Duration,
    ) -> Option<ToAll> {
        if situation.waited_for.first() != Some(&rank) {
            return None;
        }
        self.note_progress(now.saturating_sub(idle));
        self.report_progress(situation, now)
    }

    fn report_progress(&mut self, situation: &Situation, now: Duration) -> Option<ToAll> {
        let (timeout, last) = (self.timeout?, self.last_progress);
        if !situation.is_busy || last < self.reported + timeout / REPORTS_PER_TIMEOUT {
            return None;
        }
        self.reported = last;
        let idle_ms = now.saturating_sub(last).as_millis() as u64;
        Some((Word::Moving { idle_ms }, None))
    }

    /// Notes that `rank` has named the member that has to act before it can.
    pub(crate) fn on_held(
        &mut self,
        rank: u32,
        by: u32,
        situation: &Situation,
        now: Duration,
    ) -> Option<ToAll> {
        self.held.insert(rank, by);
        self.named.and_then(|_| self.name(situation, now))
    }

    /// Returns the word that names the member that has to act, if it is another than before.
    fn name(&mut self, situation: &Situation, now: Duration) -> Option<ToAll> {
        let by = self.suspect(situation, now).filter(|&by| self.named != Some(by))?;
        if self.named_times == NAMED_MAX {
            return None;
        }
        self.named = Some(by);
        self.named_times += 1;
        Some((Word::Held { by }, Some(by)))
    }

    /// Returns the member that has to act before this one can continue, as far as is known.
    fn suspect(&self, situation: &Situation, now: Duration) -> Option<u32> {
        if situation.owes_memory || self.waits_for_storage(situation, now) {
            return Some(self.rank);
        }
        let waited_for = &situation.waited_for;
        let named = |rank: &u32| self.held.get(rank).copied().unwrap_or(*rank);
        // A neighbour that waits for this member is not the cause, unless all wait for each other.
        let elsewhere = waited_for.iter().map(named).find(|&by| by != self.rank);
        elsewhere.or_else(|| waited_for.first().copied())
    }

    /// Returns whether this member's own storage has completed nothing for half of the timeout.
    fn waits_for_storage(&self, situation: &Situation, now: Duration) -> bool {
        let idle = situation.storage_stuck_since.map(|since| now.saturating_sub(since));
        idle.zip(self.timeout).is_some_and(|(idle, timeout)| idle >= timeout / 2)
    }
}
