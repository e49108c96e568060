//! The state of a run.

use std::sync::Arc;

use engine::{Engine, jobs::Disks};
use files::{
    PushSettings,
    machines::{ChunkDigests, Ranges},
};
use transport_sim::SimNet;

use super::{
    canary::PushCanary,
    disk::{Disk, File},
    facts::Facts,
    line::{Line, Way},
    process::{Process, Receiver},
    scenario::{HostScenario, PushScenario},
    seats::Root,
    settings::root_machine,
    storage::Device,
};
use crate::{clock::Clock, dice::Dice, node::Node, queue::Queue, subject::Options};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 12;
/// How often a receiver reports to the root.
pub(super) const PROGRESS_NS: u64 = 200_000_000;
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// Scheduled events. Numbers are indices of processes, unless stated otherwise.
#[derive(Debug)]
pub(super) enum Due {
    /// A receiver is started; `start` counts earlier starts.
    Start {
        host: usize,
        start: u32,
    },
    /// A process polls its engine.
    Look(usize),
    Deadline(usize),
    /// The decision thread processes its inbox.
    Handle(usize),
    /// A word arrives, by line.
    Deliver(usize, Way),
    /// A receiver reports its progress.
    Progress(usize),
    /// Nothing has arrived on a line since this time.
    Silence(usize, Way, u64),
    /// A machine resumes, or a partition ends.
    Release,
    JoinTimeout(usize, u64),
    Create(usize, u64),
    /// A host's disk takes no more.
    DiskFails(usize),
    /// A receiver has read a subtree at a URL.
    ReadUrl(usize),
    Hashed(usize),
    /// A read or write of a copy ends.
    Stored(usize),
    /// The bytes of a host were compared, by line.
    Checked(usize, Ranges),
    /// The root has read these ranges of the source.
    Digest(usize, Ranges),
    /// The root has read further chunks.
    Chunks(usize, ChunkDigests),
    /// A host has shared its copy long enough.
    Shared(usize),
    /// The root's reader has read once.
    Read(usize),
    /// The consumer of a stream has taken a message.
    Written(usize),
    /// The source was looked at again, with its state at some time since the look began.
    Looked(usize, bool),
    RootDeadline(usize),
    /// The time for a last message has passed.
    Linger(usize),
}

#[derive(Default)]
pub(super) struct Machine {
    pub(super) disk: Disk,
    pub(super) held_since_ns: u64,
    /// Processes are stopped until this time; `u64::MAX`: for ever.
    pub(super) held_until_ns: u64,
    pub(super) rate_bytes_per_s: Option<u64>,
}

pub(super) struct World<'a> {
    pub(super) scenario: &'a PushScenario,
    pub(super) settings: &'a PushSettings,
    pub(super) options: Options<PushCanary>,
    pub(super) network: &'a SimNet,
    pub(super) source: Arc<[u8]>,
    pub(super) machines: Vec<Machine>,
    pub(super) processes: Vec<Process>,
    pub(super) lines: Vec<Line>,
    /// One side of each partition, and its end.
    pub(super) partitions: Vec<(Vec<u32>, u64)>,
    pub(super) agenda: Queue<u64, Due>,
    pub(super) root: Root<'a>,
    pub(super) facts: Facts,
    pub(super) dice: Dice,
    pub(super) step: u64,
    pub(super) faults_done: usize,
    /// When the last known disturbance from outside ended.
    pub(super) disturbed_ns: u64,
    /// How many group numbers were assigned.
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
        let machine = |rate_bytes_per_s| Machine { rate_bytes_per_s, ..Machine::default() };
        let rates = scenario.hosts.iter().map(|host| host.rate_bytes_per_s);
        let mut machines: Vec<Machine> = std::iter::once(None).chain(rates).map(machine).collect();
        for (host, plan) in scenario.hosts.iter().enumerate() {
            let kept = source.len() * plan.partial_percent as usize / 100;
            let byte = |(at, &byte): (usize, &u8)| if at < kept { byte } else { !byte };
            machines[host + 1].disk.temporary =
                (kept > 0).then(|| File::synced(source.iter().enumerate().map(byte).collect()));
            if !plan.kept_files.is_empty() {
                let mut bytes: Vec<u8> = source.iter().map(|&byte| !byte).collect();
                let files: Vec<(u64, u64)> = scenario.files().collect();
                for &file in &plan.kept_files {
                    let range = files[file].0 as usize..files[file].1 as usize;
                    bytes[range.clone()].copy_from_slice(&source[range]);
                }
                machines[host + 1].disk.hold(bytes);
            }
        }
        Self {
            scenario,
            settings,
            options,
            network,
            source,
            machines,
            processes: Vec::new(),
            lines: Vec::new(),
            partitions: Vec::new(),
            agenda: Queue::default(),
            root: Root::new(root_machine(scenario, settings), scenario),
            facts: Facts::new(scenario),
            dice: Dice::new(scenario.seed, PURPOSE),
            step: 0,
            faults_done: 0,
            disturbed_ns: 0,
            groups_made: 0,
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.network.now().as_nanos() as u64
    }

    /// Returns the time since the current push began.
    pub(super) fn push_ns(&self) -> u64 {
        self.now_ns() - self.root.began_ns
    }

    /// Returns whether this is the push into which faults are injected, rather than its repetition.
    pub(super) fn is_first(&self) -> bool {
        self.facts.pushes == 1
    }

    pub(super) fn remark(&self, text: impl FnOnce() -> String) {
        self.network.remark(text);
    }

    pub(super) fn plan(&mut self, at_ns: u64, due: Due) {
        if at_ns < u64::MAX {
            // Nothing may depend on the order within one instant, so it is random.
            let order = self.dice.below(1 << 24);
            self.agenda.plan(at_ns, order, due);
        }
    }

    pub(super) fn host_of(&self, process: usize) -> &'a HostScenario {
        &self.scenario.hosts[self.processes[process].machine - 1]
    }

    /// Starts a process. Returns its index.
    pub(super) fn add_process(&mut self, machine: usize, receiver: Option<Receiver>) -> usize {
        let (node, watch) = Node::new(self.network.member(), Clock::RIGHT, 0, None);
        let index = self.processes.len();
        if let Some(rate) = self.machines[machine].rate_bytes_per_s {
            self.network.set_port_rate(index, rate);
        }
        let host = machine.checked_sub(1).map(|host| &self.scenario.hosts[host]);
        let takes_time = host.is_some_and(|host| host.store_ns > 0) && receiver.is_some();
        let device = takes_time.then(Arc::<Device>::default);
        let engine = match &device {
            Some(device) => Engine::with_disks(node, Arc::clone(device) as Arc<dyn Disks>),
            None => Engine::new(node),
        };
        self.processes.push(Process {
            machine,
            engine: Some(engine),
            device,
            watch,
            receiver: receiver.map(Box::new),
            ..Process::default()
        });
        index
    }
}
