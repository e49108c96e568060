//! Groups that stand still, and members that wait for long while others are busy.
//!
//! A member that waits for somebody with whom nothing moves gives up after
//! `GroupSettings::stall_timeout`. Waiting alone is no fault: the last receiver of sequential
//! send waits for all copies before its own. So members tell their neighbours now and then when
//! something has last moved with them ([`Word::Moving`]); who waits for such a member counts from
//! then, and passes it on. Ages are told, not times of day, and only grow on the way: members that
//! wait for each other in a circle cannot keep each other waiting for ever.
//!
//! Who waits for somebody who waits, too, must not blame that one. So members with whom nothing has
//! moved for half of the timeout say who has to do something ([`Word::Held`]): whom the one that
//! they wait for has named, or that one itself, or they themselves if their application has given
//! no memory or their own storage has not answered. A member that names nobody is itself the cause.

use std::{collections::BTreeMap, time::Duration};

use relay::RelayError;

use crate::words::Word;

/// Looks at the clock within one stall timeout.
const CHECKS_PER_TIMEOUT: u32 = 4;

/// What has to have happened since neighbours were last told, as a part of the timeout.
const TOLD_PER_TIMEOUT: u32 = 8;

/// How often a member may change its mind about whom to name before something moves again: for
/// chains of so many members that wait for each other. In a circle they would go on for ever.
const NAMED_MAX: u32 = 64;

/// What a running group waits for at this member.
pub(crate) struct Situation {
    /// Messages are being relayed, or the group is closing.
    pub(crate) is_busy: bool,
    /// Members that owe this one something, nearest first.
    pub(crate) waited_for: Vec<u32>,
    /// This member's application has not given memory for the message that is next.
    pub(crate) owes_memory: bool,
    /// Since when no transfer between memory and a file has ended, while there are any.
    pub(crate) storage_stuck_since: Option<Duration>,
}

/// A word to all neighbours but one.
pub(crate) type ToAll = (Word, Option<u32>);

/// What is to be done because of the time.
pub(crate) enum Verdict {
    /// The group goes on; these words are to be written.
    GoOn(Vec<ToAll>),
    /// This member's own storage has not answered for so long.
    StorageStuck { waited: Duration },
    /// Nothing has moved for too long, and this member has to do something, as far as is known.
    Stalled { member: Option<u32> },
}

/// When something has last moved, and who waits for whom.
#[derive(Debug)]
pub(crate) struct Stalls {
    rank: u32,
    members: u32,
    /// `None`: for ever.
    timeout: Option<Duration>,
    last_progress: Duration,
    /// The progress that neighbours were last told of.
    told: Duration,
    /// Whom neighbours wait for who have not moved since they said so.
    held: BTreeMap<u32, u32>,
    /// Whom neighbours were last told to be waited for here, since something has moved.
    named: Option<u32>,
    /// How often they were told.
    named_times: u32,
}

impl Stalls {
    /// Of member `rank` of so many. `timeout`: `None` is for ever.
    pub(crate) fn new(rank: u32, members: u32, timeout: Option<Duration>, now: Duration) -> Self {
        Self {
            rank,
            members,
            timeout,
            last_progress: now,
            told: now,
            held: BTreeMap::new(),
            named: None,
            named_times: 0,
        }
    }

    /// This neighbour has done something.
    pub(crate) fn note_life(&mut self, rank: u32) {
        self.held.remove(&rank);
    }

    /// Something has moved, or has been asked for: stalling counts from now.
    pub(crate) fn note_progress(&mut self, at: Duration) {
        if at > self.last_progress {
            self.last_progress = at;
            self.named = None;
            self.named_times = 0;
        }
    }

    /// When this member gives up, if it waits for somebody, or for its own storage.
    fn deadline(&self, situation: &Situation) -> Option<Duration> {
        let timeout = self.timeout?;
        // A little earlier than others who wait for this member: it alone knows why.
        let stuck = situation.storage_stuck_since.map(|since| since + timeout / 8 * 7);
        let waits = situation.waited_for.first().map(|_| self.last_progress + timeout);
        stuck.into_iter().chain(waits).min()
    }

    /// When [`Stalls::check`] wants to be called at the latest; `None` if it need not be. `situation`:
    /// of a group that is running.
    pub(crate) fn next_check(
        &self,
        situation: Option<&Situation>,
        now: Duration,
    ) -> Option<Duration> {
        let regular = now + self.timeout? / CHECKS_PER_TIMEOUT;
        let deadline = situation.and_then(|situation| self.deadline(situation));
        Some(deadline.map_or(regular, |deadline| deadline.min(regular)))
    }

    /// Gives up if it is time; else tells neighbours if something has moved, or who has to do
    /// something if nothing has for long.
    pub(crate) fn check(&mut self, situation: &Situation, now: Duration) -> Verdict {
        let is_stuck = self.waits_for_storage(situation, now);
        if self.deadline(situation).is_none_or(|deadline| now < deadline) {
            let mut words: Vec<ToAll> = self.tell_of_progress(situation, now).into_iter().collect();
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

    /// A neighbour says when something has last moved with it: of interest if this member waits
    /// for that one.
    pub(crate) fn heard_moving(
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
        self.tell_of_progress(situation, now)
    }

    fn tell_of_progress(&mut self, situation: &Situation, now: Duration) -> Option<ToAll> {
        let (timeout, last) = (self.timeout?, self.last_progress);
        if !situation.is_busy || last < self.told + timeout / TOLD_PER_TIMEOUT {
            return None;
        }
        self.told = last;
        let idle_ms = now.saturating_sub(last).as_millis() as u64;
        Some((Word::Moving { idle_ms }, None))
    }

    /// `rank` says who has to do something, before it can.
    ///
    /// Errors: nobody has that rank.
    pub(crate) fn heard_held(
        &mut self,
        rank: u32,
        by: u32,
        situation: &Situation,
        now: Duration,
    ) -> Result<Option<ToAll>, RelayError> {
        if by >= self.members {
            let what = format!("is held up by member {by}, which there is not");
            return Err(RelayError::Peer { member: rank, what });
        }
        self.held.insert(rank, by);
        Ok(self.named.and_then(|_| self.name(situation, now)))
    }

    /// Names to neighbours who has to do something, if that is news.
    fn name(&mut self, situation: &Situation, now: Duration) -> Option<ToAll> {
        let by = self.suspect(situation, now).filter(|&by| self.named != Some(by))?;
        if self.named_times == NAMED_MAX {
            return None;
        }
        self.named = Some(by);
        self.named_times += 1;
        Some((Word::Held { by }, Some(by)))
    }

    /// Who has to do something before anything can move here, as far as is known.
    fn suspect(&self, situation: &Situation, now: Duration) -> Option<u32> {
        if situation.owes_memory || self.waits_for_storage(situation, now) {
            return Some(self.rank);
        }
        let waited_for = &situation.waited_for;
        let named = |rank: &u32| self.held.get(rank).copied().unwrap_or(*rank);
        // Who waits for this member has no part in it; members that wait for each other name each
        // other.
        let elsewhere = waited_for.iter().map(named).find(|&by| by != self.rank);
        elsewhere.or_else(|| waited_for.first().copied())
    }

    /// Whether this member's own storage has not answered for half of the timeout.
    fn waits_for_storage(&self, situation: &Situation, now: Duration) -> bool {
        let idle = situation.storage_stuck_since.map(|since| now.saturating_sub(since));
        idle.zip(self.timeout).is_some_and(|(idle, timeout)| idle >= timeout / 2)
    }
}
