//! Advances virtual time, and executes what machines, threads and connections are due to do.

use files::machines::{FAILURE_DEADLINE, ToRoot, silence};

use super::{
    line::{Way, Word},
    process::Note,
    world::{Due, PROGRESS_NS, SECOND_NS, World},
};
use crate::counts::{Most, Sum as _};

/// A run with more steps does not terminate.
const STEPS_MAX: u64 = 1_000_000;
/// And for each machine more than this many.
const STEPS_OF_MACHINE_MAX: u64 = 20_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

impl World<'_> {
    /// Runs until everything that can end has ended, or a check fails.
    pub(super) fn run_to_end(&mut self) {
        let bound_ns = self.bound_ns();
        let steps_max = STEPS_MAX + STEPS_OF_MACHINE_MAX * u64::from(self.scenario.machines());
        while self.facts.violations.is_empty() && !self.is_over() {
            self.step += 1;
            self.inject_due();
            if !self.advance() && !self.is_over() {
                self.facts
                    .violated(format!("nothing happens any more: {}", self.describe_living()));
            }
            let late_ns = self.now_ns().saturating_sub(self.disturbed_ns);
            if late_ns > bound_ns || self.step > steps_max {
                let (late_s, steps) = (late_ns / SECOND_NS, self.step);
                self.facts.violated(format!(
                    "{late_s} s after the last disturbance, step {steps}: {}",
                    self.describe_living()
                ));
            }
        }
        let late_ns = self.now_ns().saturating_sub(self.disturbed_ns);
        let lateness = late_ns as f64 / bound_ns as f64;
        self.facts.counts.slowest.add(&Most { value: lateness, seed: self.scenario.seed });
    }

    /// Lets connections close.
    pub(super) fn settle(&mut self) {
        while self.network.step().is_some() {}
        // A machine that was stopped for a moment may not have polled yet.
        (0..self.processes.len()).for_each(|process| self.look(process));
    }

    /// Executes the next step. Returns `false` if there is none.
    fn advance(&mut self) -> bool {
        let reporting = match self.agenda.next_ns() {
            Some(at_ns) => self.network.run_until(std::time::Duration::from_nanos(at_ns)),
            None => self.network.step(),
        };
        if let Some(process) = reporting {
            match self.machines[self.processes[process].machine].held_until_ns {
                held_ns if held_ns > self.now_ns() => self.plan(held_ns, Due::Look(process)),
                _ => self.look(process),
            }
            return true;
        }
        let Some((.., due)) = self.agenda.pop() else { return false };
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

    /// Returns the process that executes an event.
    fn doer(&self, due: &Due) -> Option<usize> {
        match due {
            Due::Look(process)
            | Due::Deadline(process)
            | Due::Handle(process)
            | Due::Progress(process)
            | Due::JoinTimeout(process, _)
            | Due::Create(process, _)
            | Due::DiskFails(process)
            | Due::ReadUrl(process)
            | Due::Hashed(process)
            | Due::Stored(process)
            | Due::Digest(process, _)
            | Due::Chunks(process, _)
            | Due::Shared(process)
            | Due::Read(process)
            | Due::Written(process)
            | Due::Looked(process, _)
            | Due::RootDeadline(process)
            | Due::Linger(process) => Some(*process),
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
            Due::Progress(process) => self.report_progress(process),
            Due::Silence(line, way, since_ns) => self.on_silence(line, way, since_ns),
            Due::Release => {
                self.note_silence();
                self.meet();
            }
            Due::JoinTimeout(process, group) => self.time_out_join(process, group),
            Due::Create(process, group) => self.create(process, group),
            Due::DiskFails(process) => self.disk_fails(process),
            Due::ReadUrl(process) => self.read_url(process),
            Due::Hashed(process) => self.hashed(process),
            Due::Stored(process) => self.end_storing(process),
            Due::Checked(line, right) => {
                let root = self.lines[line].root;
                self.note(root, Note::Checked(line, right));
            }
            Due::Digest(process, ranges) => self.note(process, Note::Digest(ranges)),
            Due::Chunks(process, digests) => self.note(process, Note::Chunks(digests)),
            Due::Shared(process) => self.stop_sharing(process),
            Due::Read(process) => self.read_stream(process),
            Due::Written(process) => self.write_stream(process),
            Due::Looked(process, is_same) => self.note(process, Note::Looked(is_same)),
            Due::RootDeadline(process) => {
                if self.root.process == process {
                    self.root.deadline_ns = None;
                    self.advance_root();
                }
            }
            Due::Linger(process) => self.leave(process),
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

    /// Reports a receiver's progress.
    fn report_progress(&mut self, index: usize) {
        let is_over = self.processes[index].is_over;
        let Some(receiver) = self.processes[index].receiver.as_mut().filter(|_| !is_over) else {
            return;
        };
        let written = receiver.stream.written.len() as u64;
        let bytes = receiver.copy.as_ref().map_or(written, |copy| copy.has().bytes());
        let line = receiver.line;
        // Without progress nothing is sent; silence of a line is checked elsewhere.
        if std::mem::replace(&mut receiver.reported_bytes, bytes) != bytes {
            self.send_word(line, Way::ToRoot, Word::ToRoot(ToRoot::Progress { bytes }));
        }
        self.report_work(index);
        self.report_waited(index);
        self.accept_deferred(index);
        if self.scenario.serves {
            self.take_chunks(index);
        }
        self.plan(self.now_ns() + PROGRESS_NS, Due::Progress(index));
    }

    /// Reports each minute for which a copy is digested, if its host does so.
    fn report_work(&mut self, index: usize) {
        let now_ns = self.now_ns();
        let reports = self.host_of(index).faults.reports_work;
        let Some(receiver) = self.processes[index].receiver.as_mut().filter(|_| reports) else {
            return;
        };
        let minutes =
            receiver.hashes_since_ns.map_or(0, |since_ns| (now_ns - since_ns) / MINUTE_NS);
        if std::mem::replace(&mut receiver.reported_minutes, minutes) != minutes {
            let line = receiver.line;
            let worked = ToRoot::Worked { bytes: minutes };
            self.send_word(line, Way::ToRoot, Word::ToRoot(worked));
        }
    }

    /// Returns until when nothing is delivered between two processes.
    pub(super) fn cut_until_ns(&self, one: usize, other: usize) -> u64 {
        self.cut_between_ns(self.processes[one].machine, self.processes[other].machine)
    }

    /// Returns until when nothing is delivered between two machines.
    pub(super) fn cut_between_ns(&self, one: usize, other: usize) -> u64 {
        let parts = |side: &[u32]| side.contains(&(one as u32)) != side.contains(&(other as u32));
        let cuts = self.partitions.iter().filter(|(side, _)| parts(side));
        cuts.map(|&(_, until_ns)| until_ns).max().unwrap_or(0)
    }

    fn is_held(&self, process: usize) -> bool {
        self.machines[self.processes[process].machine].held_until_ns > self.now_ns()
    }

    /// Returns whether both are alive and reach each other.
    pub(super) fn can_talk(&self, one: usize, other: usize) -> bool {
        let is_well = |index: usize| !self.processes[index].is_dead() && !self.is_held(index);
        is_well(one) && is_well(other) && self.cut_until_ns(one, other) <= self.now_ns()
    }

    /// Updates which lines are silent, after something has changed.
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

    fn on_silence(&mut self, index: usize, way: Way, since_ns: u64) {
        self.note_silence();
        let pipe = self.lines[index].pipe(way);
        if !pipe.is_shut && pipe.silent_since_ns == Some(since_ns) {
            pipe.words.clear();
            self.end_pipe(index, way, "nothing was heard of it for 8 s");
        }
    }

    /// Sends a message on a line; it may never arrive.
    pub(super) fn send_word(&mut self, index: usize, way: Way, word: Word) {
        let Some(word) = self.planted(word) else { return };
        if self.options.counts_bytes && self.is_first() {
            self.facts.traffic.add(&word);
        }
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

    /// Delivers the next message of a line, unless something delays it.
    fn deliver(&mut self, index: usize, way: Way) {
        let now_ns = self.now_ns();
        let (writer, reader) = (self.lines[index].writer(way), self.lines[index].reader(way));
        let writer_machine = &self.machines[self.processes[writer].machine];
        let (held_since_ns, held_ns) = (writer_machine.held_since_ns, writer_machine.held_until_ns);
        let cut_ns = self.cut_until_ns(writer, reader);
        let pipe = self.lines[index].pipe(way);
        let Some(&(said_ns, at_ns, _)) = pipe.words.front() else { return };
        // Messages that were sent before still arrive.
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
            Word::ToRoot(ToRoot::Hello(_)) => self.note(reader, Note::Came(index)),
            Word::ToRoot(message) => self.note(reader, Note::Said(index, message)),
            Word::ToReceiver(message) => self.note(reader, Note::FromRoot(Ok(message))),
            Word::End(how) => self.end_pipe(index, way, how),
        }
    }

    /// Reports the end of a line to its reading end.
    pub(super) fn end_pipe(&mut self, index: usize, way: Way, how: &'static str) {
        let reader = self.lines[index].reader(way);
        self.lines[index].pipe(way).is_shut = true;
        if self.processes[reader].is_dead() {
            return;
        }
        match way {
            Way::ToRoot => self.note(reader, Note::Gone(index, how)),
            Way::ToReceiver => self.note(reader, Note::FromRoot(Err(how))),
        }
    }

    /// Closes one end of a line: the other receives what was sent, and then the end.
    pub(super) fn close_end(&mut self, index: usize, from: Way) {
        self.send_word(index, from, Word::End("connection closed"));
        let back = if from == Way::ToRoot { Way::ToReceiver } else { Way::ToRoot };
        let pipe = self.lines[index].pipe(back);
        (pipe.is_shut, pipe.words) = (true, Default::default());
    }

    fn is_over(&self) -> bool {
        self.processes.iter().all(|process| {
            process.is_gone() || self.machines[process.machine].held_until_ns == u64::MAX
        }) && !self.is_start_planned()
    }

    pub(super) fn is_start_planned(&self) -> bool {
        let is_start = |due: &Due| matches!(due, Due::Start { .. });
        !self.root.is_closed && self.agenda.until(u64::MAX).any(is_start)
    }

    fn describe_living(&self) -> String {
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
