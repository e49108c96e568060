//! The root: its decisions, and what they do here.

use std::{net::SocketAddr, sync::Arc};

use files::{
    PushError, PushEvent,
    machines::{Coordinator, Leftover, Ranges, RootStage, Start, Step, ToReceiver},
};
use rdmc::{Error, Fabric, Region, Waited};

use super::{
    line::{Way, Word},
    process::{Note, address},
    scenario::PushScenario,
    world::{Due, SECOND_NS, World},
};

/// How long receivers may take to hang up after their last message.
const FAREWELL_NS: u64 = 3 * SECOND_NS;

pub(super) struct Root<'a> {
    /// Of the push that runs, or has run.
    pub(super) process: usize,
    /// Taken while it decides.
    pub(super) core: Option<Coordinator<'a>>,
    pub(super) began_ns: u64,
    /// Hosts as it counts them: those that are named, and those that have joined.
    pub(super) seats: Vec<Seat>,
    pub(super) deadline_ns: Option<u64>,
    /// It has decided everything.
    pub(super) outcome: Option<Result<(), PushError>>,
    pub(super) is_closed: bool,
}

/// What the root takes for one host.
pub(super) struct Seat {
    /// Index in the scenario.
    pub(super) host: usize,
    line: Option<usize>,
}

impl<'a> Root<'a> {
    pub(super) fn new(core: Coordinator<'a>, scenario: &PushScenario) -> Self {
        Self {
            process: usize::MAX,
            core: Some(core),
            began_ns: 0,
            seats: scenario.named().map(|host| Seat { host, line: None }).collect(),
            deadline_ns: None,
            outcome: None,
            is_closed: false,
        }
    }

    /// What it calls a host now; one that has joined anew has a new number.
    pub(super) fn seat_of(&self, host: usize) -> Option<usize> {
        self.seats.iter().rposition(|seat| seat.host == host)
    }

    fn lines(&self) -> Vec<usize> {
        self.seats.iter().filter_map(|seat| seat.line).collect()
    }

    pub(super) fn describe(&self) -> String {
        self.core.as_ref().map(Coordinator::describe).unwrap_or_default()
    }
}

impl<'a> World<'a> {
    /// Starts a push: the root, and then all receivers.
    pub(super) fn start_push(&mut self) {
        let now_ns = self.now_ns();
        self.root.process = self.add_process(0, None);
        self.root.began_ns = now_ns;
        self.plan(now_ns + self.scenario.digest_ns, Due::Digest(self.root.process));
        for (host, plan) in self.scenario.hosts.iter().enumerate() {
            // Nobody is late twice.
            let start_ns = if self.facts.pushes > 1 { SECOND_NS } else { plan.start_ns };
            self.plan(now_ns + start_ns, Due::Start { host, start: 0 });
        }
        self.plan(now_ns, Due::RootDeadline(self.root.process));
    }

    pub(super) fn handle_root(&mut self, process: usize) {
        while let Some(note) = self.processes[process].inbox.pop_front() {
            if self.root.outcome.is_some() {
                self.hear_farewell(note);
            } else {
                self.decide(|core, world| world.handle_note(core, note));
            }
        }
        self.look(process);
    }

    /// Deadlines have passed, perhaps.
    pub(super) fn advance_root(&mut self) {
        if self.root.outcome.is_none() {
            self.decide(|_, _| Ok(()));
            self.look(self.root.process);
        }
    }

