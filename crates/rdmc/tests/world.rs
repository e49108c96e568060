//! A group of real engines on the simulated network, for tests.

use std::time::Duration;

use engine::{Engine, Event, GroupSettings, Slot};
use rdmc::{Algorithm, Failure, Region, Schedule};
use transport_sim::{Jitter, LinkConfig, SimConfig, SimNet, SimTransport};

pub const BLOCK_BYTES: u64 = 100;
/// One block at the ideal network's rate of one byte per nanosecond.
pub const BLOCK_TIME: Duration = Duration::from_nanos(BLOCK_BYTES);

/// A group and all its members.
pub struct World {
    pub network: SimNet,
    pub members: Vec<Member>,
}

pub struct Member {
    pub engine: Engine<SimTransport>,
    pub alive: bool,
    /// Whether its process polls for completions.
    pub polled: bool,
    pub messages: Vec<Vec<u8>>,
    pub received: u64,
    /// How many messages wait for memory before any gets it.
    pub patience: usize,
    pub unanswered: Vec<(u64, u64)>,
    /// Messages that were copied out of slots, which are reported to the engine when it is called next.
    left: Vec<u64>,
    /// How many messages were copied out of slots.
    pub copied: u64,
    /// Whether the engine was called since the last poll.
    has_called: bool,
    /// When the last message was received.
    pub received_at: Duration,
    pub closed: bool,
    pub failure: Option<Failure>,
}

/// Configures a network with delays of every kind.
pub fn disturbed(jitter: f64, reordering_ns: u64, latency_ns: u64) -> SimConfig {
    SimConfig {
        link: LinkConfig { latency_ns, ..LinkConfig::IDEAL },
        block_jitter: Jitter::BlockTimes(jitter),
        delivery_jitter_ns_max: reordering_ns,
        control_jitter_ns_max: reordering_ns,
        loss_detection_ns: 300,
        ..SimConfig::IDEAL
    }
}

impl World {
    pub fn new(
        schedule: &Schedule,
        config: SimConfig,
        seed: u64,
        change: impl Fn(&mut GroupSettings),
    ) -> Self {
        let network = SimNet::new(config, seed);
        let transports: Vec<SimTransport> =
            (0..schedule.members()).map(|_| network.member()).collect();
        let settings_of = |rank| {
            let mut settings = GroupSettings::new(1, rank, schedule.clone());
            settings.block_bytes = BLOCK_BYTES;
            settings.small = None;
            change(&mut settings);
            settings
        };
        let mut links: Vec<Vec<_>> = transports.iter().map(|_| Vec::new()).collect();
        for rank in 0..schedule.members() {
            let neighbours = settings_of(rank).neighbours();
            for other in neighbours.into_iter().filter(|&other| other > rank) {
                let (own, theirs) = network.connect(rank as usize, other as usize);
                links[rank as usize].push((other, own));
                links[other as usize].push((rank, theirs));
            }
        }
        let members = (0..)
            .zip(transports.into_iter().zip(links))
            .map(|(rank, (transport, links))| {
                let mut engine = Engine::new(transport);
                engine.create(settings_of(rank), links).unwrap();
                Member::new(engine)
            })
            .collect();
        let mut world = Self { network, members };
        (0..world.members.len()).for_each(|rank| world.progress(rank));
        world
    }

    pub fn send(&mut self, root: usize, contents: Vec<u8>) {
        self.members[root].engine.send(1, Region::from_vec(contents)).unwrap();
    }

    pub fn progress(&mut self, rank: usize) {
        let member = &mut self.members[rank];
        if !member.alive || !member.polled {
            return;
        }
        // Answers to events may cause further events. Events are taken late, as by a slow thread, when the
        // engine is not called any more unless a reply requires it.
        loop {
            let mut events = member.poll();
            let now = self.network.now();
            member.has_called = false;
            events.drain(..).for_each(|event| member.take(event, now));
            if !member.has_called {
                return;
            }
        }
    }

    /// Runs the simulation until nothing is left, for this many steps at most.
    pub fn run(&mut self, steps_max: u64) {
        for _ in 0..steps_max {
            let Some(rank) = self.network.step() else { return };
            self.progress(rank);
        }
    }

    /// Runs the simulation until a virtual time.
    pub fn run_until(&mut self, at: Duration) {
        while let Some(rank) = self.network.run_until(at) {
            self.progress(rank);
        }
    }

    /// Pauses or resumes a member's process; its network card is not affected.
    pub fn set_polled(&mut self, rank: usize, polled: bool) {
        self.members[rank].polled = polled;
        self.progress(rank);
    }

    pub fn close(&mut self) {
        for rank in 0..self.members.len() {
            self.members[rank].engine.close(1).unwrap();
            self.progress(rank);
        }
        self.run(u64::MAX);
    }

    /// Sends messages of these lengths and closes, and checks that every member has them, in order,
    /// and has closed.
    pub fn deliver(&mut self, root: usize, sizes: &[usize]) {
        let expected: Vec<_> =
            sizes.iter().enumerate().map(|(message, &bytes)| contents(message, bytes)).collect();
        for message in &expected {
            self.send(root, message.clone());
        }
        self.close();
        for (rank, member) in self.members.iter().enumerate() {
            assert!(member.closed, "member {rank}: {:?}", member.failure);
            assert!(member.messages == expected, "member {rank}");
        }
    }

