//! The operations of one member over one transport.

use std::{collections::VecDeque, time::Duration};

use collective::{
    Call, Contents, Effect, Fault, Kind, Member, Reduction, WaySelection, model::WriteCosts,
};
use engine::{FailureKind, Notice};
use transport::{Completion, EndpointId, PostError, Region, Token, Transport, Waker};

use crate::{
    Counters, Error, Failure, Memory, TeamSettings,
    blocks::{Blocks, Post},
    operations::{Operations, Placing, Store},
    peers::{Peer, Peers},
    phase::Phase,
    staging::Staging,
    told::{Probed, Told},
    waits::Waits,
    words::Word,
};

/// Slots that may be on their way to others at once, for each linked member.
const STAGED_PER_LINK: u32 = 4;

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
    blocks: Blocks,
    operations: Operations,
    /// Effects that wait for a staged slot or for a member's rings. Later ones may change the memory of earlier ones.
    blocked: VecDeque<Effect>,
    waits: Waits,
    phase: Phase,
    told: Told,
    completions: Vec<Completion>,
    /// One slot's contents.
    buffer: Vec<u8>,
    /// The last time that something completed or came, or that others were notified of what this member waits for.
    moved_at: Duration,
    /// Something has come or was started since `moved_at`, which the next poll sets.
    has_moved: bool,
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
        let core = Member::new(settings.core.clone());
        let peers = Peers::open(&mut transport, &settings, links)?;
        let staged = (peers.iter().count() as u32).max(1) * STAGED_PER_LINK;
        let slot_bytes = settings.core.slot_bytes;
        let now = transport.now();
        let told = Told::new(&settings, now);
        let mut team = Self {
            moved_at: now,
            has_moved: false,
            transport,
            core,
            peers,
            staging: Staging::new(staged, slot_bytes),
            blocks: Blocks::default(),
            operations: Operations::default(),
            blocked: VecDeque::new(),
            waits: Waits::default(),
            phase: Phase::Open,
            told,
            completions: Vec::new(),
            buffer: vec![0; slot_bytes as usize],
            settings,
        };
        match (team.told.awaited(), Told::own(&team.settings)) {
            (Some(probed), Some(_)) => team.tell(probed, &Word::Probe),
            (_, Some(costs)) => team.take_costs(costs),
            _ => {}
        }
        Ok(team)
    }

    /// Returns whether this member knows how ways are chosen, and may call operations: see [`TeamSettings::takes_costs`].
    ///
    /// Errors: the team has failed before that.
    pub fn is_ready(&self) -> Result<bool, Error> {
        Ok(self.told.is_told() || self.check_open().map(|()| false)?)
    }

    /// Returns this member's rank.
    pub fn rank(&self) -> u32 {
        self.settings.core.rank
    }

    /// Returns the handle that ends a wait in [`Team::progress`] from another thread.
    pub fn waker(&self) -> Waker {
        self.transport.waker()
    }

    /// Starts the next operation, and returns its number. All members have to make the same calls in the same order.
    ///
    /// `memory` holds the message or this member's contribution ([`collective::Effect`]), and the result afterwards. Where it
    /// is lent, the same memory has to be given to [`Team::progress`] until the operation is complete, and no other operation
    /// may have lent memory meanwhile. `bytes` is the length of the message, of one contribution, or of one member's part; `root` is 0
    /// where there is none.
    ///
    /// Errors: the team has failed or is closed; the memory has another length, is in use, or is lent for a long operation; a
    /// reduction without `by`, or of elements that do not fit.
    pub fn start(
        &mut self,
        kind: Kind,
        root: u32,
        bytes: u64,
        by: Option<Reduction>,
        memory: Memory<'_>,
    ) -> Result<u64, Error> {
        self.check_open()?;
        self.told.check()?;
        let call = Call::of(kind, root, bytes, by.as_ref());
        self.settings.check_call(&call, by.as_ref())?;
        let needed = self.core.memory_bytes(&call);
        if memory.bytes() != needed {
            return Err(Error::WrongLength { bytes: memory.bytes(), needed });
        }
        let is_long = self.core.choice(&call).way.is_long();
        let mut lent = &mut [][..];
        let store = match memory {
            Memory::Owned(vector) if is_long => Store::region(Region::from_vec(vector), true)?,
            Memory::Owned(vector) => Store::Owned(vector),
            Memory::Region(region) => Store::region(region, is_long)?,
            Memory::Lent(_) if is_long => return Err(Error::LentMemory(bytes)),
            Memory::Lent(memory) => {
                lent = memory;
                Store::Lent
            }
        };
        self.has_moved = true;
        let number = self.core.called();
        self.operations.push(store, by);
        let outcome = self.core.start(call).map(drop);
        self.fail_on(outcome);
        self.carry_out(lent);
        // It may be complete here, and its caller not be back for long.
        self.transport.flush();
        self.check_open()?;
        Ok(number)
    }

    /// Registers memory with the network, for operations that use it again and again.
    ///
    /// Errors: the network refuses it, with the remedy.
    pub fn register(&mut self, region: &Region) -> Result<(), PostError> {
        self.transport.register(region)
    }

    /// Returns the length of this member's memory for a call, as [`Team::start`] takes it: see [`collective::Member::memory_bytes`].
    ///
    /// Errors: as [`Team::start`], for the call.
    pub fn memory_bytes(
        &mut self,
        kind: Kind,
        root: u32,
        bytes: u64,
        by: Option<&Reduction>,
    ) -> Result<u64, Error> {
        let call = Call::of(kind, root, bytes, by);
        self.settings.check_call(&call, by)?;
        Ok(self.core.memory_bytes(&call))
    }

    /// Returns whether an operation is long: it then goes from memory to memory, and cannot have lent memory.
    pub fn is_long(&mut self, kind: Kind, bytes: u64, by: Option<&Reduction>) -> bool {
        self.core.choice(&Call::of(kind, 0, bytes, by)).way.is_long()
    }

    /// Moves bytes and carries out what has become possible; waits up to `wait` if there is nothing to do. `lent` is the memory
    /// of the operation that was started with lent memory and is not complete, if there is one.
    pub fn progress(&mut self, lent: &mut [u8], wait: Duration) {
        let wait = if self.is_waiting() { self.before_sleep(wait) } else { wait };
        let mut completions = std::mem::take(&mut self.completions);
        self.transport.poll(&mut completions, wait);
        // Words of others that wait, too, are no progress: those who hear them have to tell what they wait for themselves.
        let is_word = |completion: &Completion| matches!(completion, Completion::Control { .. });
        if std::mem::take(&mut self.has_moved) || !completions.iter().all(is_word) {
            self.moved_at = self.transport.now();
        }
        for completion in completions.drain(..) {
            self.handle(completion);
        }
        self.completions = completions;
        self.look();
        self.carry_out(lent);
        self.tell_what_is_awaited();
        self.transport.flush();
    }

    /// Returns whether [`Team::glance`] sees all that others write, so that it is enough for a while: not while blocks are on their way,
    /// which move only in polls.
    pub fn shows_writes(&self) -> bool {
        self.phase == Phase::Open
            && self.blocked.is_empty()
            && self.peers.all_show()
            && !self.operations.are_long()
    }

    /// Takes writes that show without a poll (`transport::Visibility`), and carries out what has become possible. Takes a small
    /// part of the time of [`Team::progress`], and does nothing else that this does. Returns whether anything had come; `lent`
    /// is as there.
    pub fn glance(&mut self, lent: &mut [u8]) -> bool {
        match self.peers.look(&mut self.core) {
            Ok(false) => return false,
            Ok(true) => self.has_moved = true,
            Err(fault) => self.fail_on(Err(fault)),
        }
        self.carry_out(lent);
        self.transport.flush();
        true
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

    /// Fails the team after a wait of `timeout`: by the member that others wait for as far as they know, if there is one.
    pub fn time_out(&mut self, timeout: Duration) {
        if let Some(member) = self.told.awaited() {
            let detail = format!("{} after {timeout:?}", self.told.missed());
            return self.fail(Some(member), FailureKind::Stalled, detail);
        }
        if self.phase == Phase::Leaving {
            let missing = self.peers.iter().find(|peer| !peer.has_left).map(|peer| peer.rank);
            if let Some(member) = missing.and_then(|rank| self.held_by(&[rank])) {
                let detail = format!("it has not left the team after {timeout:?}");
                self.fail(Some(member), FailureKind::Stalled, detail);
            }
            return;
        }
        let Some((operation, awaited)) = self.awaited() else { return };
        let Some(member) = self.held_by(&awaited) else { return };
        let detail = self.waits.detail(member, operation, timeout);
        self.fail(Some(member), FailureKind::Stalled, detail);
    }

    /// Leaves the team once everything is complete here; the links close when it is so at all linked members.
    ///
    /// Errors: the team has failed. Operations that are not complete fail it.
    pub fn leave(&mut self) -> Result<(), Error> {
        self.check_open()?;
        if self.is_waiting() {
            self.abort("it left the team in an operation");
            return self.check_open();
        }
        let outcome = self.core.leave();
        self.fail_on(outcome);
        self.check_open()?;
        self.phase = Phase::Leaving;
        self.tell_all(&Word::Bye { operations: self.core.called() });
        self.close_if_all_have_left();
        Ok(())
    }

    /// Fails the team at all members, by this member.
    pub fn abort(&mut self, reason: &str) {
        self.fail(Some(self.settings.core.rank), FailureKind::Application, reason.to_owned());
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

    /// Returns what this member has done so far.
    pub fn counters(&self) -> Counters {
        self.operations.counters
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

    /// Returns when something has completed or come the last time, by the transport's clock.
    pub fn moved_at(&self) -> Duration {
        self.moved_at
    }

    /// Returns whether an operation that was started is not complete.
    pub fn is_waiting(&self) -> bool {
        self.core.completed() < self.core.called() || !self.blocked.is_empty()
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Sent { token, .. } => match self.blocks.take(token) {
                Some(Post::Send { operation, index }) => {
                    let outcome = self.core.sent(operation, index);
                    self.fail_on(outcome);
                }
                _ => self.staging.free(token.0 as u32),
            },
            Completion::Received { endpoint, token, bytes, .. } => {
                self.handle_block(endpoint, token, bytes);
            }
            Completion::Cancelled { token, .. } if self.blocks.take(token).is_none() => {
                self.staging.free(token.0 as u32);
            }
            Completion::Written { endpoint, immediate } => self.handle_write(endpoint, immediate),
            Completion::Control { endpoint, word } => self.handle_word(endpoint, &word),
            Completion::Broken { endpoint, cause } => {
                let Some(peer) = self.peers.remove(endpoint) else { return };
                let (rank, has_left) = (peer.rank, peer.has_left);
                if !has_left || self.phase == Phase::Open {
                    let kind = FailureKind::of(&cause);
                    let own = self.settings.core.rank;
                    let member = if kind == FailureKind::Memory { own } else { rank };
                    self.fail(Some(member), kind, cause.to_string());
                }
                self.close_if_all_have_left();
            }
            Completion::Closed { endpoint } => {
                self.peers.remove(endpoint);
            }
            // Blocks have no path of their own.
            _ => {}
        }
    }

    fn handle_write(&mut self, endpoint: EndpointId, immediate: u32) {
        let Some(peer) = self.peers.of_endpoint(endpoint) else { return };
        let noted = peer.slots.note_report(immediate);
        let noted = noted.map_err(|what| Fault::Protocol { member: peer.rank, what });
        let outcome = noted.and_then(|()| peer.look(&mut self.core));
        self.fail_on(outcome.map(drop));
    }

    /// Takes a block of a long operation that has come; it may have to be folded.
    fn handle_block(&mut self, endpoint: EndpointId, token: Token, bytes: u64) {
        let Some(rank) = self.peers.of_endpoint(endpoint).map(|peer| peer.rank) else { return };
        let Some(come) = self.blocks.come(token, bytes) else { return };
        if self.phase == Phase::Open {
            self.operations.counters.bytes_received += bytes;
            let come = come.map_err(|what| Fault::Protocol { member: rank, what });
            let outcome = come.and_then(|(operation, index)| self.core.received(operation, index));
            self.fail_on(outcome);
        }
    }

    /// Takes writes that are not reported.
    fn look(&mut self) {
        match self.peers.look(&mut self.core) {
            _ if self.phase != Phase::Open => {}
            Ok(true) => self.moved_at = self.transport.now(),
            Ok(false) => {}
            Err(fault) => self.fail_on(Err(fault)),
        }
    }

    /// Returns how long to wait in the transport, where writes that are not reported do not end a wait: the member that is
    /// waited for is asked to have its next one reported.
    fn before_sleep(&mut self, wait: Duration) -> Duration {
        if wait.is_zero() || self.peers.show_something() {
            return Duration::ZERO;
        }
        if let Some((_, awaited)) = self.core.awaited()
            && let Some(&rank) = awaited.first()
            && let Some(seen) = self.peers.of_rank(rank).and_then(Peer::ask_to_wake)
        {
            self.tell(rank, &Word::Sleeps { seen });
        }
        wait.min(self.settings.ask_after)
    }

    fn handle_word(&mut self, endpoint: EndpointId, word: &[u8]) {
        let now = self.transport.now();
        let Some(peer) = self.peers.of_endpoint(endpoint) else { return };
        let rank = peer.rank;
        let outcome = match Word::decode(word, self.settings.core.members) {
            None => Err(Fault::Protocol { member: rank, what: "an invalid control word" }),
            Some(Word::Exposed(marks)) => {
                (peer.is_exposed, peer.outgoing.marks) = (true, marks);
                Ok(())
            }
            Some(Word::Sleeps { seen }) => match peer.outgoing.note_sleep(seen) {
                Ok(has_to_wake) => {
                    if has_to_wake {
                        self.tell(rank, &Word::Wake);
                    }
                    Ok(())
                }
                Err(what) => Err(Fault::Protocol { member: rank, what }),
            },
            Some(Word::Costs(costs)) => {
                self.moved_at = now;
                self.told.note(rank).map(|()| self.take_costs(costs))
            }
            Some(Word::Probe) => {
                self.moved_at = now;
                self.probed(rank, now)
            }
            Some(Word::Wake) => {
                peer.is_asked = false;
                Ok(())
            }
            Some(Word::Grant { operation, call, blocks }) => {
                self.moved_at = now;
                self.core.granted(rank, operation, call, blocks)
            }
            Some(Word::Freed { ring, count }) => {
                self.moved_at = now;
                self.core.freed(rank, ring, count)
            }
            Some(Word::Waits { operation, call, held_by }) => {
                self.waits.note(rank, operation, held_by, now);
                let (operations, awaited) = (self.core.called(), self.told.awaited());
                if let Some(held_by) = awaited.and_then(|parent| self.held_by(&[parent])) {
                    self.tell(rank, &Word::Waits { operation, call, held_by });
                } else if operations <= operation {
                    self.tell(rank, &Word::Called { operations });
                }
                self.core.compare(rank, operation, call)
            }
            Some(Word::Called { operations }) => {
                self.waits.note_called(rank, operations);
                Ok(())
            }
            Some(Word::Failed(notice)) => {
                self.fail_with(notice);
                Ok(())
            }
            Some(Word::Bye { operations }) => {
                peer.has_left = true;
                let outcome = self.core.left(rank, operations);
                if outcome.is_ok() {
                    self.close_if_all_have_left();
                }
                outcome
            }
        };
        self.fail_on(outcome);
    }

    /// Carries out effects in order, as far as that is possible now.
    fn carry_out(&mut self, lent: &mut [u8]) {
        while self.phase == Phase::Open
            && let Some(effect) = self.blocked.pop_front().or_else(|| self.core.poll_effect())
        {
            let outcome = match effect {
                Effect::Fold { is_left, operation, contents, at } => {
                    let how = if is_left { Placing::FoldLeft } else { Placing::Fold };
                    self.place(operation, &contents, at, how, lent)
                }
                Effect::Copy { operation, contents, at } => {
                    self.place(operation, &contents, at, Placing::Copy, lent)
                }
                Effect::Write { to, .. } if !self.can_write(to) => {
                    self.blocked.push_front(effect);
                    return;
                }
                Effect::Write { to, ring, at, header, .. } => {
                    let contents =
                        self.operations.contents(header.operation, at, header.bytes, lent);
                    let (transport, staging) = (&mut self.transport, &mut self.staging);
                    contents
                        .and_then(|it| self.peers.write(transport, staging, to, ring, it, header))
                }
                Effect::Freed { to, ring, count } => {
                    if let Some(peer) = self.peers.of_rank(to) {
                        peer.slots.reset(ring, count);
                    }
                    self.tell(to, &Word::Freed { ring, count });
                    Ok(())
                }
                Effect::Receive { from: rank, .. } | Effect::Send { to: rank, .. } => {
                    let endpoint = self.peers.of_rank(rank).and_then(|peer| peer.endpoint);
                    endpoint.map_or(Ok(()), |endpoint| {
                        let (transport, operations) = (&mut self.transport, &mut self.operations);
                        self.blocks.post(transport, endpoint, operations, &effect)
                    })
                }
                Effect::FoldBlock { operation, index, at, bytes } => {
                    self.blocks.fold(&mut self.operations, operation, index, at..at + bytes)
                }
                Effect::Grant { to, operation, call, blocks } => {
                    self.tell(to, &Word::Grant { operation, call, blocks });
                    Ok(())
                }
                Effect::Complete { operation } => {
                    self.operations.complete(operation);
                    Ok(())
                }
            };
            if let Err(why) = outcome {
                self.abort(&why);
            }
        }
    }

    /// Folds or copies the contents of a slot into the operation's memory.
    fn place(
        &mut self,
        operation: u64,
        contents: &Contents,
        at: u64,
        how: Placing,
        lent: &mut [u8],
    ) -> Result<(), String> {
        let other = &mut self.buffer[..contents.bytes as usize];
        let peer =
            self.peers.of_rank(contents.from).ok_or("contents of a member without a link")?;
        peer.slots.copy_out(contents, other).map_err(|error| error.to_string())?;
        self.operations.place(operation, other, at, how, lent)
    }

    fn can_write(&mut self, to: u32) -> bool {
        // A member whose link has ended is not waited for: its end is reported.
        let is_ready =
            self.peers.of_rank(to).is_none_or(|peer| peer.is_exposed || peer.endpoint.is_none());
        is_ready && self.staging.has_room()
    }

    /// Returns the first operation that this member waits in, with the members that have to do something for it.
    fn awaited(&mut self) -> Option<(u64, Vec<u32>)> {
        let blocked = match self.blocked.front() {
            Some(&Effect::Write { to, header, .. }) => Some((header.operation, to)),
            _ => None,
        };
        // Everything waits behind a write to a member that has not exposed its rings.
        let peer = blocked.and_then(|(_, to)| self.peers.of_rank(to));
        let is_joining = peer.is_some_and(|peer| !peer.is_exposed && peer.endpoint.is_some());
        let awaited = if is_joining { None } else { self.core.awaited() };
        awaited.or(blocked.map(|(operation, to)| (operation, vec![to])))
    }

    /// Tells linked members what this one waits for, if it has waited for long.
    fn tell_what_is_awaited(&mut self) {
        let now = self.transport.now();
        if self.phase != Phase::Open || now < self.moved_at + self.settings.ask_after {
            return;
        }
        let Some((operation, awaited)) = self.awaited() else { return };
        let Some(call) = self.core.call(operation) else { return };
        let Some(held_by) = self.held_by(&awaited) else { return };
        self.moved_at = now;
        self.tell_all(&Word::Waits { operation, call, held_by });
    }

    /// Returns the member that is waited for in the end, if these have to do something.
    fn held_by(&self, awaited: &[u32]) -> Option<u32> {
        // A member that leaves does not wait for those that have left.
        let is_over = |rank| {
            let has_left = || self.peers.iter().any(|peer| peer.rank == rank && peer.has_left);
            self.phase == Phase::Leaving && has_left()
        };
        let (now, interval) = (self.transport.now(), self.settings.ask_after);
        self.waits.end(self.settings.core.rank, awaited, now, interval, is_over)
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

    /// Answers rank 0's probe. At rank 0: takes the answer.
    fn probed(&mut self, rank: u32, now: Duration) -> Result<(), Fault> {
        if self.settings.core.rank != 0 {
            self.told.check_probe(rank)?;
            self.tell(rank, &Word::Probe);
            return Ok(());
        }
        match self.told.answered(rank, now)? {
            Probed::Again => self.tell(rank, &Word::Probe),
            Probed::Costs(costs) => self.take_costs(costs),
        }
        Ok(())
    }

    /// Takes the costs by which all choose ways, rounded as they are transmitted, and passes them on.
    fn take_costs(&mut self, costs: WriteCosts) {
        let costs = WriteCosts::of_values(costs.values()).unwrap_or(costs);
        self.core.set_ways(WaySelection::ByCosts(costs));
        self.told.children().into_iter().for_each(|child| self.tell(child, &Word::Costs(costs)));
    }

    fn tell_all(&mut self, word: &Word) {
        let ranks: Vec<u32> = self.peers.iter().map(|peer| peer.rank).collect();
        ranks.into_iter().for_each(|rank| self.tell(rank, word));
    }

    fn close_if_all_have_left(&mut self) {
        if self.phase == Phase::Leaving && self.peers.iter().all(|peer| peer.has_left) {
            self.phase = Phase::Left;
            self.peers.close(&mut self.transport);
        }
    }

    fn fail_on(&mut self, outcome: Result<(), Fault>) {
        let Err(fault) = outcome else { return };
        if matches!(self.phase, Phase::Failed(_) | Phase::Left) {
            return;
        }
        let kind = match fault {
            Fault::Protocol { .. } => FailureKind::Protocol,
            _ => FailureKind::Application,
        };
        // One-sided writes are seen before this member polls. A failure that has been sent after them is their reason.
        let mut completions = Vec::new();
        self.transport.poll(&mut completions, Duration::ZERO);
        for completion in &completions {
            if let Completion::Control { endpoint, word } = completion
                && let Some(Word::Failed(_)) = Word::decode(word, self.settings.core.members)
            {
                self.handle_word(*endpoint, word);
            }
        }
        self.fail(Some(fault.member()), kind, fault.to_string());
        completions.into_iter().for_each(|completion| self.handle(completion));
    }

    fn fail(&mut self, member: Option<u32>, kind: FailureKind, detail: String) {
        self.fail_with(Notice { member, reporter: self.settings.core.rank, kind, detail });
    }

    /// The first failure counts: it is passed on to all linked members.
    fn fail_with(&mut self, notice: Notice) {
        if matches!(self.phase, Phase::Failed(_) | Phase::Left) {
            return;
        }
        let word = Word::Failed(notice.clone());
        let failure = Failure::of(self.settings.number, notice);
        tracing::debug!(%failure, "a team has failed");
        self.phase = Phase::Failed(failure);
        self.blocked.clear();
        self.operations.drop_incomplete();
        self.tell_all(&word);
        self.peers.close(&mut self.transport);
    }
}