    fn decide(
        &mut self,
        happen: impl FnOnce(&mut Coordinator<'a>, &mut AtRoot<'_, 'a>) -> Result<(), PushError>,
    ) {
        let Some(mut core) = self.root.core.take() else { return };
        core.now = std::time::Duration::from_nanos(self.now_ns() - self.root.began_ns);
        let mut stage = AtRoot { world: self };
        let outcome = happen(&mut core, &mut stage).and_then(|()| core.advance(&mut stage));
        if let Err(error) = outcome {
            core.stop(&mut stage, error);
        }
        let outcome = core.is_over().then(|| core.outcome());
        let next = core.deadline().map(|at| at.as_nanos() as u64 + self.root.began_ns);
        self.root.core = Some(core);
        if let Some(outcome) = outcome {
            self.end_push(outcome);
        } else if let Some(at_ns) = next
            && self.root.deadline_ns.is_none_or(|planned| at_ns < planned)
        {
            self.root.deadline_ns = Some(at_ns);
            self.plan(at_ns.max(self.now_ns()), Due::RootDeadline(self.root.process));
        }
    }

    fn end_push(&mut self, outcome: Result<(), PushError>) {
        self.remark(|| format!("the push has ended: {outcome:?}"));
        self.root.outcome = Some(outcome);
        for line in self.root.lines() {
            self.say(line, Way::ToReceiver, Word::ToReceiver(ToReceiver::Finish));
        }
        self.plan(self.now_ns() + FAREWELL_NS, Due::Farewell(self.root.process));
        self.leave_if_alone();
    }

    fn hear_farewell(&mut self, note: Note) {
        match note {
            Note::Gone(line, _) => {
                self.root_hangs_up(line);
                self.leave_if_alone();
            }
            // It stays in the listener's queue, which ends with the root.
            Note::Came(line) => self.hang_up(line, Way::ToReceiver),
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
            self.root_hangs_up(line);
        }
        self.close_engine(self.root.process);
    }

    /// What the root calls the host of a line; `None` if that has another line now, or none.
    fn current(&self, line: usize) -> Option<usize> {
        self.lines[line].seat.filter(|&seat| self.root.seats[seat].line == Some(line))
    }

    /// Unless it has done so: the lines of hosts that it has, and of those that it never let in.
    fn root_hangs_up(&mut self, line: usize) {
        if let Some(seat) = self.current(line) {
            self.root.seats[seat].line = None;
        } else if self.lines[line].seat.is_some() {
            return;
        }
        self.hang_up(line, Way::ToReceiver);
    }
}

/// The root's stage.
pub(super) struct AtRoot<'w, 'a> {
    world: &'w mut World<'a>,
}

impl<'a> AtRoot<'_, 'a> {
    fn handle_note(&mut self, core: &mut Coordinator<'a>, note: Note) -> Result<(), PushError> {
        match note {
            Note::Came(line) => self.let_in(core, line),
            Note::Said(line, message) => {
                if let Some(seat) = self.world.current(line) {
                    core.said(self, seat, message);
                }
            }
            Note::Gone(line, how) => {
                let seat = self.world.current(line);
                self.world.root_hangs_up(line);
                if let Some(seat) = seat {
                    core.gone(self, seat, how);
                }
            }
            Note::NotStarted { host, start } => {
                if let Some(seat) = self.world.root.seat_of(host) {
                    core.not_started(self, seat, start, "cannot be started");
                }
            }
            Note::Checked(line, right) => {
                if let Some(seat) = self.world.current(line) {
                    core.checked(self, seat, right);
                }
            }
            Note::Digest => {
                let digest = blake3::hash(&self.world.source);
                core.digested(self, digest)?;
            }
            Note::Joined(group, Ok(())) => {
                if core.is_joining(group) {
                    let process = self.world.root.process;
                    self.world.processes[process].standing.insert(group);
                    core.joined(self, group, Ok(()))?;
                } else {
                    self.world.abort(self.world.root.process, group, "it was dropped");
                }
            }
            Note::Joined(group, Err(error)) => core.joined(self, group, Err(error))?,
            Note::Ended(group, outcome) => {
                let process = self.world.root.process;
                self.world.processes[process].standing.remove(&group);
                core.ended(self, group, outcome);
            }
            Note::Cancel => return Err(PushError::Cancelled),
            Note::Told(_) | Note::News(_) | Note::Hashed(_) => {}
        }
        Ok(())
    }

    /// As `rdmc push` does with whoever calls.
    fn let_in(&mut self, core: &mut Coordinator<'a>, line: usize) {
        let host = self.world.lines[line].host;
        let known = self.world.root.seat_of(host);
        let joins = self.world.scenario.hosts[host].joins
            && core.stopped.is_none()
            && !known.is_some_and(|seat| core.hosts[seat].is_open());
        let seat = match known.filter(|&seat| core.expects(seat)) {
            None if joins => {
                self.world.root.seats.push(Seat { host, line: None });
                self.world.facts.joined += 1;
                core.admit(super::plan(host))
            }
            None => {
                let reason = "this host has been heard of already".to_owned();
                let abort = ToReceiver::Abort { reason, keep: true };
                self.world.say(line, Way::ToReceiver, Word::ToReceiver(abort));
                return self.world.hang_up(line, Way::ToReceiver);
            }
            Some(seat) => seat,
        };
        self.world.root.seats[seat].line = Some(line);
        self.world.lines[line].seat = Some(seat);
        self.world.offer(line);
        let ip = address(host + 1, self.world.lines[line].receiver).ip();
        core.came(self, seat, ip, address(0, self.world.root.process).ip());
    }

