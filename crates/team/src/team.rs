//! The operations of one member over one transport.

use std::{collections::VecDeque, time::Duration};

use collective::{Call, Contents, Effect, Fault, Kind, Member, Reduction};
use engine::FailureKind;
use transport::{Completion, EndpointId, PostError, Token, Transport, Waker};

use crate::{
    Error, Failure, Memory, TeamSettings,
    operations::Operations,
    peers::{Peer, Peers},
    slots::{self, Slots},
    staging::Staging,
    words::Word,
};

/// Slots that may be on their way to others at once, for each linked member.
const STAGED_PER_LINK: u32 = 4;

/// How many times as old as the interval of words about waiting one may be, to be believed.
const WAITS_BELIEVED: u32 = 4;

/// One member of a team, over a transport of its own.
///
/// Belongs to one thread at a time. The network moves only within [`Team::start`] and [`Team::progress`]; an operation that
/// is under way makes no allocation for each message that comes or goes.
///
/// # Failures
/// A member that dies, falls silent, violates the protocol or calls something else fails the team: at every member all calls
/// return the same first cause, with the member that caused it. The memory of operations that were not complete is dropped.
pub struct Team<T: Transport> {
    settings: TeamSettings,
    transport: T,
    core: Member,
    peers: Peers,
    staging: Staging,
    operations: Operations,
    /// Effects that wait for a staged slot or for a member's rings. Later ones may change the memory of earlier ones.
    blocked: VecDeque<Effect>,
    phase: Phase,
    completions: Vec<Completion>,
    /// One slot's contents.
    buffer: Vec<u8>,
    /// When something has completed or come the last time, or others were told what this member waits for.
    moved_at: Duration,
}

#[derive(Clone, PartialEq, Debug)]
enum Phase {
    Open,
    /// Everything is complete here; the links close once it is so at all linked members.
    Leaving,
    /// The links are closing, or closed.
    Left,
    Failed(Failure),
}

impl<T: Transport> Team<T> {
    /// Makes a member of a team over these links, by rank: those to [`collective::links`]. Others may call operations before
    /// this member does.
    ///
    /// Errors: a setting is out of range, a link is missing, or the transport cannot use it.
    pub fn new(
        mut transport: T,
        settings: TeamSettings,
        links: impl IntoIterator<Item = (u32, T::Link)>,
    ) -> Result<Self, Error> {
        settings.check()?;
        if transport.one_sided().is_none() {
            return Err(Error::NoWrites);
        }
        let core = Member::new(settings.core());
        let (slots, slot_bytes) = (settings.slots, settings.slot_bytes);
        let mut all = Vec::new();
        for (rank, link) in links {
            let failed = |error| Error::Link { member: rank, error };
            let endpoint = transport.open(link).map_err(failed)?;
            let slots = Slots::new(slots, slot_bytes);
            match expose(&mut transport, endpoint, &slots) {
                // It has ended already: a completion reports why, and the team fails.
                Ok(()) | Err(PostError::EndpointGone(_)) => {}
                Err(error) => return Err(failed(error)),
            }
            all.push(Peer {
                rank,
                endpoint: Some(endpoint),
                slots,
                is_exposed: false,
                has_left: false,
                called: None,
                waits: None,
            });
        }
        all.sort_unstable_by_key(|peer| peer.rank);
        let missing = core.linked().find(|&rank| all.iter().all(|peer| peer.rank != rank));
        if let Some(rank) = missing {
            return Err(Error::NoLink(rank));
        }
        let staged = (all.len() as u32).max(1) * STAGED_PER_LINK;
        Ok(Self {
            moved_at: transport.now(),
            transport,
            core,
            peers: Peers::new(all),
            staging: Staging::new(staged, slot_bytes),
            operations: Operations::default(),
            blocked: VecDeque::new(),
            phase: Phase::Open,
            completions: Vec::new(),
            buffer: vec![0; slot_bytes as usize],
            settings,
        })
    }

    /// Returns this member's rank.
    pub fn rank(&self) -> u32 {
        self.settings.rank
    }

    /// Returns the handle that ends a wait in [`Team::progress`] from another thread.
    pub fn waker(&self) -> Waker {
        self.transport.waker()
    }

