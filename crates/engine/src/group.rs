//! One group at one member: transfers, control words, and closing or failure.

use std::{sync::Arc, time::Duration};

use relay::{ReceiveId, RelayError, SendId};
use transport::{Cause, Completion, EndpointId, Region, Transport};

use crate::{
    close::Closing,
    counters::Counters,
    delivery::Delivery,
    error::Error,
    event::Event,
    failed::Failed,
    failure::{Failure, FailureKind},
    jobs::{Disks, Done},
    local_error::LocalError,
    offload::Offload,
    phase::Phase,
    settings::GroupSettings,
    small::Small,
    stalls::{Situation, Stalls, ToAll, Verdict},
    timeline::Facts,
    transfers::Transfers,
    verification::Verification,
    wait_times::WaitTimes,
    words::Word,
};

pub(crate) struct Group {
    pub(crate) transfers: Transfers,
    pub(crate) wait_times: WaitTimes,
    closing: Closing,
    delivery: Delivery,
    small: Option<Small>,
    stalls: Stalls,
    phase: Phase,
}

impl Group {
    /// Makes a group. `disks`: what reads and writes files, and a number that is unique in the
    /// engine.
    pub(crate) fn new(
        settings: GroupSettings,
        offload: Offload,
        now: Duration,
        disks: (Arc<dyn Disks>, u64),
    ) -> Result<Self, Error> {
        let (rank, members) = (settings.rank, settings.schedule.members());
        Ok(Self {
            closing: Closing::new(&settings.schedule, rank),
            delivery: Delivery::new(
                &settings.schedule,
                rank,
                settings.report_delivered && settings.is_root(),
            ),
            small: Small::new(&settings),
            wait_times: WaitTimes::new(rank),
            stalls: Stalls::new(rank, members, settings.stall_timeout, now),
            transfers: Transfers::new(settings, offload, disks)?,
            phase: Phase::Running,
        })
    }

    pub(crate) fn number(&self) -> u64 {
        self.transfers.settings.number
    }

    fn rank(&self) -> u32 {
        self.transfers.settings.rank
    }

    /// Notes progress or a call of the application: the stall timeout starts anew.
    pub(crate) fn note_progress(&mut self, now: Duration) {
        self.stalls.note_progress(now);
    }

    pub(crate) fn connect(&mut self, rank: u32, endpoint: EndpointId) {
        self.transfers.peers.insert(rank, endpoint);
    }

    pub(crate) fn missing_neighbour(&self) -> Option<u32> {
        let neighbours = self.transfers.settings.neighbours();
        neighbours.into_iter().find(|&rank| self.transfers.peers.get(rank).is_none())
    }