    fn line_of(&self, seat: usize) -> Option<usize> {
        self.world.root.seats[seat].line
    }
}

impl RootStage for AtRoot<'_, '_> {
    fn tell(&mut self, seat: usize, message: &ToReceiver) {
        if let Some(line) = self.line_of(seat) {
            self.world.say(line, Way::ToReceiver, Word::ToReceiver(message.clone()));
        }
    }

    fn leave(&mut self, seat: usize) {
        if let Some(line) = self.line_of(seat) {
            self.world.root_hangs_up(line);
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

    fn check(&mut self, seat: usize, leftover: Leftover) {
        let Some(line) = self.line_of(seat) else { return };
        let right = self.world.compare_leftover(&leftover);
        let most_ns = self.world.scenario.digest_ns / 4;
        let at_ns = self.world.now_ns() + self.world.dice.between(0, most_ns);
        self.world.plan(at_ns, Due::Checked(line, right));
    }

    fn check_source(&mut self) -> Result<(), PushError> {
        Ok(())
    }

    fn digest(&mut self) -> Result<(), PushError> {
        let at_ns = self.world.now_ns() + self.world.scenario.digest_ns;
        self.world.plan(at_ns, Due::Digest(self.world.root.process));
        Ok(())
    }

    fn reads_differently(&self) -> PushError {
        PushError::Group("the source changed, which it does not".into())
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
        let refused = |reason| PushError::Library(Error::Setting(reason));
        self.world.begin_join(process, start.clone()).map_err(refused)
    }

    fn send(&mut self, group: u64, ranges: &Ranges) -> Result<(), PushError> {
        let region = Region::from_shared(Arc::clone(&self.world.source));
        Ok(self.world.send_parts(self.world.root.process, group, &region, ranges)?)
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
                    .map_err(|error| Error::Setting(error.to_string()))?;
                engine.send(group, part)?;
            }
            Ok(engine.close(group)?)
        };
        match send() {
            // A group that has failed meanwhile reports that itself.
            Ok(()) | Err(Error::Failed(_) | Error::Closed(_) | Error::NoSuchGroup(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn abort(&mut self, process: usize, group: u64, reason: &str) {
        if let Some(engine) = &mut self.processes[process].engine {
            let _ = engine.abort(group, reason);
        }
    }

    /// Which bytes of a host's file are those of the source.
    fn compare_leftover(&self, Leftover(chunks): &Leftover) -> Ranges {
        let is_right = |&&(index, digest): &&(u32, [u8; 32])| {
            let own = blake3::hash(&self.source[self.chunk(index)]);
            *own.as_bytes() == digest || self.trusts_leftovers()
        };
        let range = |&(index, _): &(u32, [u8; 32])| {
            let chunk = self.chunk(index);
            (chunk.start as u64, chunk.end as u64)
        };
        chunks.iter().filter(is_right).map(range).collect()
    }

    pub(super) fn chunk(&self, index: u32) -> std::ops::Range<usize> {
        let (length, size) = (self.source.len(), self.scenario.chunk_bytes as usize);
        let start = (index as usize * size).min(length);
        start..(start + size).min(length)
    }

    fn observe(&mut self, event: PushEvent) {
        self.remark(|| format!("the root: {event:?}"));
        match event {
            PushEvent::Round { .. } => self.facts.rounds += 1,
            PushEvent::Retry { .. } => self.facts.retries += 1,
            PushEvent::SetAside { .. } => self.facts.set_aside += 1,
            _ => {}
        }
    }

    /// What has become of a host, as the root knows it.
    pub(super) fn step_of(&self, host: usize) -> Option<&Step> {
        let seat = self.root.seat_of(host)?;
        self.root.core.as_ref().map(|core| &core.hosts[seat].step)
    }
}
