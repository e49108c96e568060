//! The connections of one end, whose streams one thread or several serve: each when it gets around to it.

use std::{collections::VecDeque, time::Duration};

use transport::{
    ArrivingRead, Cause, Completion, EndpointId, PeerMemory, PostError, ReadLease, Token,
    WriteLease,
};
use transport_tcp::{
    Command, ConnectionId, Connections, NewStream, Outbound, Readiness, Report, SharedEvent,
    Spread, TcpSettings,
};

use super::pipe::Pipe;
use crate::dice::Dice;

/// The least of the most time that a thread takes to notice something.
const DELAY_NS_MIN: u64 = 3_000;

/// All connections of an end.
pub(super) struct Threads {
    local: Connections<Pipe>,
    spread: Spread<Pipe>,
    others: Vec<Thread>,
    /// What other threads have reported, as far as its owner has heard it.
    heard: Report,
    delay_ns_max: u64,
    /// Connections that were ended for idleness by the first of their parts; other threads may still serve theirs.
    idle: Vec<ConnectionId>,
    /// A planted bug: what is read counts as if all commands had been taken since.
    takes_commands_late: bool,
}

/// One thread besides the owner's.
struct Thread {
    connections: Connections<Pipe>,
    /// Those that it has not taken.
    commands: VecDeque<Command<Pipe>>,
    /// Those that its owner has not heard.
    reports: VecDeque<Report>,
    /// When it does something next.
    turn_ns: u64,
    /// How far what arrives had come when others were last told.
    arrivals: u64,
}

impl Threads {
    /// `delay_ns_max`: how long a thread takes at most until it notices something.
    pub(super) fn new(settings: &TcpSettings, delay_ns_max: u64) -> Self {
        let thread = |_| Thread {
            connections: Connections::elsewhere(settings.clone()),
            commands: VecDeque::new(),
            reports: VecDeque::new(),
            turn_ns: u64::MAX,
            arrivals: 0,
        };
        let count = settings.threads.unwrap_or(1).into();
        Self {
            local: Connections::new(settings.clone()),
            spread: Spread::new(count),
            others: (1..count).map(thread).collect(),
            heard: Report::default(),
            delay_ns_max: delay_ns_max.max(DELAY_NS_MIN),
            idle: Vec::new(),
            takes_commands_late: false,
        }
    }

    pub(super) fn take_commands_late(&mut self) {
        self.takes_commands_late = true;
    }

    /// Begins to use a connection, of one endpoint or shared.
    pub(super) fn connect(
        &mut self,
        is_shared: bool,
        streams: Vec<NewStream<Pipe>>,
        now: Duration,
    ) -> (ConnectionId, Option<EndpointId>) {
        let (id, parts) = (self.spread.next_connection(), self.spread.deal(streams));
        if is_shared {
            self.spread.share(&mut self.local, id, parts, now);
            return (id, None);
        }
        (id, Some(self.spread.open(&mut self.local, id, parts, now)))
    }

    pub(super) fn reserve(
        &mut self,
        connection: ConnectionId,
        channel: u32,
    ) -> Result<EndpointId, PostError> {
        self.spread.reserve(&mut self.local, connection, channel)
    }

    pub(super) fn open_reserved(&mut self, endpoint: EndpointId) -> Result<(), PostError> {
        self.spread.open_reserved(&mut self.local, endpoint)
    }

    pub(super) fn release(&mut self, endpoint: EndpointId, now: Duration) {
        self.spread.release(&mut self.local, endpoint, now);
    }

    pub(super) fn write_message(
        &mut self,
        connection: ConnectionId,
        message: &[u8],
        now: Duration,
    ) -> Result<(), PostError> {
        self.local.write_message(connection, message, now)
    }

