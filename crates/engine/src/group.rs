//! One group at one member: a relay, its connections and its memory.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use relay::{Obstacle, ReceiveId, Relay, RelayError, SendId, Settings, Wait, Window};
use transport::{
    Cause, Completion, EndpointId, LeaseError, PostError, Region, RegionPool, Transport,
};

use crate::{
    close::Closing,
    counters::Counters,
    credits::Credits,
    error::Error,
    event::Event,
    failure::{Failure, FailureKind},
    jobs::{Disks, Lane},
    offload::Offload,
    order::Order,
    pace::Pace,
    settings::{GroupSettings, check_region},
    small::Small,
    staging::{HAND_BACK_TIMEOUT, Staging},
    stalls::Stalls,
    timeline::Facts,
    words::Word,
};

pub(crate) struct Group {
    pub(crate) settings: GroupSettings,
    pub(crate) offload: Offload,
    pub(crate) relay: Relay,
    pub(crate) closing: Closing,
    /// Neighbours that are connected.
    pub(crate) peers: BTreeMap<u32, EndpointId>,
    pub(crate) order: Order,
    pub(crate) small: Option<Small>,
    pub(crate) credits: Credits,
    /// How many relayed messages each neighbour was told of.
    pub(crate) announced: BTreeMap<u32, u64>,
    /// Memory of messages that are not complete.
    pub(crate) memory: BTreeMap<u64, Region>,
    /// Memory for first blocks of messages whose own is not known yet.
    pub(crate) spare: RegionPool,
    pub(crate) spare_used: BTreeMap<ReceiveId, Region>,
    /// Blocks on their way between files and the network.
    pub(crate) staging: Staging,
    /// Posts that have not completed: while there are any, the transport may touch memory.
    pub(crate) posts_open: usize,
    /// The first post that the transport has refused, and why.
    pub(crate) refused: Option<String>,
    phase: Phase,
    pub(crate) events: VecDeque<Event>,
    pub(crate) stalls: Stalls,
    pub(crate) pace: Pace,
    /// Set when jobs of a failed group are not waited for any more.
    gave_up_jobs: bool,
    failed_at: Duration,
    /// What was last said of it on the timeline.
    pub(crate) waiting: Option<Wait>,
}

#[derive(Debug)]
enum Phase {
    Running,
    /// Every message is everywhere; connections are being closed.
    Closed,
    /// The first cause; reported once no post is open.
    Failed(Failure),
    /// The last event has been taken.
    Ended,
}

impl Group {
    pub(crate) fn new(
        settings: GroupSettings,
        offload: Offload,
        now: Duration,
        disks: (Arc<dyn Disks>, u64),
    ) -> Result<Self, Error> {
        let relay = Relay::new(Settings {
            schedule: settings.schedule.clone(),
            rank: settings.rank,
            block_bytes: settings.block_bytes,
            window: settings.relay_window(),
            messages_in_flight: settings.messages_in_flight,
            offload: offload.limit(),
        })?;
        // At most one spare block for each message in flight waits for its memory; the root and
        // algorithms that announce the size first use them only while the application decides.
        let spare_count = if settings.is_root() { 0 } else { settings.messages_in_flight as usize };
        let (disks, id) = disks;
        let lane = Lane { group: settings.number, id };
        let Window { receives, sends } = settings.window;
        let blocks = receives.saturating_add(sends) as usize;
        Ok(Self {
            staging: Staging::new(disks, lane, settings.block_bytes, blocks),
            closing: Closing::new(&settings.schedule, settings.rank),
            spare: RegionPool::new(spare_count, settings.block_bytes as usize),
            small: Small::new(&settings),
            pace: Pace::new(settings.rank),
            settings,
            offload,
            relay,
            peers: BTreeMap::new(),
            order: Order::default(),
            announced: BTreeMap::new(),
            memory: BTreeMap::new(),
            spare_used: BTreeMap::new(),
            posts_open: 0,
            refused: None,
            credits: Credits::default(),
            phase: Phase::Running,
            events: VecDeque::new(),
            stalls: Stalls::new(now),
            gave_up_jobs: false,
            failed_at: Duration::ZERO,
            waiting: None,
        })
    }

