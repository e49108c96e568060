//! Runs a push: moves virtual time, and lets machines, threads and connections do what is due.

use std::{collections::BTreeMap, sync::Arc};

use files::{
    PushSettings,
    machines::{Coordinator, FAILURE_DEADLINE, Ranges, ToRoot, silence},
};
use rdmc::Engine;
use transport_sim::SimNet;

use super::{
    PushCanary,
    facts::Facts,
    line::{Line, Way, Word},
    process::{Note, Process, Receiver},
    root::Root,
    scenario::{HostScenario, PushScenario},
};
use crate::{clock::Clock, dice::Dice, node::Node, subject::Options};

/// Sets these choices apart from all others of a seed.
const PURPOSE: u64 = 12;
/// A run that takes more has got into a circle.
const STEPS_MAX: u64 = 1_000_000;
/// How often the root hears from a receiver.
pub(super) const BEAT_NS: u64 = 200_000_000;
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// What is on the agenda. Numbers are those of processes, unless said otherwise.
#[derive(Debug)]
pub(super) enum Due {
    /// A receiver is started, after so many that were lost.
    Start {
        host: usize,
        start: u32,
    },
    /// The engine has something to report.
    Look(usize),
    Deadline(usize),
    /// The thread that decides looks into its inbox.
    Handle(usize),
    /// A word arrives, by line.
    Deliver(usize, Way),
    Beat(usize),
    /// Nothing was heard on a line since then.
    Silence(usize, Way, u64),
    /// A machine goes on, or a partition heals.
    Release,
    JoinTimeout(usize, u64),
    Create(usize, u64),
    Hashed(usize),
    /// What a host has was compared, by line.
    Checked(usize, Ranges),
    Digest(usize),
    RootDeadline(usize),
    /// Last words have had their time.
    Farewell(usize),
}

/// What a machine's disk has.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) temporary: Option<Vec<u8>>,
    /// The process that writes it.
    pub(super) owner: Option<usize>,
    pub(super) published: Option<Vec<u8>>,
}

pub(super) struct Machine {
    pub(super) disk: Disk,
    pub(super) held_since_ns: u64,
    /// Programs do nothing before this; `u64::MAX`: never again.
    pub(super) held_until_ns: u64,
    pub(super) rate_bytes_per_s: Option<u64>,
}

