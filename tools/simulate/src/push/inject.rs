//! The injection of a scenario's faults into machines and connections.

use std::time::Duration;

use transport_sim::Fault as LinkFault;

use super::{
    facts::Injected,
    line::Way,
    process::Note,
    scenario::Fault,
    world::{Due, World},
};

impl World<'_> {
    /// Injects the faults of the current step.
    pub(super) fn inject_due(&mut self) {
        while let Some(planned) = self.scenario.planned_faults.get(self.faults_done) {
            // After the first push no faults are injected.
            if planned.step > self.step || self.facts.pushes > 1 {
                return;
            }
            self.faults_done += 1;
            self.inject(&planned.what);
        }
    }

    fn inject(&mut self, what: &Fault) {
        let now_ns = self.now_ns();
        self.remark(|| format!("step {}: {what:?}", self.step));
        self.facts.faults.push(Injected { at_ns: now_ns, what: what.clone() });
        let over_ns = match what.holds_ns() {
            u64::MAX => now_ns,
            holds_ns => now_ns + holds_ns,
        };
        self.disturbed_ns = self.disturbed_ns.max(over_ns);
        let until_ns = |for_ns: Option<u64>| for_ns.map_or(u64::MAX, |for_ns| now_ns + for_ns);
        match what {
            Fault::Kill { machine, damages } => self.kill_machine(*machine as usize, *damages),
            Fault::Freeze { machine, for_ns } => {
                for process in self.living(*machine) {
                    let lasting = for_ns.map_or(Duration::MAX, Duration::from_nanos);
                    self.network.inject(LinkFault::Stall { member: process, lasting });
                }
                self.hold(*machine as usize, until_ns(*for_ns));
            }
            Fault::Pause { machine, for_ns } => self.hold(*machine as usize, until_ns(*for_ns)),
            Fault::Reset { machines: [one, other] } => {
                for near in self.living(*one) {
                    for far in self.living(*other) {
                        self.network.inject(LinkFault::Reset(near, far));
                    }
                }
            }
            Fault::HangUp { machine } => self.lose_lines(*machine as usize),
            Fault::Partition { machines, for_ns } => {
                let lasting = for_ns.map_or(Duration::MAX, Duration::from_nanos);
                for outside in (0..self.scenario.machines()).filter(|it| !machines.contains(it)) {
                    for one in machines.iter().flat_map(|&machine| self.living(machine)) {
                        for other in self.living(outside) {
                            self.network.inject(LinkFault::Cut { one, other, lasting });
                        }
                    }
                }
                self.partitions.push((machines.clone(), until_ns(*for_ns)));
                self.plan(until_ns(*for_ns), Due::Release);
                self.note_silence();
            }
            Fault::Rate { machine, bytes_per_s } => {
                self.machines[*machine as usize].rate_bytes_per_s = Some(*bytes_per_s);
                for process in self.living(*machine) {
                    self.network.set_port_rate(process, *bytes_per_s);
                }
            }
            Fault::Corrupt { machine } => self.corrupt_byte(*machine as usize),
            Fault::Cancel => {
                let root = self.root.process;
                if !self.processes[root].is_dead() {
                    self.note(root, Note::Cancel);
                }
            }
        }
    }

    /// Returns the processes of a machine that are alive.
    fn living(&self, machine: u32) -> Vec<usize> {
        let processes = self.processes.iter().enumerate();
        let lives = processes.filter(|(_, it)| it.machine == machine as usize && !it.is_dead());
        lives.map(|(index, _)| index).collect()
    }

    fn hold(&mut self, machine: usize, until_ns: u64) {
        let now_ns = self.now_ns();
        let machine = &mut self.machines[machine];
        if machine.held_until_ns <= now_ns {
            machine.held_since_ns = now_ns;
        }
        machine.held_until_ns = until_ns.max(machine.held_until_ns);
        let until_ns = machine.held_until_ns;
        self.plan(until_ns, Due::Release);
        self.note_silence();
    }

    pub(super) fn kill_machine(&mut self, machine: usize, damages: bool) {
        for process in self.living(machine as u32) {
            self.kill(process);
        }
        let (now_ns, disk) = (self.now_ns(), &mut self.machines[machine].disk);
        if !disk.stop(now_ns, damages, &mut self.dice) {
            let facts = &mut self.facts.hosts[machine - 1];
            (facts.has_published, facts.published_ns) = (false, None);
        }
        let length = self.source.len() as u64;
        if let Some(file) = disk.temporary.as_mut().filter(|_| damages) {
            for _ in 0..3 {
                let at = self.dice.below(length) as usize;
                if let Some(byte) = file.bytes.get_mut(at) {
                    *byte ^= 1 << self.dice.below(8);
                }
            }
        }
    }

    fn kill(&mut self, index: usize) {
        self.network.kill(index);
        let process = &mut self.processes[index];
        process.engine = None;
        process.device.iter().for_each(|device| device.clear());
        process.joinings.clear();
        process.inbox.clear();
        let machine = process.machine;
        if let Some(receiver) = &mut process.receiver {
            receiver.members.clear();
            receiver.copy = None;
            let (region, published) = (receiver.region.take(), receiver.keeps == Some(false));
            let disk = &mut self.machines[machine].disk;
            if disk.owner == Some(index) {
                let left = region.filter(|_| !published);
                disk.let_go(left.map(|region| super::receiver::contents(&region)));
            }
        }
        self.end_lines(index);
    }

    /// Ends the lines of a killed process: messages that it has sent may or may not arrive before
    /// the line ends.
    fn end_lines(&mut self, process: usize) {
        let now_ns = self.now_ns();
        for line in 0..self.lines.len() {
            for way in Way::BOTH {
                if self.lines[line].writer(way) == process {
                    let is_lost = self.dice.percent(30);
                    self.processes[process].busy_until_ns = 0;
                    let pipe = self.lines[line].pipe(way);
                    pipe.words.retain(|&(said_ns, ..)| said_ns <= now_ns && !is_lost);
                    self.close_end(line, way);
                }
            }
        }
    }

    /// Ends the control connections of a host; messages in transit are lost.
    fn lose_lines(&mut self, machine: usize) {
        for line in 0..self.lines.len() {
            if self.lines[line].host + 1 == machine {
                for way in Way::BOTH {
                    let pipe = self.lines[line].pipe(way);
                    pipe.words.clear();
                    if !pipe.is_shut {
                        self.end_pipe(line, way, "connection reset");
                    }
                }
            }
        }
    }

    /// Changes one byte that is in place and was not digested yet.
    fn corrupt_byte(&mut self, machine: usize) {
        for index in self.living(machine as u32) {
            let Some(receiver) = &self.processes[index].receiver else { continue };
            if let Some(region) = receiver.stream.arriving() {
                let at = self.dice.below(region.len() as u64) as usize;
                if let Ok(mut lease) = region.write(at..at + 1) {
                    lease[0] ^= 0x10;
                }
            }
            let (Some(region), Some(copy)) = (&receiver.region, &receiver.copy) else { continue };
            let Some((start, end)) = copy.has().iter().last().filter(|_| !receiver.is_hashing)
            else {
                continue;
            };
            let at = self.dice.between(start, end - 1) as usize;
            // Files of a tree that stay are never in memory.
            let stays = |&(start, end): &(u64, u64)| {
                (start..end).contains(&(at as u64)) && receiver.kept.covers((start, end))
            };
            if self.scenario.files().any(|file| stays(&file)) {
                continue;
            }
            // The byte may be leased because it is being sent to a neighbour, which would not
            // protect real memory.
            if let Ok(mut lease) = region.write(at..at + 1) {
                lease[0] ^= 0x10;
            }
        }
    }
}