    pub(crate) fn number(&self) -> u64 {
        self.settings.number
    }

    /// Something has moved, or has been asked for: stalling counts from now.
    pub(crate) fn note_progress(&mut self, now: Duration) {
        self.stalls.note_progress(now);
    }

    pub(crate) fn connect(&mut self, rank: u32, endpoint: EndpointId) {
        self.peers.insert(rank, endpoint);
    }

    pub(crate) fn missing_neighbour(&self) -> Option<u32> {
        self.settings.neighbours().into_iter().find(|rank| !self.peers.contains_key(rank))
    }

    pub(crate) fn send(&mut self, region: Region, now: Duration) -> Result<u64, Error> {
        self.check_running()?;
        if self.closing.is_asked() {
            return Err(Error::Closed(self.settings.number));
        }
        let bytes = region.len() as u64;
        let number = match &mut self.small {
            // What is in a file is read block by block: it is relayed whatever its length.
            Some(small) if self.settings.is_root() && small.takes(bytes) && !region.is_stored() => {
                let number = self.order.number(false);
                small.send(number);
                number
            }
            _ if self.settings.is_root() && self.offload.is_used() => {
                self.send_shadowed(&region, now)?
            }
            _ => {
                self.relay.send(bytes)?;
                self.order.number(true)
            }
        };
        self.note("message", |_| Facts::default().message(number).bytes(bytes));
        self.memory.insert(number, region);
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
        self.note("accepted", |_| Facts::default().message(message));
        if let Some(answer) = self.accept_small(message, &region, counters, now) {
            return answer;
        }
        let group = self.settings.number;
        let unknown = RelayError::Unknown { what: "message", number: message };
        let relayed = self.order.relayed(message).ok_or(unknown)?;
        let bytes = self.relay.awaits_memory(relayed)?;
        check_region(group, message, bytes, &region)?;
        self.memory.insert(message, region);
        self.relay.accepted(relayed)?;
        Ok(())
    }

    pub(crate) fn ask_to_close(&mut self) -> Result<(), Error> {
        self.check_running()?;
        if !self.closing.ask() {
            return Err(Error::Closed(self.settings.number));
        }
        Ok(())
    }

