//! The root: its state machine, and the simulated effects of its decisions.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use files::{
    Changes, HostPlan, PushError, PushEvent, SourceError,
    machines::{
        ChunkDigests, Chunking, Digests, Ranges, RootEffects, RootEvent, SourceChunks, Start, Step,
        ToReceiver, ToRoot, linger_timeout, step,
    },
};
use rdmc::{Error, Fabric, Region, Waited};

use super::{
    canary::PushCanary,
    facts::Injected,
    line::{Way, Word},
    process::{Note, Process, address},
    scenario::Fault,
    seats::Seat,
    settings::name,
    world::{Due, SECOND_NS, World},
};

impl<'a> World<'a> {
    /// Starts a push: the root, and then all receivers.
    pub(super) fn start_push(&mut self) {
        let now_ns = self.now_ns();
        self.root.process = self.add_process(0, None);
        self.root.began_ns = now_ns;
        self.facts.connected_ns.clear();
        if let Some(core) = &mut self.root.core
            && self.options.canary == Some(PushCanary::AwaitsAll)
        {
            core.hosts.wait_for_all();
        }
        // Of a tree only what hosts lack is read, and of a stream nothing twice.
        if self.scenario.stream.is_none() && self.scenario.files.is_empty() {
            let all = [(0, self.scenario.bytes)].into_iter().collect();
            self.plan(now_ns + self.scenario.digest_ns, Due::Digest(self.root.process, all));
        }
        for (host, plan) in self.scenario.hosts.iter().enumerate() {
            // Hosts start late in the first push only.
            let start_ns = if self.facts.pushes > 1 { SECOND_NS } else { plan.start_ns };
            self.plan(now_ns + start_ns, Due::Start { host, start: 0 });
        }
        self.plan(now_ns, Due::RootDeadline(self.root.process));
    }

    pub(super) fn handle_root(&mut self, process: usize) {
        if self.root.outcome.is_none() {
            self.decide(|root| root.next_event());
        }
        while let Some(note) = self.processes[process].inbox.pop_front() {
            self.note_after_end(note);
        }
        self.look(process);
    }

    /// Processes deadlines that have passed.
    pub(super) fn advance_root(&mut self) {
        if self.root.outcome.is_none() {
            self.decide(|_| None);
            self.look(self.root.process);
        }
    }

    /// Passes these events to the state machine, and the time.
    fn decide(&mut self, next: impl FnMut(&mut AtRoot<'_, 'a>) -> Option<RootEvent<usize, ()>>) {
        let Some(mut core) = self.root.core.take() else { return };
        let now = Duration::from_nanos(self.push_ns());
        let mut stage = AtRoot { world: self };
        step(&mut core, &mut stage, now, next);
        let linger = linger_timeout(&core, &stage).unwrap_or_default();
        let is_over = core.is_over() && !self.serves_on();
        let outcome = is_over.then(|| core.outcome());
        let next = core.deadline().map(|at| at.as_nanos() as u64 + self.root.began_ns);
        self.root.core = Some(core);
        if let Some(outcome) = outcome {
            self.end_push(outcome, linger);
        } else if let Some(at_ns) = next
            && self.root.deadline_ns.is_none_or(|planned| at_ns < planned)
        {
            self.root.deadline_ns = Some(at_ns);
            self.plan(at_ns.max(self.now_ns()), Due::RootDeadline(self.root.process));
        }
    }

    /// Whether a server waits for hosts.
    fn serves_on(&mut self) -> bool {
        let stands_still = |machine: usize| self.machines[machine].held_until_ns == u64::MAX;
        let is_left = |process: &Process| {
            process.receiver.is_some() && !process.is_gone() && !stands_still(process.machine)
        };
        let serves = self.scenario.serves
            && (self.is_start_planned()
                || self.processes.iter().any(is_left)
                || !self.root.lines().is_empty());
        if serves {
            self.plan(self.now_ns() + SECOND_NS, Due::RootDeadline(self.root.process));
        }
        serves
    }

    fn end_push(&mut self, outcome: Result<(), PushError>, linger: Duration) {
        self.remark(|| format!("the push has ended: {outcome:?}"));
        self.root.outcome = Some(outcome);
        for line in self.root.lines() {
            self.send_word(line, Way::ToReceiver, Word::ToReceiver(ToReceiver::Finish));
        }
        let until_ns = self.now_ns() + linger.as_nanos() as u64;
        self.plan(until_ns, Due::Linger(self.root.process));
        self.leave_if_alone();
    }

