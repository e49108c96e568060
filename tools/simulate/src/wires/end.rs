//! One end: a transport without sockets, and the applications that use it.

use std::{cell::RefCell, rc::Rc, time::Duration};

use transport::{Completion, EndpointId};
use transport_tcp::{ConnectionId, NewStream, SharedEvent};

use super::{
    application::{Application, Here, Phase},
    canary::WireCanary,
    facts::{ChannelEnd, Facts},
    pipe::{Pipe, Wire},
    scenario::WireScenario,
    threads::Threads,
};
use crate::dice::Dice;

/// First bytes of messages; a number of 4 bytes follows, and a channel or anything.
const ASK: u8 = 0;
const ACCEPT: u8 = 1;
const REFUSE: u8 = 2;
const PLANNED: u8 = 3;

/// How often one poll serves what is ready at most.
const ROUNDS_MAX: usize = 20;

/// What a poll has brought up for others to do.
#[derive(Debug)]
pub(super) enum Brought {
    /// The other end asks for a channel.
    Asked { connection: usize, channel: usize },
    /// A channel has ended.
    Ended { connection: usize, channel: usize, end: ChannelEnd },
}

/// A connection at this end.
struct Link {
    id: ConnectionId,
    wires: Vec<Rc<RefCell<Wire>>>,
    has_ended: bool,
    /// It was without channels for too long.
    was_idle: bool,
    messages_sent: u32,
    messages_heard: u32,
    opened_ns: u64,
    /// When it is watched at the latest.
    watched_ns: u64,
}

/// One end.
pub(super) struct End<'a> {
    number: usize,
    scenario: &'a WireScenario,
    /// `None` once its process has died.
    connections: Option<Threads>,
    links: Vec<Option<Link>>,
    pub(super) applications: Vec<Application<'a>>,
    /// Channels that are reserved: connection, channel, endpoint.
    reserved: Vec<(usize, usize, EndpointId)>,
    /// What polls have brought up.
    pub(super) brought: Vec<Brought>,
    pub(super) canary: Option<WireCanary>,
}

impl<'a> End<'a> {
    pub(super) fn new(
        number: usize,
        scenario: &'a WireScenario,
        canary: Option<WireCanary>,
    ) -> Self {
        let delay_ns_max = scenario.ends[number].poll_delay_ns_max;
        let mut connections = Threads::new(&scenario.settings(number), delay_ns_max);
        if canary == Some(WireCanary::TakesCommandsLate) {
            connections.take_commands_late();
        }
        Self {
            number,
            scenario,
            connections: Some(connections),
            links: scenario.connections.iter().map(|_| None).collect(),
            applications: Vec::new(),
            reserved: Vec::new(),
            brought: Vec::new(),
            canary,
        }
    }

    pub(super) fn lives(&self) -> bool {
        self.connections.is_some()
    }

    /// Begins to use a connection.
    pub(super) fn connect(
        &mut self,
        connection: usize,
        pipes: Vec<Pipe>,
        wires: &[Rc<RefCell<Wire>>],
        facts: &mut Facts<'_>,
    ) {
        let Some(connections) = &mut self.connections else { return };
        let plan = &self.scenario.connections[connection];
        let is_open = self.canary == Some(WireCanary::LeavesUnprotected);
        let streams = pipes.into_iter().enumerate().map(|(stream, bytes)| {
            let keys = plan.keys(connection, stream, self.number).filter(|_| !is_open);
            NewStream { bytes, keys, copies_directly: false }
        });
        let (streams, now) = (streams.collect(), Duration::from_nanos(facts.now_ns));
        let (id, endpoint) = connections.connect(plan.is_shared, streams, now);
        self.links[connection] = Some(Link {
            id,
            wires: wires.to_vec(),
            has_ended: false,
            was_idle: false,
            messages_sent: 0,
            messages_heard: 0,
            opened_ns: facts.now_ns,
            watched_ns: facts.now_ns,
        });
        if let Some(endpoint) = endpoint {
            self.begin(connection, 0, endpoint, facts);
        }
    }

    fn begin(
        &mut self,
        connection: usize,
        channel: usize,
        endpoint: EndpointId,
        facts: &mut Facts<'_>,
    ) {
        let Some(connections) = &mut self.connections else { return };
        let plan = &self.scenario.connections[connection];
        let at = (connection, channel, self.number);
        facts.note(|| format!("{at:?} opens"));
        let mut application = Application::new(&plan.channels[channel], at, plan.streams, endpoint);
        application.begin(&mut Here { connections, facts, canary: self.canary });
        self.applications.push(application);
    }