    pub(crate) fn abort<T: Transport>(&mut self, transport: &mut T, detail: &str) {
        let rank = self.settings.rank;
        self.fail(transport, Some(rank), FailureKind::Application, detail.to_owned());
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    fn check_running(&self) -> Result<(), Error> {
        match &self.phase {
            Phase::Running => Ok(()),
            Phase::Failed(failure) => Err(Error::Failed(failure.clone())),
            Phase::Closed | Phase::Ended => Err(Error::Closed(self.settings.number)),
        }
    }

    /// Takes in one completion of the endpoint that leads to `rank`.
    pub(crate) fn completed<T: Transport>(
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
        let outcome = match completion {
            Completion::Sent { token, .. } if Small::made(token) => {
                self.posts_open -= 1;
                Ok(())
            }
            Completion::Sent { token, .. } => {
                self.posts_open -= 1;
                self.note_send("sent", rank, SendId(token.0), None);
                self.relay.sent(SendId(token.0))
            }
            Completion::Received { token, bytes, immediate, .. } => {
                self.posts_open -= 1;
                self.stalls.note_life(rank);
                self.credits.used(rank);
                counters.blocks_received += 1;
                counters.bytes_received += bytes;
                self.note_receive("received", rank, ReceiveId(token.0), Some((bytes, immediate)));
                self.landed(ReceiveId(token.0), bytes, immediate, now)
            }
            Completion::Cancelled { token, .. } => {
                self.missed(ReceiveId(token.0));
                self.posts_open -= 1;
                Ok(())
            }
            Completion::Written { immediate, .. } if matches!(self.phase, Phase::Running) => {
                self.small_arrived(rank, immediate)
            }
            Completion::Control { word, .. } => {
                return self.heard(transport, counters, rank, &word, now);
            }
            Completion::Broken { cause, .. } => return self.lost(transport, counters, rank, cause),
            Completion::Halted { cause, .. } => return self.halted(transport, cause),
            Completion::Closed { .. } => {
                self.peers.remove(&rank);
                Ok(())
            }
            _ => Ok(()),
        };
        self.go_on(transport, counters, outcome);
    }

    fn heard<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
        rank: u32,
        word: &[u8],
        now: Duration,
    ) {
        if !self.is_running() {
            return;
        }
        let word = Word::decode(word);
        if let Some(Word::Moving { idle_ms }) = word {
            self.stalls.note_life(rank);
            return self.heard_moving(transport, rank, Duration::from_millis(idle_ms), now);
        }
        if let Some(Word::Held { by }) = word {
            let outcome = self.heard_held(transport, rank, by);
            return self.go_on(transport, counters, outcome);
        }
        self.stalls.note_life(rank);
        self.note_progress(now);
        let outcome = match word {
            Some(Word::Announce { number, bytes }) => self.announced(rank, number, bytes),
            Some(Word::Freed { count }) => match &mut self.small {
                Some(small) => small.heard(rank, count),
                None => Err(peer_error(rank, "has a ring for small messages")),
            },
            Some(Word::Grant { count }) => {
                self.note("granted", |_| Facts::of(rank));
                self.relay.granted(rank, count)
            }
            Some(Word::Failed { member, reporter, kind, detail }) => {
                let failure =
                    Failure { group: self.settings.number, member, reporter, kind, detail };
                return self.enter_failed(transport, failure);
            }
            Some(word) => self.closing.heard(rank, &word),
            None => Err(RelayError::Peer { member: rank, what: "wrote an unknown word".into() }),
        };
        self.go_on(transport, counters, outcome);
    }

    fn announced(&mut self, rank: u32, number: u64, bytes: u64) -> Result<(), RelayError> {
        // Whoever may not announce is refused before it can spoil the numbering.
        if self.settings.schedule.announcer(self.settings.rank) != Some(rank) {
            return self.relay.announced(rank, bytes);
        }
        if !self.order.announced(number) {
            return Err(peer_error(rank, "announced messages out of order"));
        }
        self.relay.announced(rank, bytes)
    }