    pub(super) fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        self.local.expose(endpoint, key, memory)
    }

    pub(super) fn write_control(
        &mut self,
        endpoint: EndpointId,
        word: &[u8],
    ) -> Result<(), PostError> {
        self.local.write_control(endpoint, word)
    }

    pub(super) fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        self.spread.post_receive(&mut self.local, endpoint, into, token)
    }

    pub(super) fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let from = Outbound::Whole(from);
        self.spread.post_send(&mut self.local, endpoint, from, immediate, token)
    }

    pub(super) fn post_cut_through_send(
        &mut self,
        endpoint: EndpointId,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        let from = Outbound::Arriving(from);
        self.spread.post_send(&mut self.local, endpoint, from, immediate, token)
    }

    pub(super) fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) -> Result<(), PostError> {
        self.local.post_write(endpoint, from, key, offset, immediate, token)
    }

    pub(super) fn close(&mut self, endpoint: EndpointId, now: Duration) {
        self.spread.close(&mut self.local, endpoint, now);
    }

    pub(super) fn break_off(&mut self, endpoint: EndpointId, cause: &Cause) {
        self.spread.break_off(&mut self.local, endpoint, cause);
    }

    /// Notes what has changed for a stream of a connection that has `streams`.
    pub(super) fn on_ready(
        &mut self,
        connection: ConnectionId,
        stream: usize,
        streams: usize,
        readiness: Readiness,
    ) {
        let parts = streams.min(self.others.len() + 1);
        let index = stream / parts;
        match (stream % parts).checked_sub(1) {
            None => self.local.on_ready(connection, index, readiness),
            Some(thread) => {
                self.others[thread].connections.on_ready(connection, index, readiness);
            }
        }
    }

    /// Lets every thread that is due do something.
    pub(super) fn take_turns(&mut self, now_ns: u64, dice: &mut Dice) {
        self.plan_turns(now_ns, dice);
        for at in 0..self.others.len() {
            if self.others[at].turn_ns <= now_ns {
                let late = self.takes_commands_late;
                if self.others[at].take_turn(now_ns, late) {
                    // Others may send on what has come.
                    let follows = now_ns + dice.between(0, self.delay_ns_max);
                    let others = self.others.iter_mut().enumerate().filter(|&(it, _)| it != at);
                    others.for_each(|(_, it)| it.turn_ns = it.turn_ns.min(follows));
                }
            }
        }
        if !self.others.is_empty() {
            self.local.look_for_arrived();
        }
    }

    /// Gives commands to other threads, and plans turns of those that have something to do.
    pub(super) fn plan_turns(&mut self, now_ns: u64, dice: &mut Dice) {
        for (part, command) in self.spread.take_commands() {
            if let Command::End { connection, cause: None } = &command {
                self.idle.push(*connection);
            }
            self.others[part - 1].commands.push_back(command);
        }
        for thread in &mut self.others {
            let tick_ns = thread.connections.poll_timeout().map(|at| at.as_nanos() as u64);
            let is_busy = thread.connections.is_ready() || !thread.commands.is_empty();
            let wanted_ns = if is_busy { Some(now_ns) } else { tick_ns };
            if let Some(wanted_ns) = wanted_ns.filter(|&it| it < thread.turn_ns) {
                let delay_ns = dice.between(0, self.delay_ns_max);
                thread.turn_ns = thread.turn_ns.min(wanted_ns.max(now_ns) + delay_ns);
            }
        }
    }

    /// Moves bytes by the owner's thread, and handles its timers unless told not to.
    pub(super) fn serve(&mut self, now: Duration, handles_timeouts: bool) {
        self.local.serve(now);
        if handles_timeouts {
            self.local.handle_timeout(now);
        }
        drop(self.local.take_closed());
    }

    pub(super) fn handle_timeout(&mut self, now: Duration) {
        self.local.handle_timeout(now);
    }

    /// Returns what there is to report: of other threads with what they have reported until now, or perhaps not yet.
    pub(super) fn take_report(
        &mut self,
        now: Duration,
        dice: &mut Dice,
    ) -> (Vec<Completion>, Vec<SharedEvent>) {
        if !self.others.is_empty() && dice.percent(50) {
            self.hear(now);
        }
        let mut own = Report::default();
        if self.local.has_news(now) {
            own = self.local.take_report();
        }
        let whole = self.spread.on_report(&mut self.local, 0, own, now);
        self.heard.completions.extend(whole.completions);
        self.heard.events.extend(whole.events);
        let Report { completions, events, .. } = std::mem::take(&mut self.heard);
        (completions, events)
    }

    fn hear(&mut self, now: Duration) {
        for at in 0..self.others.len() {
            while let Some(report) = self.others[at].reports.pop_front() {
                let whole = self.spread.on_report(&mut self.local, at + 1, report, now);
                self.heard.completions.extend(whole.completions);
                self.heard.events.extend(whole.events);
            }
        }
    }

    /// Returns whether a connection ends because it was idle.
    pub(super) fn was_idle(&self, connection: ConnectionId) -> bool {
        self.idle.contains(&connection)
    }

    /// Returns whether its owner has something to do.
    pub(super) fn is_ready(&self) -> bool {
        self.local.is_ready() || self.others.iter().any(|thread| !thread.reports.is_empty())
    }

    /// Returns whether other threads are about to notice something, or have noticed what the owner has not heard of.
    pub(super) fn have_turns(&self, now_ns: u64) -> bool {
        let latest_ns = now_ns + self.delay_ns_max;
        self.others.iter().any(|it| it.turn_ns <= latest_ns || !it.reports.is_empty())
    }

    /// Returns when a thread has something to do at the latest.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        let turns = self.others.iter().map(|thread| thread.turn_ns).filter(|&at| at < u64::MAX);
        let own = self.local.poll_timeout().map(|at| at.as_nanos() as u64);
        turns.chain(own).min()
    }
}

impl Thread {
    /// Takes its commands, moves bytes, and reports. Returns whether others may have blocks to send on.
    fn take_turn(&mut self, now_ns: u64, takes_commands_late: bool) -> bool {
        self.turn_ns = u64::MAX;
        let now = Duration::from_nanos(now_ns);
        if takes_commands_late {
            // What the first round reads the second one parses.
            for _ in 0..2 {
                self.connections.took_commands();
                self.connections.serve(now);
            }
        }
        for command in std::mem::take(&mut self.commands) {
            let opened = match &command {
                Command::Open { connection, streams, .. }
                | Command::Share { connection, streams } => Some((*connection, streams.len())),
                _ => None,
            };
            command.carry_out(&mut self.connections, now);
            // Registering a socket with epoll reports that it is ready; events from before were delivered to no thread.
            if let Some((connection, streams)) = opened {
                let ready = Readiness { can_read: true, can_write: true, is_read_closed: false };
                (0..streams).for_each(|it| self.connections.on_ready(connection, it, ready));
            }
        }
        self.connections.took_commands();
        self.connections.look_for_arrived();
        self.connections.serve(now);
        self.connections.handle_timeout(now);
        drop(self.connections.take_closed());
        if self.connections.has_news(now) {
            self.reports.push_back(self.connections.take_report());
        }
        let arrivals = self.connections.counters().arrivals();
        std::mem::replace(&mut self.arrivals, arrivals) != arrivals
    }
}