    /// Ends a member after this many steps of a message, and checks that every other member names
    /// it.
    pub fn lose(&mut self, root: usize, bytes: usize, victim: usize, happenings: u64) {
        self.send(root, contents(0, bytes));
        self.run(happenings);
        self.network.kill(victim);
        self.members[victim].alive = false;
        self.run(u64::MAX);
        for (rank, member) in self.members.iter().enumerate().filter(|(rank, _)| *rank != victim) {
            let failure = member.failure.as_ref();
            let blamed = failure.map(|failure| failure.member);
            assert_eq!(blamed, Some(Some(victim as u32)), "member {rank}: {failure:?}");
        }
    }

    pub fn last_receipt(&self) -> Duration {
        self.members.iter().map(|member| member.received_at).max().unwrap()
    }
}

impl Member {
    pub fn new(engine: Engine<SimTransport>) -> Self {
        Self {
            engine,
            alive: true,
            polled: true,
            messages: Vec::new(),
            received: 0,
            patience: 0,
            unanswered: Vec::new(),
            left: Vec::new(),
            copied: 0,
            has_called: false,
            received_at: Duration::ZERO,
            closed: false,
            failure: None,
        }
    }

    /// Polls until no more events come, and tells the engine what was left.
    fn poll(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let before = events.len();
            self.engine.progress(Duration::ZERO, &mut events);
            let left = std::mem::take(&mut self.left);
            if events.len() == before && left.is_empty() {
                return events;
            }
            for message in left {
                // The group may have ended.
                let _ = self.engine.taken(1, message);
            }
        }
    }

    /// Copies the message out of its slot, if it is the next one and in a slot. Some are left to the
    /// engine. Returns whether it did.
    fn copy(&mut self, message: u64, bytes: u64, slot: Option<Slot>) -> bool {
        let is_next = message == self.messages.len() as u64 && self.unanswered.is_empty();
        let Some(slot) = slot.filter(|_| is_next && message % 3 != 2) else { return false };
        let region = Region::zeroed(bytes as usize);
        slot.copy_to(&region).unwrap();
        self.messages.push(region.try_into_vec().unwrap());
        self.received += 1;
        self.copied += 1;
        self.left.push(message);
        self.has_called |= slot.note_done();
        true
    }

    /// Provides memory to all messages that wait for it.
    pub fn answer(&mut self) {
        for message in std::mem::take(&mut self.left) {
            let _ = self.engine.taken(1, message);
        }
        self.has_called |= !self.unanswered.is_empty();
        for (message, bytes) in self.unanswered.drain(..) {
            self.engine.accept(1, message, Region::zeroed(bytes as usize)).unwrap();
        }
    }

    pub fn take(&mut self, event: Event, now: Duration) {
        assert!(!self.closed && self.failure.is_none(), "nothing follows the end: {event:?}");
        match event {
            Event::Incoming { message, bytes, slot, .. } => {
                if self.patience == 0 && self.copy(message, bytes, slot) {
                    self.received_at = now;
                    return;
                }
                self.unanswered.push((message, bytes));
                if self.unanswered.len() > self.patience {
                    self.answer();
                }
            }
            Event::Received { message, .. } => {
                assert_eq!(message, self.received, "in order");
                self.received += 1;
                self.received_at = now;
            }
            Event::Complete { message, region, .. } => {
                assert_eq!(message, self.messages.len() as u64, "in order");
                // The test checks the contents of files itself.
                let is_file = region.is_stored();
                let contents = if is_file { Ok(Vec::new()) } else { region.try_into_vec() };
                self.messages.push(contents.expect("handed back whole"));
            }
            Event::Failed { failure, regions } => {
                // Files cannot be compared as bytes.
                for (_, region) in regions.into_iter().filter(|(_, region)| !region.is_stored()) {
                    region.try_into_vec().expect("no other reference");
                }
                self.failure = Some(failure);
            }
            Event::Closed { .. } => self.closed = true,
            other => panic!("{other:?}"),
        }
    }
}

pub fn contents(message: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 13 + message * 57 + 3) as u8).collect()
}

pub fn schedule(algorithm: Algorithm, members: u32, root: u32) -> Schedule {
    let racks: Vec<u32> = (0..members).map(|rank| rank / 5).collect();
    Schedule::with_racks(algorithm, &racks, root).unwrap()
}

/// Returns the virtual time from the root's send until the last member has all blocks.
pub fn time_taken(
    schedule: &Schedule,
    blocks: u32,
    config: SimConfig,
    change: impl Fn(&mut GroupSettings),
) -> Duration {
    let mut world = World::new(schedule, config, 1, change);
    // Every member is ready before the root sends.
    world.run(u64::MAX);
    let start = world.network.now();
    let bytes = blocks as usize * BLOCK_BYTES as usize;
    world.send(schedule.root() as usize, vec![1; bytes]);
    world.run(u64::MAX);
    for member in &world.members {
        assert_eq!(member.messages.len(), 1);
    }
    world.last_receipt() - start
}