    fn note_after_end(&mut self, note: Note) {
        match note {
            Note::Gone(line, _) => {
                self.close_root_end(line);
                self.leave_if_alone();
            }
            // It stays in the listener's queue until the root ends.
            Note::Came(line) => self.close_end(line, Way::ToReceiver),
            _ => {}
        }
    }

    fn leave_if_alone(&mut self) {
        if self.root.lines().is_empty() {
            self.leave(self.root.process);
        }
    }

    /// Ends the root's process.
    pub(super) fn close_root(&mut self) {
        self.root.is_closed = true;
        for line in self.root.lines() {
            self.close_root_end(line);
        }
        self.close_engine(self.root.process);
    }

    /// Returns the root's number of the host of a line; `None` if that host has another line now,
    /// or none.
    fn current(&self, line: usize) -> Option<usize> {
        self.lines[line].seat.filter(|&seat| self.root.seats[seat].line == Some(line))
    }

    /// Closes the root's end of a line, once, whether or not its host was admitted.
    fn close_root_end(&mut self, line: usize) {
        if let Some(seat) = self.current(line) {
            self.root.seats[seat].line = None;
        } else if self.lines[line].seat.is_some() {
            return;
        }
        self.close_end(line, Way::ToReceiver);
    }
}

fn changed() -> PushError {
    let what = "it was written to".to_owned();
    SourceError::Changed { path: "object".into(), what }.into()
}

fn replaced() -> SourceError {
    let what = "another file has its name".to_owned();
    SourceError::Changed { path: "object".into(), what }
}

/// The root's surroundings, for its state machine.
pub(super) struct AtRoot<'w, 'a> {
    world: &'w mut World<'a>,
}

impl AtRoot<'_, '_> {
    /// Returns the event for a note; `None` if it does not concern the state machine.
    fn next_event(&mut self) -> Option<RootEvent<usize, ()>> {
        let process = self.world.root.process;
        while let Some(note) = self.world.processes[process].inbox.pop_front() {
            if let Some(event) = self.event_of(note) {
                return Some(event);
            }
        }
        None
    }

    fn event_of(&mut self, note: Note) -> Option<RootEvent<usize, ()>> {
        let root = &self.world.root;
        let seat_of_line = |line: usize| self.world.lines[line].seat;
        match note {
            Note::Came(line) => {
                let host = self.world.lines[line].host;
                match self.world.scenario.hosts[host].joins {
                    true => {
                        let shares = self.world.scenario.hosts[host].shares_ns.is_some();
                        let (name, connection) = (name(host), line);
                        Some(RootEvent::JoinRequested { name, shares, connection })
                    }
                    false => Some(RootEvent::Connected(root.seat_of(host)?, line)),
                }
            }
            Note::Said(line, message) => {
                let (host, connection) = (seat_of_line(line)?, line as u64);
                if let ToRoot::Compared { equal: true } = message
                    && root.seats[host].line == Some(line)
                {
                    let (seat, now_ns) = (root.seats[host].host, self.world.push_ns());
                    self.world.facts.hosts[seat].verified_ns = Some(now_ns);
                }
                Some(RootEvent::Message { host, connection, message })
            }
            Note::Gone(line, how) => {
                let Some(host) = seat_of_line(line) else {
                    // The host was not admitted.
                    self.world.close_root_end(line);
                    return None;
                };
                Some(RootEvent::Disconnected { host, connection: line as u64, reason: how.into() })
            }
            Note::NotStarted { host, start } => {
                let (host, reason) = (root.seat_of(host)?, "cannot be started".into());
                Some(RootEvent::HostFailed { host, start, reason })
            }
            Note::Checked(line, right) => {
                let (host, connection) = (seat_of_line(line)?, line as u64);
                Some(RootEvent::Compared { host, connection, matching: Ok(right) })
            }
            Note::Digest(ranges) => Some(RootEvent::Digest(Ok(self.digests(&ranges)))),
            Note::Chunks(digests) => Some(RootEvent::Chunks(Ok(digests))),
            Note::Looked(is_same) => {
                Some(RootEvent::Looked(if is_same { Ok(()) } else { Err(replaced()) }))
            }
            Note::Read(part) => Some(RootEvent::Read(part)),
            Note::Joined(group, outcome) => Some(RootEvent::Joined(group, outcome)),
            Note::Ended(group, outcome) => Some(RootEvent::Ended(group, outcome)),
            Note::Cancel => Some(RootEvent::Cancel),
            Note::FromRoot(_)
            | Note::News(_)
            | Note::Hashed(_)
            | Note::ReadUrl(_)
            | Note::UrlFailed => None,
        }
    }

