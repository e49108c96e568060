//! Groups that stand still, and members that wait for long while others are busy.
//!
//! A member that waits for somebody with whom nothing moves gives up after
//! `GroupSettings::stall_timeout_ms`. Waiting alone is no fault: the last receiver of sequential
//! send waits for all copies before its own. So members tell their neighbours now and then when
//! something has last moved with them ([`Word::Moving`]); who waits for such a member counts from
//! then, and passes it on. Ages are told, not times of day, and only grow on the way: members that
//! wait for each other in a circle cannot keep each other waiting for ever.
//!
//! Who waits for somebody who waits, too, must not blame that one. So members with whom nothing has
//! moved for half of the timeout say who has to do something ([`Word::Held`]): whom the one that
//! they wait for has named, or that one itself, or they themselves if their application has given
//! no memory or their own storage has not answered. Whoever says nothing is the one.

use std::{collections::BTreeMap, time::Duration};

use relay::{RelayError, Wait};
use transport::Transport;

use crate::{failure::FailureKind, group::Group, order::Gap, small::Small, words::Word};

/// Looks at the clock within one stall timeout.
const CHECKS_PER_TIMEOUT: u32 = 4;

/// What has to have happened since neighbours were last told, as a part of the timeout.
const TOLD_PER_TIMEOUT: u32 = 8;

/// How often a member may change its mind about whom to name before something moves again: for
/// chains of so many members that wait for each other. In a circle they would go on for ever.
const NAMED_MAX: u32 = 64;

/// When something has last moved.
#[derive(Debug)]
pub(crate) struct Stalls {
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
    pub(crate) fn new(now: Duration) -> Self {
        let held = BTreeMap::new();
        Self { last_progress: now, told: now, held, named: None, named_times: 0 }
    }

    /// This neighbour has done something.
    pub(crate) fn note_life(&mut self, rank: u32) {
        self.held.remove(&rank);
    }

    pub(crate) fn note_progress(&mut self, at: Duration) {
        if at > self.last_progress {
            self.last_progress = at;
            self.named = None;
            self.named_times = 0;
        }
    }
}

