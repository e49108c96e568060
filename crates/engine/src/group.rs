//! One group at one member: transfers, control words, and closing or failure.

use std::{sync::Arc, time::Duration};

use relay::{ReceiveId, RelayError, SendId};
use transport::{Cause, Completion, Region, Transport};

use crate::{
    close::Closing,
    delivery::Delivery,
    error::{Error, Fault},
    event::Event,
    failed::Failed,
    jobs::{Disks, Done},
    notice::Notice,
    offload::Offload,
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

/// Phases follow each other from top to bottom; a group is either closed or failed before it ends.
enum Phase {
    Running,
    /// Every message is complete at every member; connections are being closed.
    Closed,
    Failed(Failed),
    /// The last event has been taken.
    Ended,
}

impl Group {
    /// Makes a group. `disks` reads and writes files; `id` is a number that is unique in the
    /// engine.
    pub(crate) fn new(
        settings: GroupSettings,
        offload: Offload,
        now: Duration,
        disks: Arc<dyn Disks>,
        id: u64,
    ) -> Result<Self, Error> {
        let rank = settings.rank;
        Ok(Self {
            closing: Closing::new(&settings.schedule, rank),
            delivery: Delivery::new(
                &settings.schedule,
                rank,
                settings.report_delivered && settings.is_root(),
            ),
            small: Small::new(&settings),
            wait_times: WaitTimes::new(rank),
            stalls: Stalls::new(rank, settings.stall_timeout, now),
            transfers: Transfers::new(settings, offload, disks, id)?,
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
        let number = self.transfers.messages.order.known();
        match &mut self.small {
            // A message in a file is read block by block, so it is relayed whatever its length.
            Some(small) if is_root && small.takes(bytes) && !region.is_stored() => {
                small.send(number);
            }
            _ => self.transfers.send(number, &region, now)?,
        }
        self.transfers.messages.order.sent();
        let facts = || Facts::default().message(number).bytes(bytes);
        self.transfers.messages.timeline.note("message", facts);
        self.transfers.messages.keep_whole(number, region);
        Ok(number)
    }

    pub(crate) fn accept(
        &mut self,
        message: u64,
        region: Region,
        now: Duration,
    ) -> Result<(), Error> {
        self.check_running()?;
        let Self { transfers, small, .. } = self;
        transfers.messages.timeline.note("accepted", || Facts::default().message(message));
        if !transfers.messages.order.is_reported(message) {
            return Err(RelayError::Unknown { what: "message", number: message }.into());
        }
        match small.as_mut().filter(|small| small.holds(message)) {
            Some(small) => small.accept(message, region, transfers, now),
            None => transfers.accept(message, region),
        }
    }

    /// Notes that the application has copied a message out of its slot, and is done with it.
    pub(crate) fn taken(&mut self, message: u64) -> Result<(), Error> {
        self.check_running()?;
        let bytes = self.small.as_mut().and_then(|small| small.taken(message, &mut self.transfers));
        let bytes = bytes.ok_or(RelayError::Unknown { what: "message", number: message })?;
        self.transfers.counters.note_small(bytes);
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
        self.fail(transport, Notice::application(rank, detail));
    }

    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    fn check_running(&self) -> Result<(), Error> {
        match &self.phase {
            Phase::Running => Ok(()),
            Phase::Failed(failed) => Err(Error::Failed(failed.failure().clone())),
            Phase::Closed | Phase::Ended => Err(Error::Closed(self.number())),
        }
    }

    /// Processes one completion of the endpoint that leads to `rank`.
    pub(crate) fn on_completion<T: Transport>(
        &mut self,
        transport: &mut T,
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
                self.transfers.peers.post_completed();
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
                self.transfers.peers.post_completed();
                self.stalls.note_activity(rank);
                self.transfers.received(rank, ReceiveId(token.0), bytes, immediate, now)
            }
            Completion::Cancelled { token, .. } => {
                self.transfers.missed(ReceiveId(token.0));
                self.transfers.peers.post_completed();
                Ok(())
            }
            Completion::Written { immediate, .. } if self.is_running() => match &mut self.small {
                Some(small) => small.on_written(rank, immediate, &mut self.transfers),
                None => Err(RelayError::peer(rank, "wrote where there is no ring")),
            },
            Completion::Control { word, .. } => {
                return self.on_control(transport, rank, &word, now);
            }
            Completion::Broken { cause, .. } => {
                return self.on_lost(transport, rank, cause);
            }
            Completion::Halted { cause, .. } => {
                let notice = Notice::halted(self.rank(), cause, &self.doing());
                return self.fail(transport, notice);
            }
            Completion::Closed { .. } => {
                self.transfers.peers.remove(rank);
                Ok(())
            }
            _ => Ok(()),
        };
        self.go_on(transport, outcome);
    }

    fn on_control<T: Transport>(
        &mut self,
        transport: &mut T,
        rank: u32,
        word: &[u8],
        now: Duration,
    ) {
        let word = Word::decode(word, self.transfers.settings.schedule.members());
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
            let word = self.stalls.on_held(rank, by, &situation, now);
            return self.write_to_all(transport, word);
        }
        if let Some(word @ (Word::Ask { .. } | Word::Has { .. })) = &word {
            let outcome = self.delivery.on_control(rank, word, &mut self.transfers.watermark);
            return self.go_on(transport, outcome);
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
                None => {
                    Err(RelayError::peer(rank, "wrote a digest in a group that verifies nothing"))
                }
            },
            Some(Word::Freed { count }) => match &mut self.small {
                Some(small) => small.on_freed(rank, count, &mut self.transfers),
                None => Err(RelayError::peer(rank, "has a ring for small messages")),
            },
            Some(Word::Grant { count, received }) => {
                self.transfers.messages.timeline.note("granted", || Facts::of(rank));
                self.transfers.watermark.note_subtree(rank, received);
                self.transfers.relay.granted(rank, count)
            }
            Some(Word::Failed(notice)) => return self.fail(transport, notice),
            Some(word @ (Word::Counted { .. } | Word::Settled { .. })) => {
                self.transfers.watermark.on_count(rank, &word)
            }
            Some(word) => self.closing.on_control(rank, &word),
            None => Err(RelayError::peer(rank, "wrote an unknown word")),
        };
        self.go_on(transport, outcome);
    }

    /// Processes the end of a neighbour's connection that was not closed from here.
    fn on_lost<T: Transport>(&mut self, transport: &mut T, rank: u32, cause: Cause) {
        self.transfers.peers.remove(rank);
        if let Phase::Failed(failed) = &mut self.phase {
            failed.on_lost(&mut self.transfers, transport, rank);
        }
        if !self.is_running() || self.closing.can_do_without(rank) {
            return self.carry_out(transport);
        }
        let notice = Notice::lost(self.rank(), rank, &cause, &self.doing());
        self.fail(transport, notice);
    }

    /// Processes the outcome of a transfer between memory and a file.
    pub(crate) fn on_job_done<T: Transport>(
        &mut self,
        transport: &mut T,
        done: Done,
        now: Duration,
    ) {
        let Some(ended) = self.transfers.staging.jobs.end(done.number, now) else { return };
        self.note_progress(now);
        if !self.is_running() {
            return;
        }
        let followed = match done.outcome {
            Ok(digests) => self.transfers.follow(transport, ended, digests),
            Err(error) => Err(Fault::Job { error, what: ended.what }),
        };
        self.go_on(transport, followed);
    }

    /// Continues after an event, or fails the group if the event was invalid.
    fn go_on<T: Transport>(&mut self, transport: &mut T, outcome: Result<(), impl Into<Fault>>) {
        match outcome {
            Ok(()) => self.carry_out(transport),
            Err(fault) => self.stop(transport, fault.into()),
        }
    }

    /// Executes the relay's actions, and closes the group when all is complete.
    pub(crate) fn carry_out<T: Transport>(&mut self, transport: &mut T) {
        if !self.is_running() {
            return;
        }
        if let Err(error) = self.try_to_carry_out(transport) {
            self.stop(transport, error);
        }
    }

    fn try_to_carry_out<T: Transport>(&mut self, transport: &mut T) -> Result<(), Fault> {
        while self.transfers.step(transport)? {}
        if self.transfers.verification.is_some() {
            self.transfers.verify(transport)?;
        }
        self.transfers.grant(transport)?;
        self.wait_times.note(
            self.transfers.waits().obstacle(&self.transfers.outbox, &self.transfers.staging),
            transport.now(),
        );
        self.transfers.messages.timeline.note_wait(&self.transfers.relay);
        match &mut self.small {
            Some(small) => small.carry_out(transport, &mut self.transfers)?,
            None => self.transfers.messages.report(|_| None),
        }
        self.delivery.carry_out(transport, &mut self.transfers)?;
        self.go_on_closing(transport)?;
        let in_place = self.transfers.in_place();
        let is_awaited = self.closing.is_under_way()
            || self.transfers.relay.has_messages()
            || self.transfers.messages.order.has_early()
            || self.delivery.awaits(in_place);
        self.small.iter().for_each(|small| small.set_awaited(is_awaited));
        Ok(())
    }

    /// Takes the next step of closing, if it is due.
    fn go_on_closing<T: Transport>(&mut self, transport: &mut T) -> Result<(), Fault> {
        let (known, completed) =
            (self.transfers.messages.order.known(), self.transfers.messages.order.completed());
        let words = self.closing.next_words(known, completed);
        for (rank, word) in words {
            self.transfers.peers.write(transport, rank, &word)?;
        }
        if self.closing.is_confirmed() {
            let (group, rank) = (self.number(), self.rank());
            tracing::debug!(target: "rdmc::engine", group, rank, "group closed");
            self.delivery.report(completed, &mut self.transfers);
            self.phase = Phase::Closed;
            self.transfers.peers.close(transport);
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

    /// Fails the group, which cannot go on here.
    fn stop<T: Transport>(&mut self, transport: &mut T, fault: Fault) {
        let notice = Notice::of(self.rank(), &fault, &self.doing());
        self.fail(transport, notice);
    }

    /// Describes what this member is doing, for errors.
    fn doing(&self) -> String {
        self.transfers.waits().occupation(self.closing.is_under_way())
    }

    /// Fails the group, once: the first cause is kept and sent to every neighbour, which forwards
    /// it to its own neighbours (DSN 2018 section 3, item 6).
    fn fail<T: Transport>(&mut self, transport: &mut T, notice: Notice) {
        if !self.is_running() {
            return;
        }
        self.transfers.messages.timeline.note("failed", || Facts::of(notice.member));
        let failed = Failed::start(notice, &mut self.transfers, transport);
        tracing::debug!(target: "rdmc::engine", failure = %failed.failure(), "group failed");
        self.phase = Phase::Failed(failed);
    }

    /// Returns whether the transport has refused a post of a group that is running.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_running() && self.transfers.peers.is_refused()
    }

    /// Fails the group if a post was refused. Must be called after all completions until then are
    /// processed: the cause may be the end of a connection that is not reported yet.
    pub(crate) fn fail_refused<T: Transport>(&mut self, transport: &mut T) {
        if let Some((rank, error)) = self.transfers.peers.take_refused() {
            let notice = Notice::refused(self.rank(), rank, &error, &self.doing());
            self.fail(transport, notice);
        }
    }

    /// Returns whether [`Group::take_events`] has something to append.
    pub(crate) fn has_events(&self) -> bool {
        !self.transfers.messages.events.is_empty() || self.is_over() || self.is_refused()
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
        let verdict = self.stalls.check(&situation, now);
        let (doing, own) = (|| self.doing(), self.rank());
        let notice = match verdict {
            Verdict::GoOn(words) => return self.write_to_all(transport, words),
            Verdict::StorageStuck { waited } => {
                Notice::stuck(own, self.transfers.staging.jobs.occupation(), waited, &doing())
            }
            Verdict::Stalled { member } => {
                let timeout = self.transfers.settings.stall_timeout.unwrap_or_default();
                Notice::stalled(own, member, timeout, &doing())
            }
        };
        self.fail(transport, notice);
    }

    /// Returns what this member waits for.
    fn situation(&self) -> Situation {
        let (waits, next) = (self.transfers.waits(), self.transfers.messages.order.completed());
        let is_relaying = self.transfers.relay.has_messages();
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
        events.extend(self.transfers.messages.events.drain(..));
        if !self.is_over() {
            return;
        }
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Failed(failed) => events.push(failed.into_event(&mut self.transfers)),
            _ => events.push(Event::Closed { group: self.number() }),
        }
    }

    /// Returns whether the root has closed the group, as far as is known here, or it has failed.
    pub(crate) fn is_ending(&self) -> bool {
        !self.is_running() || self.closing.is_under_way()
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }
}