    /// What reading the source gives: of a tree, of files with a byte in these ranges.
    fn digests(&mut self, ranges: &Ranges) -> Digests {
        let is_again = std::mem::replace(&mut self.world.root.has_read, true);
        let source = &self.world.source;
        if !self.world.scenario.files.is_empty() {
            let is_read = |(start, end): &(u64, u64)| {
                ranges.iter().any(|(from, to)| from < *end && *start < to)
            };
            let digest = |(start, end): (u64, u64)| {
                ((start, end), blake3::hash(&source[start as usize..end as usize]))
            };
            return Digests::Files(
                self.world.scenario.files().filter(is_read).map(digest).collect(),
            );
        }
        let differs = self.world.scenario.source.reads_differently;
        Digests::Whole(match is_again && differs && self.world.is_first() {
            true => blake3::hash(b"another object"),
            false => blake3::hash(source),
        })
    }

    fn line_of(&self, seat: usize) -> Option<usize> {
        self.world.root.seats[seat].line
    }
}

impl RootEffects for AtRoot<'_, '_> {
    /// Index of a line.
    type Connection = usize;
    type Group = ();

    fn accept(
        &mut self,
        seat: usize,
        line: usize,
        _plan: &HostPlan,
        relays_listing: bool,
    ) -> Result<(IpAddr, IpAddr), Error> {
        let (host, now_ns) = (self.world.lines[line].host, self.world.push_ns());
        let is_again = self.world.facts.hosts[host].has_connected;
        if !is_again && !self.world.scenario.hosts[host].joins {
            self.world.facts.connected_ns.push(now_ns);
        }
        self.world.facts.hosts[host].has_connected = true;
        self.world.root.seats[seat].line = Some(line);
        self.world.lines[line].seat = Some(seat);
        self.world.offer(line, relays_listing);
        let ip = address(host + 1, self.world.lines[line].receiver).ip();
        Ok((ip, address(0, self.world.root.process).ip()))
    }

    fn reject(&mut self, line: usize, reason: &str) {
        let abort = ToReceiver::Abort { reason: reason.to_owned(), keep: true };
        self.world.send_word(line, Way::ToReceiver, Word::ToReceiver(abort));
        self.world.close_end(line, Way::ToReceiver);
    }

    fn add_host(&mut self, line: &usize) {
        let host = self.world.lines[*line].host;
        self.world.root.seats.push(Seat { host, line: None });
    }

    fn is_current(&self, seat: usize, line: u64) -> bool {
        self.line_of(seat) == Some(line as usize)
    }

    fn disconnect(&mut self, seat: usize, line: u64) -> bool {
        let is_current = self.is_current(seat, line);
        self.world.close_root_end(line as usize);
        is_current
    }

    fn connected(&self) -> Vec<usize> {
        let seats = &self.world.root.seats;
        (0..seats.len()).filter(|&seat| seats[seat].line.is_some()).collect()
    }

    fn add_group(&mut self, group: u64, (): ()) {
        let process = self.world.root.process;
        self.world.processes[process].standing.insert(group);
    }

    fn discard_group(&mut self, group: u64, (): ()) {
        self.world.abort(self.world.root.process, group, "it was dropped");
    }

    fn remove_group(&mut self, group: u64) {
        let process = self.world.root.process;
        self.world.processes[process].standing.remove(&group);
    }

    fn send_message(&mut self, seat: usize, message: &ToReceiver) {
        if let Some(line) = self.line_of(seat) {
            self.world.send_word(line, Way::ToReceiver, Word::ToReceiver(message.clone()));
        }
    }

    fn send_listing(&mut self, seat: usize) {
        if let Some(line) = self.line_of(seat) {
            self.world.send_listing(line);
        }
    }

    fn finish_connection(&mut self, seat: usize) {
        if let Some(line) = self.line_of(seat) {
            self.world.close_root_end(line);
        }
    }

    fn expect_again(&mut self, seat: usize, start: u32) {
        let host = self.world.root.seats[seat].host;
        let at_ns = self.world.now_ns() + self.world.scenario.hosts[host].start_ns;
        self.world.plan(at_ns, Due::Start { host, start });
    }