pub(super) struct World<'a> {
    pub(super) scenario: &'a PushScenario,
    pub(super) options: Options<PushCanary>,
    pub(super) network: &'a SimNet,
    pub(super) source: Arc<[u8]>,
    pub(super) machines: Vec<Machine>,
    pub(super) processes: Vec<Process>,
    pub(super) lines: Vec<Line>,
    /// One side of each partition, and until when it lasts.
    pub(super) partitions: Vec<(Vec<u32>, u64)>,
    pub(super) agenda: BTreeMap<(u64, u64), Due>,
    serial: u64,
    pub(super) root: Root<'a>,
    pub(super) facts: Facts,
    pub(super) dice: Dice,
    pub(super) step: u64,
    pub(super) blows_done: usize,
    /// When something from outside has disturbed the run for the last time, as far as is known.
    pub(super) disturbed_ns: u64,
    /// Numbers of groups.
    pub(super) groups_made: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(
        scenario: &'a PushScenario,
        settings: &'a PushSettings,
        options: Options<PushCanary>,
        network: &'a SimNet,
    ) -> Self {
        let source: Arc<[u8]> = scenario.contents().into();
        let machine = |rate_bytes_per_s| Machine {
            disk: Disk::default(),
            held_since_ns: 0,
            held_until_ns: 0,
            rate_bytes_per_s,
        };
        let rates = scenario.hosts.iter().map(|host| host.rate_bytes_per_s);
        let mut machines: Vec<Machine> = std::iter::once(None).chain(rates).map(machine).collect();
        for (host, plan) in scenario.hosts.iter().enumerate() {
            let kept = source.len() * plan.leftover_percent as usize / 100;
            let byte = |(at, &byte): (usize, &u8)| if at < kept { byte } else { !byte };
            machines[host + 1].disk.temporary =
                (kept > 0).then(|| source.iter().enumerate().map(byte).collect());
        }
        Self {
            scenario,
            options,
            network,
            source,
            machines,
            processes: Vec::new(),
            lines: Vec::new(),
            partitions: Vec::new(),
            agenda: BTreeMap::new(),
            serial: 0,
            root: Root::new(Coordinator::new(settings, scenario.bytes), scenario),
            facts: Facts::new(scenario),
            dice: Dice::new(scenario.seed, PURPOSE),
            step: 0,
            blows_done: 0,
            disturbed_ns: 0,
            groups_made: 0,
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.network.now().as_nanos() as u64
    }

    pub(super) fn remark(&self, text: impl FnOnce() -> String) {
        self.network.remark(text);
    }

    pub(super) fn plan(&mut self, at_ns: u64, due: Due) {
        if at_ns < u64::MAX {
            // Of one instant nothing depends on the order, so it is any.
            self.serial += 1;
            let order = self.dice.below(1 << 24) << 32 | self.serial;
            self.agenda.insert((at_ns, order), due);
        }
    }

    pub(super) fn host_of(&self, process: usize) -> &'a HostScenario {
        &self.scenario.hosts[self.processes[process].machine - 1]
    }

    /// Starts a process. Answers its index.
    pub(super) fn add_process(&mut self, machine: usize, receiver: Option<Receiver>) -> usize {
        let (node, watch) = Node::new(self.network.member(), Clock::RIGHT, 0, None);
        let index = self.processes.len();
        if let Some(rate) = self.machines[machine].rate_bytes_per_s {
            self.network.set_port_rate(index, rate);
        }
        self.processes.push(Process {
            machine,
            engine: Some(Engine::new(node)),
            watch,
            joinings: BTreeMap::new(),
            standing: Default::default(),
            inbox: Default::default(),
            looks_ns: None,
            busy_until_ns: 0,
            deadline_ns: None,
            receiver: receiver.map(Box::new),
            is_over: false,
        });
        index
    }

    /// Until everything has ended that ever will, or something is wrong.
    pub(super) fn live(&mut self) {
        while self.facts.violations.is_empty() && !self.is_over() {
            self.step += 1;
            self.do_harm();
            if !self.advance() && !self.is_over() {
                self.facts.violated(format!("nothing happens any more: {}", self.who_lives()));
            }
            let late_ns = self.now_ns().saturating_sub(self.disturbed_ns);
            if late_ns > self.bound_ns() || self.step > STEPS_MAX {
                let (late_s, steps) = (late_ns / SECOND_NS, self.step);
                self.facts.violated(format!(
                    "{late_s} s after the last disturbance, step {steps}: {}",
                    self.who_lives()
                ));
            }
        }
        let late_ns = self.now_ns().saturating_sub(self.disturbed_ns);
        let lateness = late_ns as f64 / self.bound_ns() as f64;
        self.facts.lateness = self.facts.lateness.max(lateness);
    }

    /// Lets connections close.
    pub(super) fn settle(&mut self) {
        while self.network.step().is_some() {}
        // Whoever stood still for a moment may not have looked yet.
        (0..self.processes.len()).for_each(|process| self.look(process));
    }

    /// Lets the next thing happen. False if there is none.
    fn advance(&mut self) -> bool {
        let next = self.agenda.keys().next().copied();
        let reporting = match next {
            Some((at_ns, _)) => self.network.run_until(std::time::Duration::from_nanos(at_ns)),
            None => self.network.step(),
        };
        if let Some(process) = reporting {
            match self.machines[self.processes[process].machine].held_until_ns {
                held_ns if held_ns > self.now_ns() => self.plan(held_ns, Due::Look(process)),
                _ => self.look(process),
            }
            return true;
        }
        let Some(due) = next.and_then(|key| self.agenda.remove(&key)) else { return false };
        let held_ns = self
            .doer(&due)
            .map_or(0, |process| self.machines[self.processes[process].machine].held_until_ns);
        if held_ns > self.now_ns() {
            self.plan(held_ns, due);
        } else {
            self.happen(due);
        }
        true
    }

    /// Whose program does it.
    fn doer(&self, due: &Due) -> Option<usize> {
        match due {
            Due::Look(process)
            | Due::Deadline(process)
            | Due::Handle(process)
            | Due::Beat(process)
            | Due::JoinTimeout(process, _)
            | Due::Create(process, _)
            | Due::Hashed(process)
            | Due::Digest(process)
            | Due::RootDeadline(process)
            | Due::Farewell(process) => Some(*process),
            Due::Deliver(line, way) | Due::Silence(line, way, _) => {
                Some(self.lines[*line].reader(*way))
            }
            Due::Checked(line, _) => Some(self.lines[*line].root),
            Due::Start { .. } | Due::Release => None,
        }
    }

    fn happen(&mut self, due: Due) {
        if self.doer(&due).is_some_and(|process| self.processes[process].is_dead()) {
            return;
        }
        match due {
            Due::Start { host, start } => self.start_receiver(host, start),
            Due::Look(process) => self.look(process),
            Due::Deadline(process) => {
                self.processes[process].deadline_ns = None;
                self.look(process);
            }
            Due::Handle(process) => self.handle(process),
            Due::Deliver(line, way) => self.deliver(line, way),
            Due::Beat(process) => self.beat(process),
            Due::Silence(line, way, since_ns) => self.lose_patience(line, way, since_ns),
            Due::Release => {
                self.note_silence();
                self.meet();
            }
            Due::JoinTimeout(process, round) => self.join_timeout(process, round),
            Due::Create(process, round) => self.create(process, round),
            Due::Hashed(process) => self.hashed(process),
            Due::Checked(line, right) => {
                let root = self.lines[line].root;
                self.note(root, Note::Checked(line, right));
            }
            Due::Digest(process) => self.note(process, Note::Digest),
            Due::RootDeadline(process) => {
                if self.root.process == process {
                    self.root.deadline_ns = None;
                    self.advance_root();
                }
            }
            Due::Farewell(process) => self.leave(process),
        }
    }

    fn handle(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.looks_ns = None;
        if process.busy_until_ns > self.network.now().as_nanos() as u64 {
            self.plan_handling(index);
            return;
        }
        match process.receiver {
            Some(_) => self.handle_receiver(index),
            None => self.handle_root(index),
        }
        self.plan_handling(index);
    }

    /// A receiver says how far it is.
    fn beat(&mut self, index: usize) {
        let is_over = self.processes[index].is_over;
        let Some(receiver) = self.processes[index].receiver.as_mut().filter(|_| !is_over) else {
            return;
        };
        let bytes = receiver.copy.as_ref().map_or(0, |copy| copy.has().bytes());
        let line = receiver.line;
        // Without news only the silence of a line would tell, which is watched elsewhere.
        if std::mem::replace(&mut receiver.told_bytes, bytes) != bytes {
            self.say(line, Way::ToRoot, Word::ToRoot(ToRoot::Progress { bytes }));
        }
        self.tell_waiting(index);
        self.plan(self.now_ns() + BEAT_NS, Due::Beat(index));
    }

    /// Until when nothing passes between two processes.
    pub(super) fn cut_until_ns(&self, one: usize, other: usize) -> u64 {
        self.cut_between_ns(self.processes[one].machine, self.processes[other].machine)
    }

    /// The same for two machines.
    pub(super) fn cut_between_ns(&self, one: usize, other: usize) -> u64 {
        let parts = |side: &[u32]| side.contains(&(one as u32)) != side.contains(&(other as u32));
        let cuts = self.partitions.iter().filter(|(side, _)| parts(side));
        cuts.map(|&(_, until_ns)| until_ns).max().unwrap_or(0)
    }

    fn is_held(&self, process: usize) -> bool {
        self.machines[self.processes[process].machine].held_until_ns > self.now_ns()
    }

    /// Whether both run and reach each other.
    pub(super) fn can_talk(&self, one: usize, other: usize) -> bool {
        let is_well = |index: usize| !self.processes[index].is_dead() && !self.is_held(index);
        is_well(one) && is_well(other) && self.cut_until_ns(one, other) <= self.now_ns()
    }

    /// Looks at which lines nothing passes on, after something has changed.
    pub(super) fn note_silence(&mut self) {
        let now_ns = self.now_ns();
        for index in 0..self.lines.len() {
            for way in Way::BOTH {
                let (writer, reader) =
                    (self.lines[index].writer(way), self.lines[index].reader(way));
                let is_cut = self.cut_until_ns(writer, reader) > now_ns;
                let is_silent = self.is_held(writer) || is_cut;
                let pipe = self.lines[index].pipe(way);
                match (is_silent, pipe.silent_since_ns) {
                    _ if pipe.is_shut => {}
                    (true, None) => {
                        pipe.silent_since_ns = Some(now_ns);
                        let at_ns = now_ns + silence(FAILURE_DEADLINE).as_nanos() as u64;
                        self.plan(at_ns, Due::Silence(index, way, now_ns));
                    }
                    (false, Some(_)) => pipe.silent_since_ns = None,
                    _ => {}
                }
            }
        }
    }

    fn lose_patience(&mut self, index: usize, way: Way, since_ns: u64) {
        self.note_silence();
        let pipe = self.lines[index].pipe(way);
        if !pipe.is_shut && pipe.silent_since_ns == Some(since_ns) {
            pipe.words.clear();
            self.end_pipe(index, way, "nothing was heard of it for 8 s");
        }
    }

    /// Says something on a line; it may arrive never.
    pub(super) fn say(&mut self, index: usize, way: Way, word: Word) {
        let Some(word) = self.planted(word) else { return };
        let (now_ns, scenario) = (self.now_ns(), self.scenario);
        let writer = self.lines[index].writer(way);
        let said_ns = now_ns.max(self.processes[writer].busy_until_ns);
        let late_ns = self.dice.between(0, scenario.word_ns_max) + scenario.network.latency_ns;
        let pipe = self.lines[index].pipe(way);
        if !pipe.is_shut {
            let at_ns = (said_ns + late_ns).max(pipe.last_at_ns);
            pipe.last_at_ns = at_ns;
            pipe.words.push_back((said_ns, at_ns, word));
            self.plan(at_ns, Due::Deliver(index, way));
        }
    }

    /// The next word of a line arrives, unless something holds it up.
    fn deliver(&mut self, index: usize, way: Way) {
        let now_ns = self.now_ns();
        let (writer, reader) = (self.lines[index].writer(way), self.lines[index].reader(way));
        let writer_machine = &self.machines[self.processes[writer].machine];
        let (held_since_ns, held_ns) = (writer_machine.held_since_ns, writer_machine.held_until_ns);
        let cut_ns = self.cut_until_ns(writer, reader);
        let pipe = self.lines[index].pipe(way);
        let Some(&(said_ns, at_ns, _)) = pipe.words.front() else { return };
        // What was said before still arrives.
        let unsaid_ns = if said_ns > held_since_ns { held_ns } else { 0 };
        let until_ns = cut_ns.max(unsaid_ns).max(at_ns);
        if until_ns > now_ns {
            self.plan(until_ns, Due::Deliver(index, way));
        } else if let Some((_, _, word)) = pipe.words.pop_front() {
            self.arrive(index, way, word);
        }
    }

    fn arrive(&mut self, index: usize, way: Way, word: Word) {
        let reader = self.lines[index].reader(way);
        match word {
            Word::ToRoot(ToRoot::Hello { .. }) => self.note(reader, Note::Came(index)),
            Word::ToRoot(message) => self.note(reader, Note::Said(index, message)),
            Word::ToReceiver(message) => self.note(reader, Note::Told(Ok(message))),
            Word::End(how) => self.end_pipe(index, way, how),
        }
    }

    /// The reading end of a line hears that nothing more comes.
    pub(super) fn end_pipe(&mut self, index: usize, way: Way, how: &'static str) {
        let reader = self.lines[index].reader(way);
        self.lines[index].pipe(way).is_shut = true;
        if self.processes[reader].is_dead() {
            return;
        }
        match way {
            Way::ToRoot => self.note(reader, Note::Gone(index, how)),
            Way::ToReceiver => self.note(reader, Note::Told(Err(how))),
        }
    }

    /// One end hangs up: the other hears what was said, and then the end.
    pub(super) fn hang_up(&mut self, index: usize, from: Way) {
        self.say(index, from, Word::End("connection closed"));
        let back = if from == Way::ToRoot { Way::ToReceiver } else { Way::ToRoot };
        let pipe = self.lines[index].pipe(back);
        (pipe.is_shut, pipe.words) = (true, Default::default());
    }

    fn is_over(&self) -> bool {
        self.processes.iter().all(|process| {
            process.is_gone() || self.machines[process.machine].held_until_ns == u64::MAX
        }) && !self.is_somebody_coming()
    }

    fn is_somebody_coming(&self) -> bool {
        let is_start = |due: &Due| matches!(due, Due::Start { .. });
        !self.root.is_closed && self.agenda.values().any(is_start)
    }

    fn who_lives(&self) -> String {
        let living: Vec<String> = self
            .processes
            .iter()
            .enumerate()
            .filter(|(_, process)| !process.is_gone())
            .map(|(index, process)| format!("process {index} on machine {}", process.machine))
            .collect();
        format!("{} have not ended; the root: {}", living.join(", "), self.root.describe())
    }
}