    /// A neighbour's connection ended without being closed from here.
    fn lost<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
        rank: u32,
        cause: Cause,
    ) {
        self.peers.remove(&rank);
        if !matches!(self.phase, Phase::Running) || self.closing.can_do_without(rank) {
            return self.go_on(transport, counters, Ok(()));
        }
        let own = self.settings.rank;
        let (member, kind) = match cause {
            Cause::Silent(_) => (rank, FailureKind::Silent),
            Cause::Protocol(_) => (rank, FailureKind::Protocol),
            Cause::Corrupt(_) => (rank, FailureKind::Corrupt),
            Cause::Memory { .. } => (own, FailureKind::Memory),
            _ => (rank, FailureKind::Lost),
        };
        let detail = format!("while {}, {cause}", self.occupation());
        self.fail(transport, Some(member), kind, detail);
    }

    /// Blocks move no more, though all members may live.
    fn halted<T: Transport>(&mut self, transport: &mut T, cause: Cause) {
        let (member, kind) = match cause {
            Cause::Memory { .. } => (Some(self.settings.rank), FailureKind::Memory),
            _ => (None, FailureKind::Network),
        };
        let why = match cause {
            Cause::Lost(why) => why,
            other => other.to_string(),
        };
        let detail = format!("while {}, {why}", self.occupation());
        self.fail(transport, member, kind, detail);
    }

    /// Goes on after an event, or fails the group if the event was impossible.
    pub(crate) fn go_on<T: Transport>(
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
                let rank = self.settings.rank;
                self.fail(transport, Some(rank), FailureKind::Protocol, other.to_string());
            }
        }
    }

    /// Carries out what the relay asks for, and closes when the time has come.
    pub(crate) fn carry_out<T: Transport>(&mut self, transport: &mut T, counters: &mut Counters) {
        while matches!(self.phase, Phase::Running) {
            let Some(action) = self.relay.poll_action() else { break };
            if let Err(error) = self.act(transport, counters, action) {
                self.fail_memory(transport, &error);
            }
        }
        if self.is_running() {
            self.grant(transport);
        }
        if !self.is_running() {
            return;
        }
        self.pace.meets(self.obstacle(), transport.now());
        self.note_wait();
        match self.carry_out_small(transport, counters) {
            Ok(()) => self.go_on_closing(transport),
            Err(error) => self.fail_memory(transport, &error),
        }
    }

    /// Memory that the application gave cannot be leased.
    pub(crate) fn fail_memory<T: Transport>(&mut self, transport: &mut T, error: &LeaseError) {
        let detail = format!("while {}, {error}", self.occupation());
        self.fail(transport, Some(self.settings.rank), FailureKind::Memory, detail);
    }

    /// What is in the way of this member now. Of a block that switches copy nobody can tell who has
    /// not taken it; only who has not posted a receive for the next. While blocks are on their way
    /// to or from files here, nobody else is.
    fn obstacle(&self) -> Option<Obstacle> {
        let obstacle = self.relay.obstacle();
        let is_own = match obstacle {
            Some(Obstacle::Take(_)) => self.staging.holds_sends_back(),
            Some(Obstacle::Give(_)) => self.staging.is_busy(),
            _ => false,
        };
        if is_own {
            return Some(Obstacle::Own);
        }
        if !self.settings.is_in_switch() || !matches!(obstacle, Some(Obstacle::Take(_))) {
            return obstacle;
        }
        self.relay.waits().find_map(|wait| match wait {
            Wait::Credit { target, .. } => Some(Obstacle::Take(target)),
            _ => None,
        })
    }

    /// The memory of a message in flight; an empty region stands in for one that is not there, so
    /// that a lease of it fails with a clear error.
    pub(crate) fn region(&self, message: u64) -> Region {
        self.memory.get(&self.number_of(message)).cloned().unwrap_or_else(|| Region::zeroed(0))
    }

    /// The group's number of a message of the relay.
    pub(crate) fn number_of(&self, message: u64) -> u64 {
        self.order.number_of(message).unwrap_or(u64::MAX)
    }

    /// Writes a word to a neighbour. If there is no room for it the group fails: a word that is lost
    /// would leave that neighbour waiting.
    pub(crate) fn write_word<T: Transport>(&mut self, transport: &mut T, rank: u32, word: &Word) {
        let Some(endpoint) = self.peer(rank) else { return };
        match transport.write_control(endpoint, &word.encode()) {
            // Of an endpoint that is gone a completion tells.
            Ok(()) | Err(PostError::EndpointGone(_)) => {}
            Err(error) => {
                let detail = format!("while {}, {error}", self.occupation());
                self.fail(transport, Some(rank), FailureKind::Silent, detail);
            }
        }
    }

    /// Writes a word to all neighbours but one.
    pub(crate) fn write_to_all<T: Transport>(
        &mut self,
        transport: &mut T,
        word: &Word,
        but: Option<u32>,
    ) {
        let ranks: Vec<u32> = self.peers.keys().copied().collect();
        for rank in ranks.into_iter().filter(|&rank| Some(rank) != but) {
            self.write_word(transport, rank, word);
        }
    }

    pub(crate) fn peer(&self, rank: u32) -> Option<EndpointId> {
        self.peers.get(&rank).copied()
    }

    /// What this member is doing, for error messages: first in them, since what others hear of a
    /// failure is cut.
    pub(crate) fn occupation(&self) -> String {
        let message = self.order.completed();
        let relays = self.relay.known() > self.relay.completed();
        let step = self.relay.waits().find_map(|wait| wait.step());
        match (relays, step) {
            (true, Some(step)) => format!("relaying message {message} at step {step}"),
            (true, None) => format!("relaying message {message}"),
            (false, _) if self.closing.is_under_way() => "closing".to_owned(),
            (false, _) => format!("waiting for message {message}"),
        }
    }

    pub(crate) fn fail<T: Transport>(
        &mut self,
        transport: &mut T,
        member: Option<u32>,
        kind: FailureKind,
        detail: String,
    ) {
        let (group, reporter) = (self.settings.number, self.settings.rank);
        self.enter_failed(transport, Failure { group, member, reporter, kind, detail });
    }

    /// Stops everything, once: the first cause stays, and travels to every neighbour, whose own
    /// neighbours learn of it in turn (DSN 2018 section 3, item 6).
    fn enter_failed<T: Transport>(&mut self, transport: &mut T, failure: Failure) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        tracing::debug!(target: "rdmc::engine", %failure, "group failed");
        self.note("failed", |_| Facts::of(failure.member));
        let word = Word::of_failure(&failure);
        // From here on nothing fails the group again: not even that somebody cannot be told.
        self.phase = Phase::Failed(failure);
        self.failed_at = transport.now();
        self.staging.clear();
        self.write_to_all(transport, &word, None);
        self.abandon(transport);
    }

    /// Closes all connections.
    pub(crate) fn abandon<T: Transport>(&mut self, transport: &mut T) {
        self.peers.values().for_each(|&endpoint| transport.close(endpoint));
    }

    /// Every message is everywhere: nothing is left but to hang up.
    pub(crate) fn enter_closed<T: Transport>(&mut self, transport: &mut T) {
        self.phase = Phase::Closed;
        self.abandon(transport);
    }

    /// Whether [`Group::take_events`] has something to append.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty() || self.is_over() || self.is_refused()
    }

    /// Whether the last event is due: nothing is in use any more.
    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Failed(_) => {
                self.posts_open == 0 && (!self.staging.is_busy() || self.gave_up_jobs)
            }
            Phase::Closed => self.peers.is_empty(),
            Phase::Running | Phase::Ended => false,
        }
    }

    /// When a failed group ends though jobs are under way, if it waits for that alone.
    pub(crate) fn gives_up_at(&self) -> Option<Duration> {
        let waits = matches!(self.phase, Phase::Failed(_)) && self.staging.is_busy();
        (waits && !self.gave_up_jobs).then(|| self.failed_at + HAND_BACK_TIMEOUT)
    }

    /// Gives up on jobs if it is time. Their memory is not handed back: it goes with them.
    pub(crate) fn check_jobs(&mut self, now: Duration) {
        if self.gives_up_at().is_some_and(|at| now >= at) {
            let what = self.staging.occupation();
            tracing::warn!(target: "rdmc::engine", group = self.settings.number, what, "storage does not answer");
            self.gave_up_jobs = true;
        }
    }

    /// Appends what has happened. The last event comes only when nothing is in use any more.
    pub(crate) fn take_events(&mut self, events: &mut Vec<Event>) {
        events.extend(self.events.drain(..));
        if !self.is_over() {
            return;
        }
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Failed(failure) => {
                let mut regions: Vec<_> = std::mem::take(&mut self.memory).into_iter().collect();
                regions.retain(|&(message, _)| !self.staging.uses(message));
                events.push(Event::Failed { failure, regions });
            }
            _ => events.push(Event::Closed { group: self.settings.number }),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }
}

/// A range of a region. Lengths were checked against regions, which are no longer than memory.
pub(crate) fn range(offset: u64, bytes: u64) -> std::ops::Range<usize> {
    offset as usize..(offset + bytes) as usize
}

fn peer_error(member: u32, what: &str) -> RelayError {
    RelayError::Peer { member, what: what.to_owned() }
}