    fn observe(&mut self, event: PushEvent) {
        self.world.observe(event);
    }

    fn settle(&self, changes: Changes, _has: &Ranges) -> Changes {
        changes
    }

    fn compare(&mut self, seat: usize, partial: ChunkDigests) {
        let Some(line) = self.line_of(seat) else { return };
        let right = self.world.compare_partial(&partial);
        let most_ns = self.world.scenario.digest_ns / 4;
        let at_ns = self.world.now_ns() + self.world.dice.between(0, most_ns);
        self.world.plan(at_ns, Due::Checked(line, right));
    }

    fn check_source(&mut self) -> Result<(), PushError> {
        let changes_ns = self.world.scenario.source.changes_ns;
        match changes_ns.filter(|_| self.world.is_first()) {
            Some(changes_ns) if self.world.push_ns() >= changes_ns => Err(changed()),
            _ => Ok(()),
        }
    }

    fn digest_source(&mut self, ranges: &Ranges) -> Result<(), PushError> {
        let at_ns = self.world.now_ns() + self.world.scenario.digest_ns;
        self.world.plan(at_ns, Due::Digest(self.world.root.process, ranges.clone()));
        Ok(())
    }

    /// The chunks come one after another.
    fn digest_chunks(&mut self, ranges: &Ranges) -> Result<(), PushError> {
        let (cut, source) = (self.world.cut(), Arc::clone(&self.world.source));
        let chunks: Vec<u32> = ranges.iter().flat_map(|range| cut.chunks_of(range)).collect();
        let each_ns = self.world.scenario.digest_ns / (chunks.len() as u64).max(1);
        for (count, chunk) in (1..).zip(chunks) {
            let (start, end) = cut.range(chunk);
            let digest = *blake3::hash(&source[start as usize..end as usize]).as_bytes();
            let at_ns = self.world.now_ns() + each_ns * count;
            let digests = ChunkDigests(vec![(chunk, digest)]);
            self.world.plan(at_ns, Due::Chunks(self.world.root.process, digests));
        }
        Ok(())
    }

    fn look_at_source(&mut self) -> Result<(), PushError> {
        // A name is looked at at some time between the beginning and the end.
        let most_ns = self.world.scenario.digest_ns / 4;
        let lasts_ns = self.world.dice.between(0, most_ns);
        let seen_ns = self.world.push_ns() + self.world.dice.between(0, lasts_ns);
        let is_same = !self.world.looks() || !self.world.is_replaced(seen_ns);
        let at_ns = self.world.now_ns() + lasts_ns;
        self.world.plan(at_ns, Due::Looked(self.world.root.process, is_same));
        Ok(())
    }

    fn source_differs(&self) -> PushError {
        changed()
    }

    fn start_fabric(&mut self, common: &dyn Fn(&Fabric) -> bool) -> Result<Fabric, PushError> {
        if !common(&Fabric::Tcp) {
            self.world.facts.violated("there is no fabric that all hosts have");
        }
        Ok(Fabric::Tcp)
    }

    fn address(&self) -> SocketAddr {
        address(0, self.world.root.process)
    }

    fn group_number(&mut self) -> Result<u64, PushError> {
        self.world.groups_made += 1;
        Ok(self.world.groups_made)
    }

    fn join(&mut self, start: &Start) -> Result<(), PushError> {
        let process = self.world.root.process;
        let refused = PushError::Setting;
        self.world.begin_join(process, start.clone()).map_err(refused)
    }

    fn send_ranges(&mut self, group: u64, ranges: &Ranges) -> Result<(), PushError> {
        let process = self.world.root.process;
        if self.world.scenario.serves {
            self.world.send_in_link(process, group, ranges);
            return Ok(());
        }
        if ranges.is_empty() {
            let listing = Region::from_vec(self.world.scenario.listing());
            let all = [(0, listing.len() as u64)].into_iter().collect();
            return Ok(self.world.send_parts(process, group, &listing, &all)?);
        }
        let region = Region::from_shared(Arc::clone(&self.world.source));
        Ok(self.world.send_parts(process, group, &region, ranges)?)
    }

    fn read(&mut self) {
        self.world.begin_read();
    }