    /// Starts the next operation, and returns its number. All members have to make the same calls in the same order.
    ///
    /// `memory` holds the message or this member's contribution ([`collective::Effect`]), and the result afterwards. Where it
    /// is lent, the same memory has to be given to [`Team::progress`] until the operation is complete, and no other operation
    /// may have lent memory meanwhile. `bytes` is the length of the message, or of one contribution; `root` is 0 where there is
    /// none.
    ///
    /// Errors: the team has failed or is closed; the memory has another length; a reduction without `by`, or of elements that
    /// do not fit.
    pub fn start(
        &mut self,
        kind: Kind,
        root: u32,
        bytes: u64,
        by: Option<Reduction>,
        memory: Memory<'_>,
    ) -> Result<u64, Error> {
        self.check_open()?;
        let call = match &by {
            Some(reduction) => Call::folding(kind, root, bytes, reduction),
            None => Call::new(kind, root, bytes),
        };
        self.check(&call, by.as_ref(), &memory)?;
        let (owned, lent) = match memory {
            Memory::Owned(memory) => (Some(memory), &mut [][..]),
            Memory::Lent(memory) => (None, memory),
        };
        self.moved_at = self.transport.now();
        let number = self.core.called();
        self.operations.push(owned, by);
        if let Err(fault) = self.core.start(call) {
            self.fail_by(&fault);
        }
        self.carry_out(lent);
        self.check_open()?;
        Ok(number)
    }

    fn check(&self, call: &Call, by: Option<&Reduction>, memory: &Memory<'_>) -> Result<(), Error> {
        let bytes = match memory {
            Memory::Owned(memory) => memory.len() as u64,
            Memory::Lent(memory) => memory.len() as u64,
        };
        let needed = match call.kind {
            Kind::AllGather => call.bytes.saturating_mul(u64::from(self.settings.members)),
            _ => call.bytes,
        };
        if bytes != needed {
            return Err(Error::WrongLength { bytes, needed });
        }
        if call.root >= self.settings.members {
            let (value, range) = (u64::from(call.root), 0..=u64::from(self.settings.members) - 1);
            return Err(Error::OutOfRange { setting: "root", value, range });
        }
        let folds = matches!(call.kind, Kind::Reduce | Kind::AllReduce);
        match by {
            Some(by) if folds => {
                let (element, room) =
                    (by.element_bytes() as u64, self.settings.element_bytes_max());
                if element > room {
                    let range = 1..=room;
                    return Err(Error::OutOfRange {
                        setting: "element_bytes",
                        value: element,
                        range,
                    });
                }
                let is_whole = call.bytes.is_multiple_of(element);
                if is_whole { Ok(()) } else { Err(Error::CutElement { bytes, element }) }
            }
            None if folds => Err(Error::NoReduction(call.kind)),
            Some(_) => Err(Error::Reduction(call.kind)),
            None => Ok(()),
        }
    }

    /// Moves bytes and carries out what has become possible; waits up to `wait` if there is nothing to do. `lent` is the memory
    /// of the operation that was started with lent memory and is not complete, if there is one.
    pub fn progress(&mut self, lent: &mut [u8], wait: Duration) {
        let wait = if self.is_waiting() { wait.min(self.settings.ask_after) } else { wait };
        let mut completions = std::mem::take(&mut self.completions);
        self.transport.poll(&mut completions, wait);
        // Words of others that wait, too, are no progress: those who hear them have to tell what they wait for themselves.
        let is_word = |completion: &Completion| matches!(completion, Completion::Control { .. });
        if !completions.iter().all(is_word) {
            self.moved_at = self.transport.now();
        }
        for completion in completions.drain(..) {
            self.handle(completion);
        }
        self.completions = completions;
        self.carry_out(lent);
        self.tell_what_is_awaited();
    }

    /// Returns whether an operation is complete at this member.
    ///
    /// Errors: the team has failed before it was.
    pub fn is_complete(&self, operation: u64) -> Result<bool, Error> {
        match (&self.phase, self.operations.is_complete(operation)) {
            (_, true) => Ok(true),
            (Phase::Failed(failure), false) => Err(failure.clone().into()),
            _ => Ok(false),
        }
    }

    /// Returns the memory of an operation that is complete, once; empty if it was lent.
    pub fn take(&mut self, operation: u64) -> Option<Vec<u8>> {
        self.operations.take(operation)
    }