    /// Asks for a channel.
    pub(super) fn ask(&mut self, connection: usize, channel: usize, facts: &mut Facts<'_>) {
        if self.reserve(connection, channel, facts) {
            self.send(connection, ASK, channel as u32, 9, facts);
        }
    }

    /// Reserves a channel. Returns false if the connection is lost.
    fn reserve(&mut self, connection: usize, channel: usize, facts: &mut Facts<'_>) -> bool {
        let (Some(connections), Some(link)) = (&mut self.connections, &self.links[connection])
        else {
            return false;
        };
        match connections.reserve(link.id, channel as u32 + 1) {
            Ok(endpoint) => self.reserved.push((connection, channel, endpoint)),
            // Its end may not have been reported yet.
            Err(_) if link.has_ended || facts.disturbed[connection].may_fail => return false,
            Err(_) if !self.scenario.drains() => return false,
            Err(error) => {
                facts.violated(format!("channel {channel} of {connection}: {error}"));
                return false;
            }
        }
        true
    }

    /// Answers a request for a channel.
    pub(super) fn answer(&mut self, connection: usize, channel: usize, facts: &mut Facts<'_>) {
        if self.scenario.connections[connection].channels[channel].is_refused {
            self.release(connection, channel, facts);
            self.send(connection, REFUSE, channel as u32, 9, facts);
        } else {
            self.send(connection, ACCEPT, channel as u32, 9, facts);
            self.open_reserved(connection, channel, facts);
        }
    }

    fn take_reserved(&mut self, connection: usize, channel: usize) -> Option<EndpointId> {
        let is_it =
            |&(of, number, _): &(usize, usize, EndpointId)| of == connection && number == channel;
        let at = self.reserved.iter().position(is_it)?;
        Some(self.reserved.remove(at).2)
    }

    fn release(&mut self, connection: usize, channel: usize, facts: &Facts<'_>) {
        let reserved = self.take_reserved(connection, channel);
        if let (Some(endpoint), Some(connections)) = (reserved, &mut self.connections) {
            connections.release(endpoint, Duration::from_nanos(facts.now_ns));
        }
    }

    fn open_reserved(&mut self, connection: usize, channel: usize, facts: &mut Facts<'_>) {
        let Some(endpoint) = self.take_reserved(connection, channel) else { return };
        let Some(connections) = &mut self.connections else { return };
        match connections.open_reserved(endpoint) {
            Ok(()) => self.begin(connection, channel, endpoint, facts),
            // Too much has come for it.
            Err(_) if facts.may_differ(connection) => {}
            Err(error) => facts.violated(format!("channel {channel} of {connection}: {error}")),
        }
    }

    /// Sends a message of a plan.
    pub(super) fn send_planned(
        &mut self,
        connection: usize,
        message: usize,
        facts: &mut Facts<'_>,
    ) {
        let plan = self.scenario.connections[connection].messages[message];
        self.send(connection, PLANNED, message as u32, plan.bytes, facts);
    }

    fn send(
        &mut self,
        connection: usize,
        tag: u8,
        number: u32,
        bytes: usize,
        facts: &mut Facts<'_>,
    ) {
        let (Some(connections), Some(link)) = (&mut self.connections, &mut self.links[connection])
        else {
            return;
        };
        let message = message(tag, link.messages_sent, number, bytes);
        let now = Duration::from_nanos(facts.now_ns);
        if connections.write_message(link.id, &message, now).is_ok() {
            link.messages_sent += 1;
        }
    }

    /// Ends a channel although it is not done; all of a connection without one.
    pub(super) fn close(&mut self, connection: Option<(usize, usize)>, facts: &mut Facts<'_>) {
        let Some(connections) = &mut self.connections else { return };
        let mut here = Here { connections, facts, canary: self.canary };
        for application in &mut self.applications {
            let (of, channel, _) = application.at;
            if connection.is_none_or(|it| it == (of, channel)) {
                application.close(&mut here);
            }
        }
    }

    /// Gives up what was asked for where what was said may have come altered: whoever asks has a time limit (the creation of a
    /// group, docs/decisions/creation.md). Elsewhere every request is answered.
    pub(super) fn give_up_requests(&mut self, facts: &Facts<'_>) {
        let waiting: Vec<(usize, usize)> = (self.reserved.iter())
            .map(|&(connection, channel, _)| (connection, channel))
            .filter(|&(connection, _)| facts.may_differ(connection))
            .collect();
        for (connection, channel) in waiting {
            self.release(connection, channel, facts);
        }
    }

