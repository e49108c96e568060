//! An application: sends, provides memory, closes, and checks every event.

use std::collections::VecDeque;

use engine::{Error, Event};
use rdmc::{Failure, ReadLease, Region};
use transport_sim::SimNet;

use super::{
    book::{Book, MemberBook},
    canary::Canary,
    checks,
    memory::{Memory, Whole},
    scenario::{Answer, ApplicationPlan, Fault, Scenario, SendPlan, Told},
};
use crate::{counts::End, dice::Dice, node::MemberEngine};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 2;

/// What an application may use while it is called.
pub(super) struct Here<'a> {
    /// Its member's engine.
    pub(super) engine: &'a mut MemberEngine,
    /// The planted bug.
    pub(super) canary: Option<Canary>,
    /// Virtual time.
    pub(super) now_ns: u64,
    /// Where facts and violations go.
    pub(super) book: &'a mut Book,
    /// For notes in the trace.
    pub(super) network: &'a SimNet,
}

/// An order of the scenario to an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Abort the group now.
    Abort,
    /// Refuse the next message.
    Refuse,
    /// Provide no memory any more.
    FallSilent,
}

/// One group's application at one member. It is never called while its member is stopped or after it has died, and reports errors
/// to [`Book::violated`].
#[derive(Debug)]
pub(super) struct Application {
    /// Index of the group.
    group: usize,
    number: u64,
    rank: u32,
    is_root: bool,
    plan: ApplicationPlan,
    sends: VecDeque<SendPlan>,
    close_ns: Option<u64>,
    closes_early: bool,
    told: Told,
    verifies: bool,
    /// At the root: how many messages were sent, and how many it was told that every member has.
    sent_and_delivered: (u64, u64),
    /// How long it waits to be told before it closes all the same; without faults it is told in time.
    patience_ns: u64,
    may_run_out: bool,
    waits_until_ns: Option<u64>,
    waits_no_more: bool,
    memory: Memory,
    /// Messages that wait for memory: when they get it, number, length.
    unanswered: VecDeque<(u64, u64, usize)>,
    refuses: bool,
    is_silent: bool,
    has_ended: bool,
    /// Of memory that it has provided.
    lease: Option<ReadLease>,
    dice: Dice,
}

impl Application {
    /// Makes the application of a group that is about to be created.
    pub(super) fn new(scenario: &Scenario, group: usize, rank: u32) -> Self {
        let plan = &scenario.groups[group];
        let is_root = plan.root == rank;
        let application = plan.applications[rank as usize].clone();
        let close_ns = if is_root { Some(plan.close_ns) } else { application.close_ns };
        let seed = scenario.seed ^ (u64::from(rank) << 40) ^ ((group as u64) << 56);
        Self {
            group,
            number: plan.number,
            rank,
            is_root,
            plan: application,
            sends: if is_root { plan.sends.clone().into() } else { VecDeque::new() },
            close_ns,
            closes_early: plan.closes_early,
            told: if is_root { plan.told } else { Told::No },
            verifies: plan.verify,
            sent_and_delivered: (0, 0),
            patience_ns: scenario.moving_ns() + 20_000_000,
            may_run_out: !scenario.faults.is_empty(),
            waits_until_ns: None,
            waits_no_more: false,
            memory: Memory::new(group as u64),
            unanswered: VecDeque::new(),
            refuses: false,
            is_silent: false,
            has_ended: false,
            lease: None,
            dice: Dice::new(seed, PURPOSE),
        }
    }