    /// Fails the team because an operation, or the end of the team, was waited for too long: by the member that others wait
    /// for, as far as they know. Does nothing if nobody is waited for.
    pub fn time_out(&mut self) {
        if self.phase == Phase::Leaving {
            let missing = self.peers.iter().find(|peer| !peer.has_left).map(|peer| peer.rank);
            if let Some(rank) = missing {
                let member = self.held_by(rank);
                self.fail(Some(member), FailureKind::Stalled, "it has not left the team".into());
            }
            return;
        }
        let Some((operation, awaited)) = self.awaited() else { return };
        let member = self.held_by(awaited);
        let called = self.peers.of_rank(member).and_then(|peer| peer.called);
        let detail = match called {
            Some(called) if called <= operation => {
                format!("operation {operation}: it has called {called}")
            }
            _ => format!("operation {operation}"),
        };
        self.fail(Some(member), FailureKind::Stalled, detail);
    }

    /// Leaves the team once everything is complete here; the links close when it is so at all linked members.
    ///
    /// Errors: the team has failed. Operations that are not complete fail it.
    pub fn leave(&mut self) -> Result<(), Error> {
        self.check_open()?;
        if self.is_waiting() {
            let rank = self.settings.rank;
            self.fail(
                Some(rank),
                FailureKind::Application,
                "it left the team in an operation".into(),
            );
            return self.check_open();
        }
        self.phase = Phase::Leaving;
        self.tell_all(&Word::Bye);
        self.close_if_all_have_left();
        Ok(())
    }

    /// Fails the team at all members, by this member.
    pub fn abort(&mut self, reason: &str) {
        self.fail(Some(self.settings.rank), FailureKind::Application, reason.to_owned());
    }

    /// Returns whether all links have ended.
    pub fn has_ended(&self) -> bool {
        self.peers.have_ended() && matches!(self.phase, Phase::Left | Phase::Failed(_))
    }

    /// Returns why the team has failed, if it has.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.phase {
            Phase::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Returns the transport, and drops everything else.
    pub fn into_transport(self) -> T {
        self.transport
    }

    fn check_open(&self) -> Result<(), Error> {
        match &self.phase {
            Phase::Open => Ok(()),
            Phase::Failed(failure) => Err(failure.clone().into()),
            Phase::Leaving | Phase::Left => Err(Error::Closed(self.settings.number)),
        }
    }