    pub(super) fn break_off(&mut self, connection: usize) {
        let Some(connections) = &mut self.connections else { return };
        let mut of_it = self.applications.iter().filter(|it| it.at.0 == connection);
        if let Some(application) = of_it.find(|it| it.phase != Phase::Ended) {
            let cause = transport::Cause::Lost("as was planned".into());
            connections.break_off(application.endpoint, &cause);
        }
    }

    /// Drops everything, as the system does with a process that has died.
    pub(super) fn die(&mut self) {
        self.connections = None;
        self.links.iter_mut().flatten().for_each(|link| link.has_ended = true);
    }

    /// Returns when it has to be polled at the latest.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        let connections = self.connections.as_ref()?;
        if connections.is_ready() {
            return Some(0);
        }
        connections.poll_timeout()
    }

    /// Returns whether something has changed for its streams.
    pub(super) fn has_news(&self) -> bool {
        let links = self.links.iter().flatten().filter(|link| !link.has_ended);
        links.flat_map(|link| &link.wires).any(|wire| wire.borrow().has_news(self.number))
    }

    /// Moves bytes, handles timers, and lets applications act. Returns whether applications have
    /// more to do.
    pub(super) fn poll(&mut self, facts: &mut Facts<'_>) -> bool {
        let now = Duration::from_nanos(facts.now_ns);
        if self.canary == Some(WireCanary::TellsLate)
            && let Some(connections) = &mut self.connections
        {
            connections.handle_timeout(now);
        }
        self.tell();
        if let Some(connections) = &mut self.connections {
            connections.take_turns(facts.now_ns, &mut facts.dice);
        }
        for _ in 0..ROUNDS_MAX {
            let Some(connections) = &mut self.connections else { return false };
            connections.serve(now, self.canary != Some(WireCanary::MissesTimeouts));
            let (mut completions, events) = connections.take_report(now, &mut facts.dice);
            let is_ready = connections.is_ready();
            if completions.is_empty() && events.is_empty() && !is_ready {
                break;
            }
            self.flaw(&mut completions, &mut facts.dice);
            for completion in completions {
                self.complete(completion, facts);
            }
            for event in events {
                self.happen(event, facts);
            }
        }
        let has_more = self.work(facts);
        if let Some(connections) = &mut self.connections {
            connections.plan_turns(facts.now_ns, &mut facts.dice);
        }
        has_more
    }

    /// Tells the connections what has changed for their streams.
    fn tell(&mut self) {
        let Some(connections) = &mut self.connections else { return };
        for link in self.links.iter().flatten().filter(|link| !link.has_ended) {
            for (stream, wire) in link.wires.iter().enumerate() {
                let news = wire.borrow_mut().take_news(self.number);
                let streams = link.wires.len();
                news.into_iter().for_each(|it| connections.on_ready(link.id, stream, streams, it));
            }
        }
    }

    /// Plants bugs in what is reported.
    fn flaw(&self, completions: &mut Vec<Completion>, dice: &mut Dice) {
        let Some(canary) = self.canary else { return };
        let is_end =
            |it: &Completion| matches!(it, Completion::Closed { .. } | Completion::Broken { .. });
        let is_post = |it: &Completion| {
            matches!(
                it,
                Completion::Sent { .. }
                    | Completion::Received { .. }
                    | Completion::Cancelled { .. }
            )
        };
        match canary {
            WireCanary::LosesCompletion => {
                completions.retain(|it| !is_post(it) || !dice.percent(5))
            }
            WireCanary::CompletesTwice => {
                let twice = completions.iter().position(|it| is_post(it) && dice.percent(5));
                twice.into_iter().for_each(|at| completions.insert(at, completions[at].clone()));
            }
            WireCanary::MissesEnds => completions.retain(|it| !is_end(it) || !dice.percent(20)),
            WireCanary::ReordersWords => {
                let are_words = |pair: &[Completion]| {
                    let is_word = |it: &Completion| matches!(it, Completion::Control { .. });
                    is_word(&pair[0])
                        && is_word(&pair[1])
                        && pair[0].endpoint() == pair[1].endpoint()
                };
                if let Some(at) = completions.windows(2).position(are_words) {
                    completions.swap(at, at + 1);
                }
            }
            _ => {}
        }
    }

    fn complete(&mut self, completion: Completion, facts: &mut Facts<'_>) {
        let endpoint = completion.endpoint();
        let application = self.applications.iter_mut().find(|it| it.endpoint == endpoint);
        let Some(application) = application else {
            facts.violated(format!("{completion:?}, and nothing was opened"));
            return;
        };
        let Some(end) = application.complete(completion, facts) else { return };
        let (connection, channel, _) = application.at;
        if let ChannelEnd::Broken(transport::Cause::Silent(_)) = end {
            self.check_silent(connection, facts);
        }
        if !self.scenario.connections[connection].is_shared
            && let Some(link) = &mut self.links[connection]
        {
            link.has_ended = true;
        }
        self.brought.push(Brought::Ended { connection, channel, end });
    }

    /// A thread of the end that may not have begun to watch what was just opened, or wait for the receive of what it has just
    /// read, goes on with it when the end does.
    pub(super) fn stop(&mut self, until_ns: u64, now_ns: u64) {
        let telling_ns = self.scenario.ends[self.number].telling_ns();
        for link in self.links.iter_mut().flatten() {
            let read_ns =
                link.wires.iter().map(|it| it.borrow().lines[1 - self.number].last_read_ns);
            if read_ns.max().unwrap_or(0).max(link.opened_ns) + telling_ns > now_ns {
                link.watched_ns = until_ns;
            }
        }
    }

    /// Checks that a peer that was found to be silent is.
    fn check_silent(&self, connection: usize, facts: &mut Facts<'_>) {
        let Some(link) = &self.links[connection] else { return };
        let plan = &self.scenario.ends[self.number];
        let (silence_ns, telling_ns) = (plan.silence_ms * 1_000_000, plan.telling_ns());
        // A short part of a record is no sign of life.
        let was_silent = facts.may_keep_parts(connection)
            || (link.quiet_ns(self.number, facts.now_ns, link.opened_ns, telling_ns))
                .any(|quiet_ns| quiet_ns >= silence_ns);
        if !was_silent {
            facts.violated(format!(
                "end {}, connection {connection}: nobody was silent",
                self.number
            ));
        }
    }

    fn happen(&mut self, event: SharedEvent, facts: &mut Facts<'_>) {
        let of = match &event {
            SharedEvent::Message { connection, .. } | SharedEvent::Ended { connection, .. } => {
                *connection
            }
        };
        let is_it = |link: &Option<Link>| link.as_ref().is_some_and(|link| link.id == of);
        let Some(connection) = self.links.iter().position(is_it) else { return };
        let Some(link) = &mut self.links[connection] else { return };
        match event {
            SharedEvent::Message { message, .. } => {
                let number = link.messages_heard;
                link.messages_heard += 1;
                self.hear(connection, number, &message, facts);
            }
            SharedEvent::Ended { cause, .. } => {
                facts.note(|| format!("end {}: connection {connection}: {cause:?}", self.number));
                (link.has_ended, link.was_idle) = (true, cause.is_none());
                if let Some(transport::Cause::Silent(_)) = cause {
                    self.check_silent(connection, facts);
                }
                let reserved: Vec<usize> = (self.reserved.iter())
                    .filter(|it| it.0 == connection)
                    .map(|&(_, channel, _)| channel)
                    .collect();
                for channel in reserved {
                    // What is opened now is told of its end.
                    if facts.dice.percent(50) {
                        self.open_reserved(connection, channel, facts);
                    } else {
                        self.release(connection, channel, facts);
                    }
                }
            }
        }
    }

    fn hear(&mut self, connection: usize, number: u32, heard: &[u8], facts: &mut Facts<'_>) {
        facts.counts.messages += 1;
        facts.digest(&[6, self.number as u64, u64::from(heard[0]), u64::from(number)]);
        let about =
            heard.get(5..9).map_or(0, |it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
        let is_planned = heard[0] == PLANNED;
        let bytes = if is_planned { heard.len() } else { 9 };
        let channel = about as usize;
        let is_right = heard == message(heard[0], number, about, bytes);
        if facts.may_differ(connection) {
            // What the message asks for may not be what was planned.
            let channels = self.scenario.connections[connection].channels.len();
            if !is_right || (!is_planned && channel >= channels) {
                return;
            }
        } else if !is_right {
            facts.violated(format!(
                "message {number} of connection {connection}: {:02x?}",
                &heard[..5]
            ));
        }
        match heard[0] {
            ASK if self.reserve(connection, channel, facts) => {
                self.brought.push(Brought::Asked { connection, channel });
            }
            ACCEPT => self.open_reserved(connection, channel, facts),
            REFUSE => self.release(connection, channel, facts),
            _ => {}
        }
    }

    /// Lets applications act. Returns whether they have more to do.
    fn work(&mut self, facts: &mut Facts<'_>) -> bool {
        let Some(connections) = &mut self.connections else { return false };
        let mut here = Here { connections, facts, canary: self.canary };
        let mut has_more = false;
        for application in &mut self.applications {
            has_more |= application.work(&mut here);
            if application.phase == Phase::Open && application.is_done() {
                application.close(&mut here);
            }
        }
        has_more | here.connections.is_ready()
    }

    /// Returns whether a connection has ended here with all its channels, some of which may have been opened later, or never began.
    pub(super) fn has_ended(&self, connection: usize) -> bool {
        let mut of_it = self.applications.iter().filter(|it| it.at.0 == connection);
        self.links[connection].as_ref().is_none_or(|link| link.has_ended)
            && of_it.all(|it| it.phase == Phase::Ended)
    }

    pub(super) fn was_idle(&self, connection: usize) -> bool {
        let ends = |link: &Link| {
            self.connections.as_ref().is_some_and(|connections| connections.was_idle(link.id))
        };
        self.links[connection].as_ref().is_some_and(|link| link.was_idle || ends(link))
    }

    /// Returns the application of a channel.
    pub(super) fn application(
        &self,
        connection: usize,
        channel: usize,
    ) -> Option<&Application<'a>> {
        let mut all = self.applications.iter();
        all.find(|it| (it.at.0, it.at.1) == (connection, channel))
    }

    /// Checks, after a poll, that every silent peer was found to be. `peer_closes`: those connections of one endpoint whose other
    /// end has begun to close.
    pub(super) fn check_quiet(&self, peer_closes: &[bool], facts: &mut Facts<'_>) {
        let plan = &self.scenario.ends[self.number];
        // Timers share wake-ups, eight in each heartbeat interval.
        let (silence_ns, delay_ns) = (plan.silence_ms * 1_000_000, plan.poll_delay_ns_max);
        let turn_ns = self.scenario.turn_ns(plan);
        let latest_ns = silence_ns + silence_ns / 32 + delay_ns + turn_ns + 1_000;
        if self.connections.as_ref().is_some_and(|it| it.have_turns(facts.now_ns)) {
            return;
        }
        for (connection, link) in self.links.iter().enumerate() {
            let Some(link) = link.as_ref().filter(|link| !link.has_ended) else { continue };
            // A close has a deadline of its own, and nothing follows the byes of an only endpoint.
            let is_shared = self.scenario.connections[connection].is_shared;
            let is_open =
                |it: &Application<'_>| it.phase == Phase::Open && !peer_closes[connection];
            if !is_shared && !self.application(connection, 0).is_some_and(is_open) {
                continue;
            }
            let mut quiet = link.quiet_ns(self.number, facts.now_ns, link.watched_ns, 0);
            if let Some(quiet_ns) = quiet.find(|&it| it > latest_ns) {
                facts.violated(format!(
                    "end {}, connection {connection}: silent for {quiet_ns} ns, and nobody has noticed",
                    self.number
                ));
            }
        }
    }
}

impl Link {
    /// Returns for how long nothing was read, since `since_ns` at most, on each stream that has had nothing to read, but for what
    /// came in the last `lately_ns`.
    fn quiet_ns(
        &self,
        end: usize,
        now_ns: u64,
        since_ns: u64,
        lately_ns: u64,
    ) -> impl Iterator<Item = u64> {
        self.wires.iter().filter_map(move |wire| {
            let wire = wire.borrow();
            let line = &wire.lines[1 - end];
            (!line.was_readable(now_ns.saturating_sub(lately_ns)))
                .then(|| now_ns - line.last_read_ns.max(since_ns))
        })
    }
}

/// Returns a message.
fn message(tag: u8, number: u32, about: u32, bytes: usize) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend(number.to_le_bytes());
    message.extend(about.to_le_bytes());
    message.extend((0..bytes.saturating_sub(9)).map(|at| (at * 7 + number as usize) as u8));
    message
}