    fn facts<'b>(&self, book: &'b mut Book) -> &'b mut MemberBook {
        &mut book.groups[self.group].members[self.rank as usize]
    }

    fn violated(&self, here: &mut Here<'_>, what: &str) {
        here.book.violated(format!("member {}, group {}: {what}", self.rank, self.group));
    }

    fn remark(&self, here: &Here<'_>, what: impl FnOnce() -> String) {
        let (rank, group) = (self.rank, self.group);
        here.network.remark(|| format!("member {rank}, group {group}: {}", what()));
    }

    fn check(&self, here: &mut Here<'_>, outcome: Result<(), String>) {
        if let Err(what) = outcome {
            self.violated(here, &what);
        }
    }

    fn incoming(&mut self, message: u64, bytes: u64, here: &mut Here<'_>) {
        let facts = self.facts(here.book);
        let expected = std::mem::replace(&mut facts.incoming, message + 1);
        let announced = here.book.groups[self.group].sent.get(message as usize);
        if expected != message || announced != Some(&(bytes as usize)) || self.is_root {
            self.violated(here, &format!("message {message} of {bytes} bytes was never sent so"));
        } else if self.refuses {
            self.abort(here, "refused");
        } else if !self.is_silent {
            let bytes = bytes as usize;
            match self.plan.answer {
                Answer::Exact => self.accept(message, bytes, 0, here),
                Answer::InUse { message: used } => self.accept_used(message, bytes, used, here),
                Answer::Larger { bytes: extra } => self.accept(message, bytes, extra, here),
                Answer::Late { ns_max } => {
                    let at_ns = here.now_ns + self.dice.between(0, ns_max);
                    self.unanswered.push_back((at_ns, message, bytes));
                }
                Answer::Wrong { too_small, then_ns } => {
                    self.offer_nonsense(message, bytes, too_small, here);
                    self.unanswered.push_back((here.now_ns + then_ns, message, bytes));
                }
            }
        }
    }

    fn accept(&mut self, message: u64, bytes: usize, extra: usize, here: &mut Here<'_>) {
        let region = self.memory.target(message, bytes, extra);
        self.give(message, region, here);
    }

    fn give(&mut self, message: u64, region: Region, here: &mut Here<'_>) {
        self.remark(here, || format!("gives memory for message {message}"));
        match here.engine.accept(self.number, message, region) {
            Ok(()) => {}
            // The group has ended, which will be reported.
            Err(Error::Failed(_) | Error::NoSuchGroup(_)) => self.memory.forget(message),
            Err(error) => self.violated(here, &format!("memory was refused: {error}")),
        }
    }

    /// Provides memory, which is in use if it is that of message `used`.
    fn accept_used(&mut self, message: u64, bytes: usize, used: u64, here: &mut Here<'_>) {
        if message != used || bytes == 0 {
            return self.accept(message, bytes, 0, here);
        }
        let region = self.memory.target(message, bytes, 0);
        self.lease = region.read(0..bytes).ok();
        let now_ns = here.now_ns;
        self.facts(here.book).in_use_ns = Some(now_ns);
        // The bug: nobody is told.
        if here.canary != Some(Canary::IgnoresMemoryInUse) {
            self.give(message, region, here);
        }
    }

    fn offer_nonsense(&mut self, message: u64, bytes: usize, too_small: bool, here: &mut Here<'_>) {
        let region = if too_small && bytes > 0 {
            Region::zeroed(bytes - 1)
        } else {
            Region::from_shared(vec![0; bytes])
        };
        self.remark(here, || format!("offers useless memory for message {message}"));
        match here.engine.accept(self.number, message, region) {
            Err(Error::RegionTooSmall { .. } | Error::RegionReadOnly { .. }) => {}
            Err(Error::Failed(_) | Error::NoSuchGroup(_)) => {}
            other => self.violated(here, &format!("useless memory was answered by {other:?}")),
        }
    }

    fn send(&mut self, plan: &SendPlan, here: &mut Here<'_>) {
        let message = here.book.groups[self.group].sent.len() as u64;
        let region = self.memory.source(message, plan.bytes, plan.shared);
        self.remark(here, || format!("sends message {message} of {} bytes", plan.bytes));
        match here.engine.send(self.number, region) {
            Ok(number) if number == message => {
                here.book.groups[self.group].sent.push(plan.bytes);
                self.sent_and_delivered.0 += 1;
                self.ask(here);
            }
            Err(Error::Failed(_) | Error::NoSuchGroup(_)) => self.memory.forget(message),
            Err(Error::Closed(_)) if self.close_ns.is_none() => self.memory.forget(message),
            other => self.violated(here, &format!("sending was answered by {other:?}")),
        }
    }

    /// Asks to be told once every member has all messages, after the last one.
    fn ask(&mut self, here: &mut Here<'_>) {
        if self.told != Told::BeforeClosing || !self.sends.is_empty() {
            return;
        }
        let (sent, _) = self.sent_and_delivered;
        self.waits_until_ns = Some(here.now_ns + self.patience_ns);
        self.remark(here, || format!("asks whether all have {sent} messages"));
        match here.engine.ask_delivered(self.number, sent) {
            Ok(()) | Err(Error::Failed(_) | Error::NoSuchGroup(_)) => {}
            other => self.violated(here, &format!("asking was answered by {other:?}")),
        }
    }

    /// Checks that every member has as many messages as the root is told, and that it is told only if it
    /// wants to know.
    fn delivered(&mut self, count: u64, here: &mut Here<'_>) {
        let (in_place, lacking) = here.book.groups[self.group].in_place();
        let before = std::mem::replace(&mut self.sent_and_delivered.1, count);
        if self.told == Told::No || count <= before {
            self.violated(here, &format!("it is told of {count} messages, after {before}"));
        }
        if count > in_place {
            let what =
                format!("it is told of {count} messages, but member {lacking} has {in_place}");
            self.violated(here, &what);
        }
    }

    fn close(&mut self, here: &mut Here<'_>) {
        self.close_ns = None;
        self.remark(here, || "closes".to_owned());
        match here.engine.close(self.number) {
            Ok(()) | Err(Error::Failed(_) | Error::NoSuchGroup(_)) => {}
            // The root may have closed before.
            Err(Error::Closed(_)) if !self.is_root => {}
            other => self.violated(here, &format!("closing was answered by {other:?}")),
        }
    }

    fn abort(&mut self, here: &mut Here<'_>, why: &str) {
        let now_ns = here.now_ns;
        self.remark(here, || format!("gives up: {why}"));
        self.facts(here.book).aborted_ns.get_or_insert(now_ns);
        match here.engine.abort(self.number, why) {
            Ok(()) | Err(Error::NoSuchGroup(_)) => {}
            Err(error) => self.violated(here, &format!("giving up was answered by {error}")),
        }
    }

    fn may_close(&self) -> bool {
        (self.sends.is_empty() && self.is_told()) || self.closes_early
    }

    /// Returns whether it need not wait until every member has all messages.
    fn is_told(&self) -> bool {
        let (sent, delivered) = self.sent_and_delivered;
        self.told != Told::BeforeClosing || self.waits_no_more || delivered >= sent
    }

    /// Makes calls that must be refused and change nothing.
    fn be_rude(&mut self, here: &mut Here<'_>) {
        let number = self.number;
        let completed = self.facts(here.book).completed;
        // Larger than any number that may be announced and not reported yet.
        let absurd = self.facts(here.book).incoming + 1_000;
        let outcomes = [
            here.engine.accept(number, absurd, Region::zeroed(10)).is_ok(),
            completed > 0
                && here.engine.accept(number, completed - 1, Region::zeroed(20_000)).is_ok(),
            !self.is_root && here.engine.send(number, Region::zeroed(3)).is_ok(),
            !self.is_root && here.engine.ask_delivered(number, 1).is_ok(),
            here.engine.accept(number + 40, 0, Region::zeroed(1)).is_ok(),
        ];
        if outcomes.contains(&true) {
            self.violated(here, &format!("nonsense was answered by {outcomes:?}"));
        }
    }

    fn complete(&mut self, message: u64, region: &Region, here: &mut Here<'_>) {
        let is_root = self.is_root;
        let facts = self.facts(here.book);
        let expected = std::mem::replace(&mut facts.completed, message + 1);
        let is_whole = is_root || message < facts.received;
        if expected != message || !is_whole {
            self.violated(here, &format!("message {message} is complete out of turn"));
        }
        let outcome = self.memory.take_back(message, region, Whole::Yes);
        self.check(here, outcome);
    }

    /// Returns what memory has of a message that was not compared with the root's, where a byte may have
    /// been changed on the way.
    fn before_comparison(&self, otherwise: Whole, here: &Here<'_>) -> Whole {
        let mut faults = here.book.faults.iter();
        let is_corrupted = faults.any(|fault| matches!(fault.what, Fault::Corrupt { .. }));
        if self.verifies && is_corrupted { Whole::Unknown } else { otherwise }
    }

    fn failed(&mut self, regions: &[(u64, Region)], here: &mut Here<'_>) {
        let received = self.facts(here.book).received;
        let partly = self.before_comparison(Whole::Partly, here);
        for (message, region) in regions {
            let whole = if *message < received { Whole::Yes } else { partly };
            let outcome = self.memory.take_back(*message, region, whole);
            self.check(here, outcome);
        }
    }

    fn ended(&mut self, end: End<Failure>, here: &mut Here<'_>) {
        self.has_ended = true;
        let kept = self.memory.given();
        if !kept.is_empty() {
            self.violated(here, &format!("memory of messages {kept:?} was not handed back"));
        }
        self.facts(here.book).end = Some((here.now_ns, end));
        checks::ended(here.book, self.group, self.rank);
    }

    /// Processes an event of its group.
    pub(super) fn event(&mut self, event: Event, here: &mut Here<'_>) {
        self.remark(here, || match &event {
            Event::Failed { failure, regions } => format!("{failure}; {} regions", regions.len()),
            other => format!("{other:?}"),
        });
        if self.has_ended {
            return self.violated(here, &format!("{event:?} after the end"));
        }
        match event {
            Event::Incoming { message, bytes, .. } => self.incoming(message, bytes, here),
            Event::Block { message, offset, bytes, .. } => {
                let range = offset as usize..(offset + bytes) as usize;
                let whole = self.before_comparison(Whole::Yes, here);
                let outcome = self.memory.note_block(message, range, whole);
                self.check(here, outcome);
            }
            Event::Received { message, .. } => {
                let is_root = self.is_root;
                let facts = self.facts(here.book);
                let expected = std::mem::replace(&mut facts.received, message + 1);
                if expected != message || message >= facts.incoming || is_root {
                    self.violated(here, &format!("message {message} is received out of turn"));
                }
                let sent = here.book.groups[self.group].sent.get(message as usize);
                let bytes = sent.copied().unwrap_or(0);
                let outcome = self.memory.check_block(message, 0..bytes, Whole::Yes);
                self.check(here, outcome);
                let reported = self.memory.bytes_reported(message);
                if reported != if self.plan.report_blocks { bytes } else { 0 } {
                    self.violated(here, &format!("{reported} of {bytes} bytes were reported"));
                }
            }
            Event::Complete { message, region, .. } => self.complete(message, &region, here),
            Event::Delivered { count, .. } => self.delivered(count, here),
            Event::Failed { failure, regions } => {
                self.lease = None;
                self.failed(&regions, here);
                // Only the library may still hold references.
                drop(regions);
                self.ended(End::Failed(failure), here);
            }
            Event::Closed { .. } => {
                let (sent, delivered) = self.sent_and_delivered;
                if self.told != Told::No && delivered < sent {
                    let what = format!("is closed, and was told of {delivered} of {sent} messages");
                    self.violated(here, &what);
                }
                self.ended(End::Closed, here);
            }
            other => self.violated(here, &format!("{other:?} is not known")),
        }
        if self.plan.rude && !self.has_ended && self.dice.percent(20) {
            self.be_rude(here);
        }
    }

    /// Returns when [`Application::wake`] is to be called, in virtual time.
    pub(super) fn next_wake_ns(&self) -> Option<u64> {
        if self.has_ended {
            return None;
        }
        let send_ns = self.sends.front().map(|send| send.at_ns);
        // A root that has not sent all messages closes only if the scenario requires it.
        let close_ns = self.close_ns.filter(|_| self.may_close());
        let patience_ns = self.waits_until_ns.filter(|_| !self.is_told());
        let answer_ns = self.unanswered.iter().map(|&(at_ns, ..)| at_ns).min();
        send_ns.into_iter().chain(close_ns).chain(patience_ns).chain(answer_ns).min()
    }

    /// Called at [`Application::next_wake_ns`].
    pub(super) fn wake(&mut self, here: &mut Here<'_>) {
        while self.sends.front().is_some_and(|send| send.at_ns <= here.now_ns) {
            let Some(send) = self.sends.pop_front() else { break };
            self.send(&send, here);
        }
        for _ in 0..self.unanswered.len() {
            let Some((at_ns, message, bytes)) = self.unanswered.pop_front() else { break };
            if at_ns <= here.now_ns {
                self.accept(message, bytes, 0, here);
            } else {
                self.unanswered.push_back((at_ns, message, bytes));
            }
        }
        if self.waits_until_ns.take_if(|at_ns| *at_ns <= here.now_ns).is_some() && !self.is_told() {
            if !self.may_run_out {
                self.violated(here, "it is not told what every member has");
            }
            self.waits_no_more = true;
        }
        if self.close_ns.is_some_and(|at_ns| at_ns <= here.now_ns) && self.may_close() {
            self.close(here);
        }
    }

    /// Executes an order of the scenario.
    pub(super) fn obey(&mut self, order: Order, here: &mut Here<'_>) {
        match order {
            Order::Abort => self.abort(here, "ordered by the scenario"),
            Order::Refuse => self.refuses = true,
            Order::FallSilent => {
                self.is_silent = true;
                self.unanswered.clear();
            }
        }
    }

    /// Called now and then when it has got all events so far: tries to write what is still being sent or passed on.
    pub(super) fn look_around(&mut self, here: &mut Here<'_>) {
        if self.plan.rude && !self.has_ended {
            let outcome = self.memory.check_kept();
            self.check(here, outcome);
        }
    }

    /// Returns whether it has got its last event.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Checks all memory, after its member's engine and its memory references were dropped.
    pub(super) fn finish(&mut self, book: &mut Book) {
        self.lease = None;
        if let Err(what) = self.memory.finish() {
            book.violated(format!("member {}, group {}: {what}", self.rank, self.group));
        }
    }
}