impl Group {
    fn stall_timeout(&self) -> Option<Duration> {
        let timeout_ms = self.settings.stall_timeout_ms;
        (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms))
    }

    /// When this member gives up, if it waits for somebody, or for its own storage.
    fn deadline(&self) -> Option<Duration> {
        let timeout = self.stall_timeout()?;
        // A little earlier than others who wait for this member: it alone knows why.
        let stuck = self.staging.stuck_since().map(|since| since + timeout / 8 * 7);
        let waits = self.waited_for().map(|_| self.stalls.last_progress + timeout);
        let deadline = stuck.into_iter().chain(waits).min()?;
        self.is_running().then_some(deadline)
    }

    /// When [`Group::check_stall`] wants to be called at the latest; `None` if it need not be.
    pub(crate) fn next_check(&self, now: Duration) -> Option<Duration> {
        if let Some(at) = self.gives_up_at() {
            return Some(at);
        }
        let regular = now + self.stall_timeout()? / CHECKS_PER_TIMEOUT;
        Some(self.deadline().map_or(regular, |deadline| deadline.min(regular)))
    }

    /// Gives up if it is time; else tells neighbours if something has moved, or who has to do
    /// something if nothing has for long.
    pub(crate) fn check_stall<T: Transport>(&mut self, transport: &mut T, now: Duration) {
        self.check_jobs(now);
        if self.deadline().is_none_or(|deadline| now < deadline) {
            self.tell_of_progress(transport, now);
            let idle = now.saturating_sub(self.stalls.last_progress);
            let is_idle = self.stall_timeout().is_some_and(|timeout| idle >= timeout / 2);
            if is_idle || self.waits_for_storage(now) {
                self.name(transport);
            }
            return;
        }
        if self.waits_for_storage(now)
            && let (Some(since), Some(what)) =
                (self.staging.stuck_since(), self.staging.occupation())
        {
            // First what others have to hear: their copy of it is cut.
            let waited_ms = now.saturating_sub(since).as_millis();
            let doing = self.occupation();
            let detail =
                format!("it waits for its storage: {what} since {waited_ms} ms, while {doing}");
            return self.fail(transport, Some(self.settings.rank), FailureKind::Stalled, detail);
        }
        let detail = format!(
            "while {}, nothing has moved for {} ms",
            self.occupation(),
            self.settings.stall_timeout_ms
        );
        let member = self.suspect(now);
        self.fail(transport, member, FailureKind::Stalled, detail);
    }

    /// A neighbour says when something has last moved with it: of interest if this member waits
    /// for that one.
    pub(crate) fn heard_moving<T: Transport>(
        &mut self,
        transport: &mut T,
        rank: u32,
        idle: Duration,
        now: Duration,
    ) {
        if self.waited_for() == Some(rank) {
            self.stalls.note_progress(now.saturating_sub(idle));
            self.tell_of_progress(transport, now);
        }
    }

    fn tell_of_progress<T: Transport>(&mut self, transport: &mut T, now: Duration) {
        let Some(timeout) = self.stall_timeout() else { return };
        let is_busy = self.relay.known() > self.relay.completed() || self.closing.is_under_way();
        let last = self.stalls.last_progress;
        if !self.is_running() || !is_busy || last < self.stalls.told + timeout / TOLD_PER_TIMEOUT {
            return;
        }
        self.stalls.told = last;
        let idle_ms = now.saturating_sub(last).as_millis() as u64;
        self.write_to_all(transport, &Word::Moving { idle_ms }, None);
    }

    /// `rank` says who has to do something, before it can.
    ///
    /// Errors: nobody has that rank.
    pub(crate) fn heard_held<T: Transport>(
        &mut self,
        transport: &mut T,
        rank: u32,
        by: u32,
    ) -> Result<(), RelayError> {
        if by >= self.settings.schedule.members() {
            let what = format!("is held up by member {by}, which there is not");
            return Err(RelayError::Peer { member: rank, what });
        }
        self.stalls.held.insert(rank, by);
        if self.stalls.named.is_some() {
            self.name(transport);
        }
        Ok(())
    }

    /// Tells neighbours who has to do something, if that is news.
    fn name<T: Transport>(&mut self, transport: &mut T) {
        let suspect = self.suspect(transport.now()).filter(|_| self.is_running());
        let Some(by) = suspect.filter(|&by| self.stalls.named != Some(by)) else { return };
        if self.stalls.named_times == NAMED_MAX {
            return;
        }
        self.stalls.named = Some(by);
        self.stalls.named_times += 1;
        self.write_to_all(transport, &Word::Held { by }, Some(by));
    }

    /// Who has to do something before anything can move here, as far as is known.
    fn suspect(&self, now: Duration) -> Option<u32> {
        let own = self.settings.rank;
        if self.owes_memory() || self.waits_for_storage(now) {
            return Some(own);
        }
        let named = |rank: u32| self.stalls.held.get(&rank).copied().unwrap_or(rank);
        // Who waits for this member has no part in it; members that wait for each other name each
        // other.
        let elsewhere = self.all_waited_for().map(named).find(|&by| by != own);
        elsewhere.or_else(|| self.waited_for())
    }

    /// Whether this member's own storage has not answered for half of the timeout.
    fn waits_for_storage(&self, now: Duration) -> bool {
        let idle = self.staging.stuck_since().map(|since| now.saturating_sub(since));
        idle.zip(self.stall_timeout()).is_some_and(|(idle, timeout)| idle >= timeout / 2)
    }

    /// Whether this member's application has not given memory for the message that is next.
    fn owes_memory(&self) -> bool {
        let next = self.order.completed();
        self.awaits_memory().is_some_and(|number| number == next && self.order.is_told(number))
            || self.small.as_ref().is_some_and(|small| small.owes_memory(next))
    }

    /// The relay's next message, if it has no memory yet.
    fn awaits_memory(&self) -> Option<u64> {
        let next = self.relay.completed();
        let is_due = |wait| matches!(wait, Wait::Memory { message } if message == next);
        self.relay.waits().any(is_due).then(|| self.number_of(next))
    }

    /// The member that owes this one something, if any does.
    fn waited_for(&self) -> Option<u32> {
        self.all_waited_for().next()
    }

    /// All members that owe this one something, nearest first.
    fn all_waited_for(&self) -> impl Iterator<Item = u32> + '_ {
        let relays = self.relay.known() > self.relay.completed();
        let relayed = self.relay.waits().filter_map(|wait| match wait {
            Wait::Block { source, .. } => Some(source),
            Wait::Credit { target, .. } | Wait::Send { target, .. } => Some(target),
            Wait::Memory { .. } => None,
        });
        // An earlier message than those that are known here has not come.
        let missing = self.order.gap().and_then(|gap| match gap {
            Gap::Small => Some(self.settings.schedule.root()),
            Gap::Relayed => self.settings.schedule.announcer(self.settings.rank),
        });
        let closing = self.closing.waited_for(self.order.completed());
        relayed
            .filter(move |_| relays)
            .chain(missing)
            .chain(self.small.as_ref().and_then(Small::waited_for))
            .chain(closing.filter(move |_| !relays))
    }
}