    /// Lets the root write small messages, and notifies it. Errors: the transport refuses.
    pub(crate) fn expose_ring<T: Transport>(&mut self, transport: &mut T) -> Result<(), Error> {
        let Self { transfers, small: Some(small), .. } = self else { return Ok(()) };
        if let Some(root) = small.expose(transport, &transfers.peers)?
            && let Err(error) = transfers.peers.write(transport, root, &Word::Freed { count: 0 })
        {
            self.stop(transport, error);
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, region: Region, now: Duration) -> Result<u64, Error> {
        self.check_running()?;
        if self.closing.is_asked() {
            return Err(Error::Closed(self.number()));
        }
        let (bytes, is_root) = (region.len() as u64, self.transfers.settings.is_root());
        let number = match &mut self.small {
            // A message in a file is read block by block, so it is relayed whatever its length.
            Some(small) if is_root && small.takes(bytes) && !region.is_stored() => {
                let number = self.transfers.order.number(false);
                small.send(number);
                number
            }
            _ => self.transfers.send(&region, now)?,
        };
        let facts = || Facts::default().message(number).bytes(bytes);
        self.transfers.timeline.note("message", facts);
        self.transfers.keep_whole(number, region);
        Ok(number)
    }

    pub(crate) fn accept(
        &mut self,
        message: u64,
        region: Region,
        counters: &mut Counters,
        now: Duration,
    ) -> Result<(), Error> {
        self.check_running()?;
        let Self { transfers, small, .. } = self;
        transfers.timeline.note("accepted", || Facts::default().message(message));
        let is_reported = transfers.order.is_reported(message);
        let Some(small) = small.as_mut().filter(|small| is_reported && small.holds(message)) else {
            return transfers.accept(message, region);
        };
        let taken = small.take(transfers.settings.number, message, &region)?;
        // Returned by the event of the failure if it cannot be used.
        transfers.memory.insert(message, region.clone());
        match taken.and_then(|taken| transfers.take_small(message, taken, &region, now)) {
            Ok(bytes) => {
                counters.small_received += 1;
                counters.bytes_copied += bytes;
            }
            Err(error) => transfers.unusable = Some(error),
        }
        Ok(())
    }

    /// Notes that the application has copied a message out of its slot, and is done with it.
    pub(crate) fn taken(&mut self, message: u64, counters: &mut Counters) -> Result<(), Error> {
        self.check_running()?;
        let bytes = self.small.as_mut().and_then(|small| small.taken(message, &mut self.transfers));
        let bytes = bytes.ok_or(RelayError::Unknown { what: "message", number: message })?;
        counters.small_received += 1;
        counters.bytes_copied += bytes;
        Ok(())
    }

    /// Notes the small messages that the application is done with.
    fn note_done(&mut self) {
        if let (Phase::Running, Some(small)) = (&self.phase, &self.small) {
            small.note_done(&mut self.transfers);
        }
    }

    pub(crate) fn ask_delivered(&mut self, count: u64) -> Result<(), Error> {
        self.check_running()?;
        let settings = &self.transfers.settings;
        if !settings.is_root() {
            let (root, rank) = (settings.schedule.root(), settings.rank);
            return Err(RelayError::NotRoot { root, rank }.into());
        }
        self.delivery.want(count);
        Ok(())
    }

    pub(crate) fn ask_to_close(&mut self) -> Result<(), Error> {
        self.check_running()?;
        if self.closing.ask() { Ok(()) } else { Err(Error::Closed(self.number())) }
    }

    pub(crate) fn abort<T: Transport>(&mut self, transport: &mut T, detail: &str) {
        let rank = self.rank();
        self.note_done();
        self.fail(transport, Some(rank), FailureKind::Application, detail.to_owned());
    }

    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    fn check_running(&self) -> Result<(), Error> {
        self.phase.check_running(self.number())
    }

    /// Processes one completion of the endpoint that leads to `rank`.
    pub(crate) fn on_completion<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
        rank: u32,
        completion: Completion,
        now: Duration,
    ) {
        if !matches!(completion, Completion::Control { .. }) {
            self.note_progress(now);
        }
        self.note_done();
        let outcome = match completion {
            Completion::Sent { token, .. } => {
                self.transfers.posts.completed();
                match Small::made(token) {
                    true => Ok(()),
                    false => self.transfers.sent(rank, SendId(token.0)),
                }
            }
            Completion::Arriving { token, immediate, .. } => {
                self.stalls.note_activity(rank);
                self.transfers.relay.arriving(ReceiveId(token.0), immediate)
            }
            Completion::Received { token, bytes, immediate, .. } => {
                self.transfers.posts.completed();
                self.stalls.note_activity(rank);
                let (id, block) = (ReceiveId(token.0), (bytes, immediate));
                self.transfers.received(rank, id, block, counters, now)
            }
            Completion::Cancelled { token, .. } => {
                self.transfers.missed(ReceiveId(token.0));
                self.transfers.posts.completed();
                Ok(())
            }
            Completion::Written { immediate, .. } if self.is_running() => {
                self.on_written(rank, immediate)
            }
            Completion::Control { word, .. } => {
                return self.on_control(transport, counters, rank, &word, now);
            }
            Completion::Broken { cause, .. } => {
                return self.on_lost(transport, counters, rank, cause);
            }
            Completion::Halted { cause, .. } => return self.on_halted(transport, cause),
            Completion::Closed { .. } => {
                self.transfers.peers.remove(rank);
                Ok(())
            }
            _ => Ok(()),
        };
        self.go_on(transport, counters, outcome);
    }

