//! The root: its decisions, and what they do here.

use std::{net::SocketAddr, sync::Arc};

use files::{
    PushError, PushEvent,
    machines::{Coordinator, Leftover, Ranges, RootStage, Start, Step, ToReceiver},
};
use rdmc::{Error, Fabric, Region};

use super::{
    line::{Way, Word},
    process::{Note, address},
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
    /// The line to each host.
    pub(super) lines: Vec<Option<usize>>,
    pub(super) deadline_ns: Option<u64>,
    /// It has decided everything.
    pub(super) outcome: Option<Result<(), PushError>>,
    pub(super) is_closed: bool,
}

impl<'a> Root<'a> {
    pub(super) fn new(core: Coordinator<'a>, hosts: usize) -> Self {
        Self {
            process: usize::MAX,
            core: Some(core),
            began_ns: 0,
            lines: vec![None; hosts],
            deadline_ns: None,
            outcome: None,
            is_closed: false,
        }
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
        let is_over = core.is_over();
        if let Err(error) = &outcome {
            let reason = match error {
                PushError::Cancelled => "interrupted at the root".to_owned(),
                other => other.to_string(),
            };
            let discards = matches!(error, PushError::Cancelled | PushError::Source(_));
            core.give_up(&mut stage, &reason, discards);
        }
        let next = core.deadline().map(|at| at.as_nanos() as u64 + self.root.began_ns);
        self.root.core = Some(core);
        if outcome.is_err() || is_over {
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
        for line in self.root.lines.clone().into_iter().flatten() {
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
        if self.root.lines.iter().all(Option::is_none) {
            self.leave(self.root.process);
        }
    }

    /// Ends the root's process.
    pub(super) fn close_root(&mut self) {
        self.root.is_closed = true;
        for line in std::mem::take(&mut self.root.lines).into_iter().flatten() {
            self.hang_up(line, Way::ToReceiver);
        }
        self.root.lines = vec![None; self.scenario.hosts.len()];
        self.close_engine(self.root.process);
    }

    /// False if it is not the line to its host any more.
    fn root_hangs_up(&mut self, line: usize) -> bool {
        let host = self.lines[line].host;
        let is_current = self.root.lines[host] == Some(line);
        if is_current {
            self.root.lines[host] = None;
            self.hang_up(line, Way::ToReceiver);
        }
        is_current
    }
}

/// The root's stage.
pub(super) struct AtRoot<'w, 'a> {
    world: &'w mut World<'a>,
}

impl<'a> AtRoot<'_, 'a> {
    fn handle_note(&mut self, core: &mut Coordinator<'a>, note: Note) -> Result<(), PushError> {
        let current = |world: &World<'_>, line: usize| {
            let host = world.lines[line].host;
            (world.root.lines[host] == Some(line)).then_some(host)
        };
        match note {
            Note::Came(line) => {
                let host = self.world.lines[line].host;
                let machine = host + 1;
                if core.expects(host) {
                    self.world.root.lines[host] = Some(line);
                    self.world.offer(line);
                    let process = self.world.lines[line].receiver;
                    let ip = address(machine, process).ip();
                    core.came(self, host, ip, address(0, self.world.root.process).ip());
                } else {
                    let reason = "this host has been heard of already".to_owned();
                    let abort = ToReceiver::Abort { reason, keep: true };
                    self.world.say(line, Way::ToReceiver, Word::ToReceiver(abort));
                    self.world.hang_up(line, Way::ToReceiver);
                }
            }
            Note::Said(line, message) => {
                if let Some(host) = current(self.world, line) {
                    core.said(self, host, message);
                }
            }
            Note::Gone(line, how) => {
                if self.world.root_hangs_up(line) {
                    core.gone(self, self.world.lines[line].host, how);
                }
            }
            Note::NotStarted { host, start } => {
                core.not_started(self, host, start, "cannot be started");
            }
            Note::Checked(line, right) => {
                if let Some(host) = current(self.world, line) {
                    core.checked(self, host, right);
                }
            }
            Note::Digest => core.digested(blake3::hash(&self.world.source)),
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

    fn line_of(&self, host: usize) -> Option<usize> {
        self.world.root.lines[host]
    }
}

impl RootStage for AtRoot<'_, '_> {
    fn tell(&mut self, host: usize, message: &ToReceiver) {
        if let Some(line) = self.line_of(host) {
            self.world.say(line, Way::ToReceiver, Word::ToReceiver(message.clone()));
        }
    }

    fn expect_again(&mut self, host: usize, start: u32) {
        if let Some(line) = self.line_of(host) {
            self.world.root_hangs_up(line);
        }
        let at_ns = self.world.now_ns() + self.world.scenario.hosts[host].start_ns;
        self.world.plan(at_ns, Due::Start { host, start });
    }

    fn observe(&mut self, event: PushEvent) {
        self.world.observe(event);
    }

    fn check(&mut self, host: usize, leftover: Leftover) {
        let Some(line) = self.line_of(host) else { return };
        let right = self.world.compare_leftover(&leftover);
        let most_ns = self.world.scenario.digest_ns / 4;
        let at_ns = self.world.now_ns() + self.world.dice.between(0, most_ns);
        self.world.plan(at_ns, Due::Checked(line, right));
    }

    fn check_source(&mut self) -> Result<(), PushError> {
        Ok(())
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
            engine.close(group)
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
            _ => {}
        }
    }

    /// What has become of a host, as the root knows it.
    pub(super) fn step_of(&self, host: usize) -> Option<&Step> {
        self.root.core.as_ref().map(|core| &core.hosts[host].step)
    }
}