    fn send_region(&mut self, group: u64, region: &Region) -> Result<(), PushError> {
        let engine = self.world.processes[self.world.root.process].engine.as_mut();
        match engine.map(|engine| engine.send(group, region.clone())) {
            // One that has failed in the meantime reports that itself.
            None
            | Some(
                Ok(_)
                | Err(
                    engine::Error::Failed(_)
                    | engine::Error::Closed(_)
                    | engine::Error::NoSuchGroup(_),
                ),
            ) => Ok(()),
            Some(Err(error)) => Err(Error::from(error).into()),
        }
    }

    fn close(&mut self, group: u64) {
        if let Some(engine) = &mut self.world.processes[self.world.root.process].engine {
            // One that has failed reports that itself.
            let _ = engine.close(group);
        }
    }

    fn waited(&mut self, group: u64) -> Vec<Waited> {
        let engine = self.world.processes[self.world.root.process].engine.as_mut();
        let all = engine.map(|engine| engine.waited()).unwrap_or_default();
        all.into_iter().find(|(of, _)| *of == group).map(|(_, waited)| waited).unwrap_or_default()
    }

    fn abort(&mut self, group: u64, reason: &str) {
        let process = self.world.root.process;
        if self.world.processes[process].standing.remove(&group) {
            self.world.abort(process, group, reason);
        }
    }
}

impl World<'_> {
    /// Returns whether a second writer has replaced the source by this time since the push began.
    pub(super) fn is_replaced(&self, push_ns: u64) -> bool {
        let replaced_ns = self.scenario.source.replaced_ns.filter(|_| self.is_first());
        replaced_ns.is_some_and(|at_ns| at_ns <= push_ns)
    }

    /// Sends each range as a message, and closes the group.
    pub(super) fn send_parts(
        &mut self,
        process: usize,
        group: u64,
        region: &Region,
        ranges: &Ranges,
    ) -> Result<(), Error> {
        let Some(engine) = &mut self.processes[process].engine else { return Ok(()) };
        let mut send = || {
            for (start, end) in ranges.iter() {
                let part = region
                    .slice(start as usize..end as usize)
                    .map_err(|error| Error::Transport(error.to_string()))?;
                engine.send(group, part)?;
            }
            Ok(engine.close(group)?)
        };
        match send() {
            // A group that has failed in the meantime reports that itself.
            Ok(()) | Err(Error::Failed(_) | Error::Closed(_) | Error::NoSuchGroup(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn abort(&mut self, process: usize, group: u64, reason: &str) {
        if let Some(engine) = &mut self.processes[process].engine {
            let _ = engine.abort(group, reason);
        }
    }

    /// Returns which bytes of a host's file equal the source's.
    fn compare_partial(&self, partial: &ChunkDigests) -> Ranges {
        let cut = self.cut();
        if self.trusts_leftovers() {
            return partial.0.iter().map(|&(index, _)| cut.range(index)).collect();
        }
        let digest = |(start, end)| Ok(blake3::hash(&self.source[start as usize..end as usize]));
        SourceChunks::with_chunking(cut).matching(partial, digest).unwrap_or_default()
    }

    /// Chunks are shorter than those of large files.
    pub(super) fn cut(&self) -> Chunking {
        Chunking { bytes: self.source.len() as u64, chunk_bytes: self.scenario.chunk_bytes }
    }

    fn observe(&mut self, event: PushEvent) {
        self.remark(|| format!("the root: {event:?}"));
        match event {
            PushEvent::Round { .. } => {
                self.facts.counts.rounds += 1;
                let now_ns = self.push_ns();
                self.facts.first_round_ns.get_or_insert(now_ns);
            }
            PushEvent::Retry { .. } => self.facts.counts.retries += 1,
            PushEvent::Deferred { .. } => self.facts.counts.deferred += 1,
            PushEvent::Joined { .. } => self.facts.counts.joined += 1,
            PushEvent::Altered { host, at } => {
                self.facts.counts.altered += 1;
                let is_corrupt = |done: &Injected| matches!(done.what, Fault::Corrupt { .. });
                let lies = self.scenario.hosts.iter().any(|host| host.faults.lies);
                if !lies && !self.facts.faults.iter().any(is_corrupt) {
                    let what = format!("host {host} got other bytes at {at}, and none was changed");
                    self.facts.violated(what);
                }
            }
            _ => {}
        }
    }

    /// Returns a host's state at the root.
    pub(super) fn step_of(&self, host: usize) -> Option<&Step> {
        let seat = self.root.seat_of(host)?;
        self.root.core.as_ref().map(|core| &core.hosts[seat].step)
    }
}