    /// Returns whether an operation that was started is not complete.
    pub fn is_waiting(&self) -> bool {
        self.core.completed() < self.core.called() || !self.blocked.is_empty()
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Sent { token, .. } | Completion::Cancelled { token, .. } => {
                self.staging.free(token.0 as u32);
            }
            Completion::Written { endpoint, immediate } => self.handle_write(endpoint, immediate),
            Completion::Control { endpoint, word } => self.handle_word(endpoint, &word),
            Completion::Broken { endpoint, cause } => {
                let Some(peer) = self.peers.remove(endpoint) else { return };
                let (rank, has_left) = (peer.rank, peer.has_left);
                if !has_left || self.phase == Phase::Open {
                    self.fail(Some(rank), FailureKind::of(&cause), cause.to_string());
                }
                self.close_if_all_have_left();
            }
            Completion::Closed { endpoint } => {
                self.peers.remove(endpoint);
            }
            // Nothing is received, and blocks have no path of their own.
            _ => {}
        }
    }

    fn handle_write(&mut self, endpoint: EndpointId, immediate: u32) {
        let Some(peer) = self.peers.of_endpoint(endpoint) else { return };
        let (rank, (ring, slot)) = (peer.rank, slots::place(immediate));
        let outcome = match peer.slots.header(ring, slot) {
            Ok(header) => self.core.written(rank, ring, slot, header),
            Err(_) => Err(Fault::Protocol { member: rank, what: "an invalid header of a slot" }),
        };
        if let Err(fault) = outcome {
            self.fail_by(&fault);
        }
    }

    fn handle_word(&mut self, endpoint: EndpointId, word: &[u8]) {
        let now = self.transport.now();
        let Some(peer) = self.peers.of_endpoint(endpoint) else { return };
        let rank = peer.rank;
        let outcome = match Word::decode(word) {
            None => Err(Fault::Protocol { member: rank, what: "an invalid control word" }),
            Some(Word::Exposed) => {
                peer.is_exposed = true;
                Ok(())
            }
            Some(Word::Freed { ring, count }) => {
                self.moved_at = now;
                self.core.freed(rank, ring, count)
            }
            Some(Word::Waits { operation, call, held_by }) => {
                peer.called = peer.called.max(Some(operation.saturating_add(1)));
                peer.waits = Some((operation, held_by, now));
                let operations = self.core.called();
                if operations <= operation {
                    self.tell(rank, &Word::Called { operations });
                }
                self.core.compare(rank, operation, call)
            }
            Some(Word::Called { operations }) => {
                peer.called = peer.called.max(Some(operations));
                Ok(())
            }
            Some(Word::Failed { member, reporter, kind, detail }) => {
                let team = self.settings.number;
                self.fail_with(Failure { team, member, reporter, kind, detail });
                Ok(())
            }
            Some(Word::Bye) => {
                peer.has_left = true;
                self.close_if_all_have_left();
                Ok(())
            }
        };
        if let Err(fault) = outcome {
            self.fail_by(&fault);
        }
    }

    /// Carries out effects in order, as far as that is possible now.
    fn carry_out(&mut self, lent: &mut [u8]) {
        while self.phase == Phase::Open
            && let Some(effect) = self.blocked.pop_front().or_else(|| self.core.poll_effect())
        {
            let outcome = match effect {
                Effect::Fold { operation, contents, at } => {
                    self.place(operation, &contents, at, true, lent)
                }
                Effect::Copy { operation, contents, at } => {
                    self.place(operation, &contents, at, false, lent)
                }
                Effect::Write { .. } if !self.can_write(&effect) => {
                    self.blocked.push_front(effect);
                    return;
                }
                Effect::Write { .. } => self.write(&effect, lent),
                Effect::Freed { to, ring, count } => {
                    self.tell(to, &Word::Freed { ring, count });
                    Ok(())
                }
                Effect::Complete { operation } => {
                    self.operations.complete(operation);
                    Ok(())
                }
            };
            if let Err(why) = outcome {
                self.fail(Some(self.settings.rank), FailureKind::Application, why);
            }
        }
    }

    /// Folds or copies the contents of a slot into the operation's memory.
    fn place(
        &mut self,
        operation: u64,
        contents: &Contents,
        at: u64,
        folds: bool,
        lent: &mut [u8],
    ) -> Result<(), String> {
        let Contents { from, bytes, .. } = *contents;
        if bytes == 0 {
            return Ok(());
        }
        let found = self.peers.of_rank(from).zip(self.operations.memory(operation, lent));
        let (peer, (memory, by)) = found.ok_or("an operation without memory")?;
        let other = &mut self.buffer[..bytes as usize];
        peer.slots.copy_out(contents, other).map_err(|error| error.to_string())?;
        let memory = memory.get_mut(at as usize..).and_then(|rest| rest.get_mut(..bytes as usize));
        let memory = memory.ok_or("lent memory of another length")?;
        match by {
            Some(by) if folds => by.fold(memory, other).map_err(|error| error.to_string()),
            _ => {
                memory.copy_from_slice(other);
                Ok(())
            }
        }
    }

    fn can_write(&mut self, effect: &Effect) -> bool {
        let Effect::Write { to, .. } = effect else { return true };
        // A member whose link has ended is not waited for: its end is reported.
        let is_ready =
            self.peers.of_rank(*to).is_none_or(|peer| peer.is_exposed || peer.endpoint.is_none());
        is_ready && self.staging.has_room()
    }

    fn write(&mut self, effect: &Effect, lent: &mut [u8]) -> Result<(), String> {
        let &Effect::Write { to, ring, slot, at, header } = effect else { return Ok(()) };
        let Some(endpoint) = self.peers.of_rank(to).and_then(|peer| peer.endpoint) else {
            return Ok(());
        };
        let contents: &[u8] = match header.bytes {
            0 => &[],
            bytes => {
                let memory = self.operations.memory(header.operation, lent);
                let (memory, _) = memory.ok_or("an operation without memory")?;
                let memory = memory.get(at as usize..).and_then(|rest| rest.get(..bytes as usize));
                memory.ok_or("lent memory of another length")?
            }
        };
        let (number, lease) = self.staging.stage(contents, &header);
        let end = (u64::from(slot) + 1) * u64::from(self.settings.slot_bytes);
        let offset = end - lease.bytes() as u64;
        let token = Token(u64::from(number));
        let writes = self.transport.one_sided().ok_or("the network has no writes any more")?;
        let key = slots::key(ring);
        match writes.post_write(endpoint, lease, key, offset, slots::immediate(ring, slot), token) {
            Ok(()) => Ok(()),
            // A completion reports the end of that endpoint.
            Err(PostError::EndpointGone(_)) => {
                self.staging.free(number);
                Ok(())
            }
            Err(error) => Err(format!("a write to member {to}: {error}")),
        }
    }

    /// Returns the first operation that this member waits in, with the member that has to do something for it.
    fn awaited(&mut self) -> Option<(u64, u32)> {
        let blocked = match self.blocked.front() {
            Some(Effect::Write { to, header, .. }) => Some((header.operation, *to)),
            _ => None,
        };
        // Everything waits behind a write to a member that has not exposed its rings.
        let is_joining = |&(_, to): &(u64, u32)| {
            let peer = self.peers.of_rank(to);
            peer.is_some_and(|peer| !peer.is_exposed && peer.endpoint.is_some())
        };
        blocked.filter(is_joining).or_else(|| self.core.awaited()).or(blocked)
    }

    /// Tells linked members what this one waits for, if it has waited for long.
    fn tell_what_is_awaited(&mut self) {
        let now = self.transport.now();
        if self.phase != Phase::Open || now < self.moved_at + self.settings.ask_after {
            return;
        }
        let Some((operation, awaited)) = self.awaited() else { return };
        let Some(call) = self.core.call(operation) else { return };
        self.moved_at = now;
        let held_by = self.held_by(awaited);
        self.tell_all(&Word::Waits { operation, call, held_by });
    }

    /// Returns the member at the end of the chain of members that wait for each other, as far as they have told.
    fn held_by(&mut self, awaited: u32) -> u32 {
        let oldest = self.settings.ask_after * WAITS_BELIEVED;
        let since = self.transport.now().saturating_sub(oldest);
        let held_by = self.peers.held_by(awaited, since, self.phase == Phase::Leaving);
        if held_by == self.settings.rank { awaited } else { held_by }
    }

    fn tell(&mut self, rank: u32, word: &Word) {
        let Some(endpoint) = self.peers.of_rank(rank).and_then(|peer| peer.endpoint) else {
            return;
        };
        match self.transport.write_control(endpoint, &word.encode()) {
            Ok(()) | Err(PostError::EndpointGone(_)) => {}
            Err(error) => {
                let detail = format!("a word to member {rank}: {error}");
                self.fail(Some(rank), FailureKind::Stalled, detail);
            }
        }
    }

    fn tell_all(&mut self, word: &Word) {
        let ranks: Vec<u32> = self.peers.iter().map(|peer| peer.rank).collect();
        ranks.into_iter().for_each(|rank| self.tell(rank, word));
    }

    fn close_if_all_have_left(&mut self) {
        if self.phase == Phase::Leaving && self.peers.iter().all(|peer| peer.has_left) {
            self.phase = Phase::Left;
            self.close_links();
        }
    }

    fn close_links(&mut self) {
        let endpoints: Vec<EndpointId> =
            self.peers.iter().filter_map(|peer| peer.endpoint).collect();
        endpoints.into_iter().for_each(|endpoint| self.transport.close(endpoint));
    }

    fn fail_by(&mut self, fault: &Fault) {
        let (member, kind) = match fault {
            Fault::Disagreement { member, .. } | Fault::Skipped { member, .. } => {
                (*member, FailureKind::Application)
            }
            Fault::Protocol { member, .. } => (*member, FailureKind::Protocol),
            _ => return,
        };
        self.fail(Some(member), kind, fault.to_string());
    }

    fn fail(&mut self, member: Option<u32>, kind: FailureKind, detail: String) {
        let (team, reporter) = (self.settings.number, self.settings.rank);
        self.fail_with(Failure { team, member, reporter, kind, detail });
    }

    /// The first failure counts: it is passed on to all linked members.
    fn fail_with(&mut self, failure: Failure) {
        if matches!(self.phase, Phase::Failed(_) | Phase::Left) {
            return;
        }
        tracing::debug!(%failure, "a team has failed");
        let word = Word::of_failure(&failure);
        self.phase = Phase::Failed(failure);
        self.blocked.clear();
        self.tell_all(&word);
        self.close_links();
    }
}

/// Exposes both rings to a member, and tells it so.
fn expose<T: Transport>(
    transport: &mut T,
    endpoint: EndpointId,
    slots: &Slots,
) -> Result<(), PostError> {
    for ring in collective::Ring::ALL {
        let writes = transport.one_sided().ok_or(PostError::Unsupported("one-sided writes"))?;
        writes.expose(endpoint, slots::key(ring), slots.memory(ring).clone())?;
    }
    transport.write_control(endpoint, &Word::Exposed.encode())
}