    /// Processes the root's write of a slot.
    fn on_written(&mut self, rank: u32, immediate: u32) -> Result<(), RelayError> {
        let no_ring = || peer_error(rank, "wrote where there is no ring");
        let small = self.small.as_mut().ok_or_else(no_ring)?;
        let (number, bytes) = small.on_written(rank, immediate)?;
        self.transfers.note_everywhere(small.delivered());
        match self.transfers.order.small(number, bytes) {
            true => Ok(()),
            false => Err(peer_error(rank, "used a message number twice")),
        }
    }

    fn on_control<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
        rank: u32,
        word: &[u8],
        now: Duration,
    ) {
        let word = Word::decode(word);
        if let (Phase::Failed(failed), Some(word)) = (&mut self.phase, &word) {
            failed.on_control(&mut self.transfers, transport, rank, word);
        }
        if !self.is_running() {
            return;
        }
        if let Some(Word::Moving { idle_ms }) = word {
            self.stalls.note_activity(rank);
            let (idle, situation) = (Duration::from_millis(idle_ms), self.situation());
            let word = self.stalls.on_moving(rank, idle, &situation, now);
            return self.write_to_all(transport, word);
        }
        if let Some(Word::Held { by }) = word {
            let situation = self.situation();
            let outcome = self.stalls.on_held(rank, by, &situation, transport.now());
            let outcome = outcome.map(|word| self.write_to_all(transport, word));
            return self.go_on(transport, counters, outcome);
        }
        if let Some(word @ (Word::Ask { .. } | Word::Has { .. })) = &word {
            let outcome = self.delivery.on_control(rank, word, &mut self.transfers.watermark);
            return self.go_on(transport, counters, outcome);
        }
        self.stalls.note_activity(rank);
        // A credit is progress if it was waited for: a member could grant one more now and then for ever.
        // All other words come as often as something moves.
        if !matches!(word, Some(Word::Grant { .. })) || !self.transfers.relay.has_credit(rank) {
            self.note_progress(now);
        }
        let outcome = match word {
            Some(Word::Announce { number, bytes, delivered }) => self
                .transfers
                .announced(rank, number, bytes)
                .map(|()| self.transfers.note_everywhere(delivered)),
            Some(Word::Digest { message, digest }) => match &mut self.transfers.verification {
                Some(verification) => verification.on_digest(rank, message, digest),
                None => Err(peer_error(rank, "wrote a digest in a group that verifies nothing")),
            },
            Some(Word::Freed { count }) => match &mut self.small {
                Some(small) => small
                    .on_freed(rank, count)
                    .map(|()| self.transfers.note_everywhere(small.delivered())),
                None => Err(peer_error(rank, "has a ring for small messages")),
            },
            Some(Word::Grant { count, received }) => {
                self.transfers.timeline.note("granted", || Facts::of(rank));
                self.transfers.watermark.note_subtree(rank, received);
                self.transfers.relay.granted(rank, count)
            }
            Some(Word::Failed { member, reporter, kind, detail }) => {
                let (group, delivered) = (self.number(), 0);
                let failure = Failure { group, member, reporter, kind, detail, delivered };
                return self.enter_failed(transport, failure);
            }
            Some(word @ (Word::Counted { .. } | Word::Settled { .. })) => {
                self.transfers.watermark.on_count(rank, &word)
            }
            Some(word) => {
                let outcome = self.closing.on_control(rank, &word);
                self.transfers.is_closing = self.closing.is_under_way();
                outcome
            }
            None => Err(peer_error(rank, "wrote an unknown word")),
        };
        self.go_on(transport, counters, outcome);
    }

    /// Processes the end of a neighbour's connection that was not closed from here.
    fn on_lost<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
        rank: u32,
        cause: Cause,
    ) {
        self.transfers.peers.remove(rank);
        if let Phase::Failed(failed) = &mut self.phase {
            failed.on_lost(&mut self.transfers, transport, rank);
        }
        if !self.is_running() || self.closing.can_do_without(rank) {
            return self.go_on(transport, counters, Ok(()));
        }
        let kind = FailureKind::of(&cause);
        let member = if kind == FailureKind::Memory { self.rank() } else { rank };
        let detail = format!("while {}, {cause}", self.transfers.waits().occupation());
        self.fail(transport, Some(member), kind, detail);
    }

    /// Fails the group because blocks can no longer be transferred, though all members may be
    /// alive.
    fn on_halted<T: Transport>(&mut self, transport: &mut T, cause: Cause) {
        let (member, kind) = match cause {
            Cause::Memory { .. } => (Some(self.rank()), FailureKind::Memory),
            _ => (None, FailureKind::Network),
        };
        let why = match cause {
            Cause::Lost(why) => why,
            other => other.to_string(),
        };
        let detail = format!("while {}, {why}", self.transfers.waits().occupation());
        self.fail(transport, member, kind, detail);
    }

    /// Processes the outcome of a transfer between memory and a file.
    pub(crate) fn on_job_done<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
        done: Done,
        now: Duration,
    ) {
        let Some(ended) = self.transfers.staging.jobs.end(done.number, now) else { return };
        self.note_progress(now);
        if !self.is_running() {
            return;
        }
        let digests = match done.outcome {
            Ok(digests) => digests,
            Err(error) => {
                // The cause first: other members get the beginning alone.
                let doing = self.transfers.waits().occupation();
                let detail = format!("{error}: {}, while {doing}", ended.what);
                return self.fail(transport, Some(self.rank()), FailureKind::Memory, detail);
            }
        };
        match self.transfers.follow(transport, ended, digests) {
            Ok(outcome) => self.go_on(transport, counters, outcome),
            Err(error) => self.stop(transport, error.into()),
        }
    }

    /// Continues after an event, or fails the group if the event was invalid.
    fn go_on<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
        outcome: Result<(), RelayError>,
    ) {
        match outcome {
            Ok(()) => self.carry_out(transport, counters),
            Err(RelayError::Peer { member, what }) => {
                self.fail(transport, Some(member), FailureKind::Protocol, what);
            }
            Err(other) => {
                let rank = self.rank();
                self.fail(transport, Some(rank), FailureKind::Protocol, other.to_string());
            }
        }
    }

    /// Executes the relay's actions, and closes the group when all is complete.
    pub(crate) fn carry_out<T: Transport>(&mut self, transport: &mut T, counters: &mut Counters) {
        if !self.is_running() {
            return;
        }
        if let Err(error) = self.try_to_carry_out(transport, counters) {
            self.stop(transport, error);
        }
    }

    fn try_to_carry_out<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
    ) -> Result<(), LocalError> {
        while self.transfers.step(transport, counters)? {}
        self.transfers.verify(transport)?;
        self.transfers.grant(transport)?;
        self.wait_times
            .note(self.transfers.waits().obstacle(&self.transfers.staging), transport.now());
        self.transfers.note_wait();
        match &mut self.small {
            Some(small) => small.carry_out(transport, &mut self.transfers, counters)?,
            None => self.transfers.report(|_| None),
        }
        self.tell_delivered(transport)?;
        self.go_on_closing(transport)?;
        let in_place = self.transfers.in_place();
        let is_awaited = self.closing.is_under_way()
            || self.transfers.needs_earlier()
            || self.delivery.awaits(in_place);
        self.small.iter().for_each(|small| small.set_awaited(is_awaited));
        Ok(())
    }

    /// Asks and answers what every member has, and reports it at the root.
    fn tell_delivered<T: Transport>(&mut self, transport: &mut T) -> Result<(), LocalError> {
        let Self { delivery, transfers, .. } = self;
        let in_place = transfers.in_place();
        for (rank, word) in delivery.next_words(in_place, &transfers.watermark) {
            transfers.peers.write(transport, rank, &word)?;
        }
        self.report_delivered(self.transfers.watermark.everywhere(in_place));
        Ok(())
    }

    /// Reports at the root, if it is to be, that every member has this many messages.
    fn report_delivered(&mut self, everywhere: u64) {
        if let Some(count) = self.delivery.take_report(everywhere) {
            self.transfers.events.push_back(Event::Delivered { group: self.number(), count });
        }
    }

    /// Takes the next step of closing, if it is due.
    fn go_on_closing<T: Transport>(&mut self, transport: &mut T) -> Result<(), LocalError> {
        let (known, completed) = (self.transfers.order.known(), self.transfers.order.completed());
        let words = self.closing.next_words(known, completed);
        self.transfers.is_closing = self.closing.is_under_way();
        for (rank, word) in words {
            self.transfers.peers.write(transport, rank, &word)?;
        }
        if self.closing.is_confirmed() {
            let (group, rank) = (self.number(), self.rank());
            tracing::debug!(target: "rdmc::engine", group, rank, "group closed");
            self.report_delivered(completed);
            self.phase = Phase::Closed;
            self.abandon(transport);
        }
        Ok(())
    }

    /// Writes words to neighbours while the group is running; fails the group if that is not
    /// possible.
    fn write_to_all<T: Transport>(
        &mut self,
        transport: &mut T,
        words: impl IntoIterator<Item = ToAll>,
    ) {
        for (word, but) in words {
            if !self.is_running() {
                return;
            }
            if let Err(error) = self.transfers.peers.write_to_all(transport, &word, but) {
                self.stop(transport, error);
            }
        }
    }

    /// Fails the group because of an error at this member.
    fn stop<T: Transport>(&mut self, transport: &mut T, error: LocalError) {
        let detail = match error {
            // What was being done meanwhile has nothing to do with it.
            LocalError::Differs { .. } => error.to_string(),
            _ => format!("while {}, {error}", self.transfers.waits().occupation()),
        };
        let (member, kind) = match error {
            LocalError::Memory(_) => (self.rank(), FailureKind::Memory),
            LocalError::Differs { .. } => (self.rank(), FailureKind::Differs),
            LocalError::ControlRefused { rank, .. } => (rank, FailureKind::Silent),
        };
        self.fail(transport, Some(member), kind, detail);
    }

    fn fail<T: Transport>(
        &mut self,
        transport: &mut T,
        member: Option<u32>,
        kind: FailureKind,
        detail: String,
    ) {
        let (group, reporter) = (self.number(), self.rank());
        let failure = Failure { group, member, reporter, kind, detail, delivered: 0 };
        self.enter_failed(transport, failure);
    }

    /// Fails the group, once: the first cause is kept and sent to every neighbour, which forwards
    /// it to its own neighbours (DSN 2018 section 3, item 6).
    fn enter_failed<T: Transport>(&mut self, transport: &mut T, failure: Failure) {
        if !self.is_running() {
            return;
        }
        tracing::debug!(target: "rdmc::engine", %failure, "group failed");
        self.transfers.timeline.note("failed", || Facts::of(failure.member));
        self.phase = Phase::Failed(Failed::start(failure, &mut self.transfers, transport));
    }

    /// Closes all connections.
    pub(crate) fn abandon<T: Transport>(&mut self, transport: &mut T) {
        self.transfers.peers.close(transport);
    }

    /// Returns whether the transport has refused a post of a group that is running.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_running() && self.transfers.posts.is_refused()
    }

    /// Fails the group if a post was refused. Must be called after all completions until then are
    /// processed: the cause may be the end of a connection that is not reported yet.
    pub(crate) fn fail_refused<T: Transport>(&mut self, transport: &mut T) {
        if let Some(detail) = self.transfers.posts.take_refused() {
            self.fail(transport, None, FailureKind::Network, detail);
        }
    }

    /// Returns whether [`Group::take_events`] has something to append.
    pub(crate) fn has_events(&self) -> bool {
        !self.transfers.events.is_empty() || self.is_over() || self.is_refused()
    }

    /// Returns whether the last event is due.
    fn is_over(&self) -> bool {
        match &self.phase {
            Phase::Failed(failed) => failed.is_over(&self.transfers),
            Phase::Closed => self.transfers.peers.is_empty(),
            Phase::Running | Phase::Ended => false,
        }
    }

    /// Returns when a failed group has to be checked again.
    pub(crate) fn failed_deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Failed(failed) => failed.deadline(&self.transfers),
            _ => None,
        }
    }

    /// Returns when [`Group::check_stall`] has to be called at the latest, if at all.
    pub(crate) fn next_check(&self, now: Duration) -> Option<Duration> {
        if let Some(at) = self.failed_deadline() {
            return Some(at);
        }
        let situation = self.is_running().then(|| self.situation());
        self.stalls.next_check(situation.as_ref(), now)
    }

    /// Fails a group that has stalled; otherwise sends reports of progress to neighbours.
    pub(crate) fn check_stall<T: Transport>(&mut self, transport: &mut T, now: Duration) {
        if let Phase::Failed(failed) = &mut self.phase {
            failed.check(&mut self.transfers, transport, now);
        }
        self.note_done();
        if !self.is_running() {
            return;
        }
        let situation = self.situation();
        let doing = || self.transfers.waits().occupation();
        let (member, detail) = match self.stalls.check(&situation, now) {
            Verdict::GoOn(words) => return self.write_to_all(transport, words),
            Verdict::StorageStuck { waited } => {
                // The storage comes first in the text, since other members receive it cut.
                let what = self.transfers.staging.jobs.occupation().unwrap_or_default();
                let (waited_ms, doing) = (waited.as_millis(), doing());
                let detail =
                    format!("it waits for its storage: {what} since {waited_ms} ms, while {doing}");
                (Some(self.rank()), detail)
            }
            Verdict::Stalled { member } => {
                let timeout = self.transfers.settings.stall_timeout.unwrap_or_default();
                let detail = format!("while {}, nothing has moved for {timeout:?}", doing());
                (member, detail)
            }
        };
        self.fail(transport, member, FailureKind::Stalled, detail);
    }

    /// Returns what this member waits for.
    fn situation(&self) -> Situation {
        let (waits, next) = (self.transfers.waits(), self.transfers.order.completed());
        let is_relaying = waits.is_relaying();
        let closing = self.closing.waited_for(next).filter(|_| !is_relaying);
        let small = self.small.as_ref();
        let verification = self.transfers.verification.as_ref();
        let waited_for = waits
            .neighbours()
            .chain(small.and_then(Small::waited_for))
            .chain(verification.and_then(Verification::waited_for))
            .chain(closing);
        let is_verifying = verification.is_some_and(Verification::is_busy);
        Situation {
            is_busy: is_relaying || is_verifying || self.closing.is_under_way(),
            waited_for: waited_for.collect(),
            owes_memory: waits.owes_memory(next) || small.is_some_and(|it| it.owes_memory(next)),
            storage_stuck_since: self.transfers.staging.jobs.stuck_since(),
        }
    }

    /// Appends events. The last event follows only when no memory is in use any more.
    pub(crate) fn take_events(&mut self, events: &mut Vec<Event>) {
        events.extend(self.transfers.events.drain(..));
        if !self.is_over() {
            return;
        }
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Failed(failed) => events.push(failed.into_event(&mut self.transfers)),
            _ => events.push(Event::Closed { group: self.number() }),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }
}

fn peer_error(member: u32, what: &str) -> RelayError {
    RelayError::Peer { member, what: what.to_owned() }
}
