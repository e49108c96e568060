//! Whole groups of real engines on the simulated network, in virtual time.

use std::time::Duration;

use proptest::prelude::*;
use rdmc::{
    Algorithm, Engine, Event, Failure, GroupSettings, Region, Schedule, SmallMessages, Window,
};
use transport_sim::{Jitter, LinkConfig, SimConfig, SimNet, SimTransport};

const BLOCK_BYTES: u64 = 100;
/// One block at the ideal network's rate of one byte per nanosecond.
const BLOCK_TIME: Duration = Duration::from_nanos(BLOCK_BYTES);

/// A group whose members all live here.
struct World {
    network: SimNet,
    members: Vec<Member>,
}

struct Member {
    engine: Engine<SimTransport>,
    alive: bool,
    messages: Vec<Vec<u8>>,
    received: u64,
    /// How many messages may wait for memory before any is given.
    patience: usize,
    unanswered: Vec<(u64, u64)>,
    /// When the last message was received.
    received_at: Duration,
    closed: bool,
    failure: Option<Failure>,
}

impl World {
    fn new(
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

    fn send(&mut self, root: usize, contents: Vec<u8>) {
        self.members[root].engine.send(1, Region::from_vec(contents)).unwrap();
    }

    fn progress(&mut self, rank: usize) {
        let member = &mut self.members[rank];
        if !member.alive {
            return;
        }
        let mut events = Vec::new();
        // Answers to events may make more of them.
        loop {
            member.engine.progress(Duration::ZERO, &mut events);
            if events.is_empty() {
                return;
            }
            let now = self.network.now();
            events.drain(..).for_each(|event| member.take(event, now));
        }
    }

    /// Lets everything happen, up to this many things.
    fn run(&mut self, steps_max: u64) {
        for _ in 0..steps_max {
            let Some(rank) = self.network.step() else { return };
            self.progress(rank);
        }
    }

    fn close(&mut self) {
        for rank in 0..self.members.len() {
            self.members[rank].engine.close(1).unwrap();
            self.progress(rank);
        }
        self.run(u64::MAX);
    }

    fn last_receipt(&self) -> Duration {
        self.members.iter().map(|member| member.received_at).max().unwrap()
    }
}

impl Member {
    fn new(engine: Engine<SimTransport>) -> Self {
        Self {
            engine,
            alive: true,
            messages: Vec::new(),
            received: 0,
            patience: 0,
            unanswered: Vec::new(),
            received_at: Duration::ZERO,
            closed: false,
            failure: None,
        }
    }

    /// Gives memory to all messages that wait for it.
    fn answer(&mut self) {
        for (message, bytes) in self.unanswered.drain(..) {
            self.engine.accept(1, message, Region::zeroed(bytes as usize)).unwrap();
        }
    }

    fn take(&mut self, event: Event, now: Duration) {
        assert!(!self.closed && self.failure.is_none(), "nothing follows the end: {event:?}");
        match event {
            Event::Incoming { message, bytes, .. } => {
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
                self.messages.push(region.try_into_vec().expect("handed back whole"));
            }
            Event::Failed { failure, regions } => {
                for (_, region) in regions {
                    region.try_into_vec().expect("nobody touches it any more");
                }
                self.failure = Some(failure);
            }
            Event::Closed { .. } => self.closed = true,
            other => panic!("{other:?}"),
        }
    }
}

fn contents(message: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 13 + message * 57 + 3) as u8).collect()
}

fn schedule(algorithm: Algorithm, members: u32, root: u32) -> Schedule {
    let racks: Vec<u32> = (0..members).map(|rank| rank / 5).collect();
    Schedule::with_racks(algorithm, &racks, root).unwrap()
}

/// Virtual time from the root's send until the last member has all blocks.
fn time_taken(schedule: &Schedule, blocks: u32, config: SimConfig) -> Duration {
    let mut world = World::new(schedule, config, 1, |_| {});
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

#[test]
fn undisturbed_schedules_take_exactly_their_steps() {
    for algorithm in Algorithm::ALL {
        for members in [2, 3, 4, 5, 6, 7, 8, 11, 16, 23, 31, 32, 33] {
            for blocks in [1, 2, 3, 7, 20] {
                let schedule = schedule(algorithm, members, members / 3);
                let taken = time_taken(&schedule, blocks, SimConfig::IDEAL);
                let steps = BLOCK_TIME * schedule.steps(blocks) as u32;
                let what = format!("{algorithm}, {members} members, {blocks} blocks");
                if schedule.size_first() {
                    // The first credits come with the announcement, in any order, and the root
                    // does not wait for the one that would be best to use first.
                    assert!((steps..=steps + 2 * BLOCK_TIME).contains(&taken), "{what}: {taken:?}");
                } else if algorithm.needs_racks() {
                    // Layers that take turns leave steps empty, which nobody has to wait out.
                    assert!(taken <= steps, "{what}: {taken:?} > {steps:?}");
                } else {
                    assert_eq!(taken, steps, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_thousand_members_take_exactly_their_steps() {
    let schedule = schedule(Algorithm::BinomialPipeline, 1_024, 0);
    let config = SimConfig { carry_bytes: false, ..SimConfig::IDEAL };
    assert_eq!(time_taken(&schedule, 64, config), BLOCK_TIME * (64 - 1 + 10));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn delays_of_every_kind_lose_nothing(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 1_u32..=24,
        root in any::<u32>(),
        sizes in prop::collection::vec(0_usize..3_000, 1..5),
        window in 1_u32..=4,
        messages_in_flight in 1_u32..=4,
        slow in any::<u32>(),
        jitter in 0.0..2.0,
        reordering_ns in 0_u64..2_000,
        latency_ns in 0_u64..500,
        seed in any::<u64>(),
    ) {
        let root = root % members;
        let config = SimConfig {
            link: LinkConfig { latency_ns, ..LinkConfig::IDEAL },
            block_jitter: Jitter::BlockTimes(jitter),
            delivery_jitter_ns_max: reordering_ns,
            control_jitter_ns_max: reordering_ns,
            ..SimConfig::IDEAL
        };
        let mut world = World::new(&schedule(algorithm, members, root), config, seed, |settings| {
            settings.window = Window { receives: window, sends: window };
            settings.messages_in_flight = messages_in_flight;
        });
        world.network.set_port_rate((slow % members) as usize, 100_000_000);
        for (message, &bytes) in sizes.iter().enumerate() {
            world.send(root as usize, contents(message, bytes));
        }
        world.close();
        let expected: Vec<_> =
            sizes.iter().enumerate().map(|(message, &bytes)| contents(message, bytes)).collect();
        for (rank, member) in world.members.iter().enumerate() {
            prop_assert!(member.closed, "member {rank} (seed {seed}): {:?}", member.failure);
            prop_assert!(member.messages == expected, "member {rank} (seed {seed})");
        }
    }

    #[test]
    fn every_survivor_of_a_death_learns_who_died(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 2_u32..=24,
        root in any::<u32>(),
        victim in any::<u32>(),
        bytes in 0_usize..5_000,
        happenings in 0_u64..400,
        seed in any::<u64>(),
    ) {
        let (root, victim) = (root % members, (victim % members) as usize);
        let config = SimConfig {
            link: LinkConfig { latency_ns: 20, ..LinkConfig::IDEAL },
            block_jitter: Jitter::BlockTimes(0.5),
            loss_detection_ns: 300,
            ..SimConfig::IDEAL
        };
        let mut world = World::new(&schedule(algorithm, members, root), config, seed, |_| {});
        world.send(root as usize, contents(0, bytes));
        world.run(happenings);
        world.network.kill(victim);
        world.members[victim].alive = false;
        world.run(u64::MAX);
        for (rank, member) in world.members.iter().enumerate().filter(|(rank, _)| *rank != victim) {
            let failure = member.failure.as_ref();
            prop_assert!(failure.is_some(), "member {rank} does not know (seed {seed})");
            prop_assert_eq!(failure.and_then(|failure| failure.member), Some(victim as u32));
        }
    }

    #[test]
    fn small_and_large_messages_keep_one_order(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 1_u32..=17,
        root in any::<u32>(),
        sizes in prop::collection::vec(prop_oneof![0_usize..=60, 0_usize..1_500], 0..40),
        (slots, bytes_max) in (1_u32..=9, 0_u32..=80),
        messages_in_flight in 1_u32..=4,
        (slow, patience) in (any::<u32>(), 0_usize..5),
        reordering_ns in 0_u64..2_000,
        latency_ns in 0_u64..500,
        happenings in 0_u64..200,
        seed in any::<u64>(),
    ) {
        let root = root % members;
        let config = SimConfig {
            link: LinkConfig { latency_ns, ..LinkConfig::IDEAL },
            block_jitter: Jitter::BlockTimes(0.7),
            delivery_jitter_ns_max: reordering_ns,
            control_jitter_ns_max: reordering_ns,
            ..SimConfig::IDEAL
        };
        let mut world = World::new(&schedule(algorithm, members, root), config, seed, |settings| {
            settings.small = Some(SmallMessages { bytes_max, slots, members_max: 16 });
            settings.messages_in_flight = messages_in_flight;
        });
        world.network.set_port_rate((slow % members) as usize, 100_000_000);
        world.members[(slow % members) as usize].patience = patience;
        for (message, &bytes) in sizes.iter().enumerate() {
            world.send(root as usize, contents(message, bytes));
            world.run(happenings % 7);
        }
        world.close();
        while let Some(rank) = world.members.iter().position(|one| !one.unanswered.is_empty()) {
            world.members[rank].answer();
            world.progress(rank);
            world.run(u64::MAX);
        }
        let expected: Vec<_> =
            sizes.iter().enumerate().map(|(message, &bytes)| contents(message, bytes)).collect();
        let small = sizes.iter().filter(|&&bytes| bytes <= bytes_max as usize).count() as u64;
        let small = if (2..=16).contains(&members) { small } else { 0 };
        for (rank, member) in world.members.iter().enumerate() {
            prop_assert!(member.closed, "member {rank} (seed {seed}): {:?}", member.failure);
            prop_assert!(member.messages == expected, "member {rank} (seed {seed})");
            let counters = member.engine.counters();
            prop_assert_eq!(counters.small_sent + counters.small_received, small);
        }
    }

    #[test]
    fn a_death_among_small_messages_hands_everything_back(
        members in 2_u32..=16,
        root in any::<u32>(),
        victim in any::<u32>(),
        count in 1_usize..30,
        slots in 1_u32..=9,
        happenings in 0_u64..200,
        seed in any::<u64>(),
    ) {
        let (root, victim) = (root % members, (victim % members) as usize);
        let config = SimConfig {
            link: LinkConfig { latency_ns: 20, ..LinkConfig::IDEAL },
            control_jitter_ns_max: 50,
            loss_detection_ns: 300,
            ..SimConfig::IDEAL
        };
        let schedule = schedule(Algorithm::BinomialPipeline, members, root);
        let mut world = World::new(&schedule, config, seed, |settings| {
            settings.small = Some(SmallMessages { slots, ..SmallMessages::default() });
        });
        for message in 0..count {
            world.send(root as usize, contents(message, 10));
        }
        world.run(happenings);
        world.network.kill(victim);
        world.members[victim].alive = false;
        world.run(u64::MAX);
        for (rank, member) in world.members.iter().enumerate().filter(|(rank, _)| *rank != victim) {
            let failure = member.failure.as_ref();
            prop_assert!(failure.is_some(), "member {rank} does not know (seed {seed})");
            prop_assert_eq!(failure.and_then(|failure| failure.member), Some(victim as u32));
            for (message, got) in member.messages.iter().enumerate() {
                prop_assert_eq!(got, &contents(message, 10));
            }
        }
    }
}

#[test]
fn a_full_ring_makes_the_root_wait_for_the_slowest() {
    let schedule = schedule(Algorithm::Chain, 4, 0);
    let mut world = World::new(&schedule, SimConfig::IDEAL, 1, |settings| {
        settings.small = Some(SmallMessages { slots: 8, ..SmallMessages::default() });
    });
    world.run(u64::MAX);
    world.members[2].patience = usize::MAX;
    for message in 0..100 {
        world.send(0, contents(message, 5));
    }
    world.run(u64::MAX);
    assert_eq!(world.members[0].engine.counters().small_sent, 8);
    assert_eq!(world.members[2].unanswered.len(), 8);
    world.members[2].patience = 0;
    world.members[2].answer();
    world.progress(2);
    world.close();
    for member in &world.members {
        assert!(member.closed && member.messages.len() == 100, "{:?}", member.failure);
    }
    // One word frees a quarter of a ring; 5 more set it up, grant a first block, and close.
    let words = world.network.totals().words;
    assert!(words <= 3 * (100 / 2 + 5), "{words} words");
    assert_eq!(world.network.totals().writes, 300);
}

#[test]
fn a_relayed_message_of_one_block_needs_no_second_handshake() {
    for members in [2, 5, 8] {
        let schedule = schedule(Algorithm::BinomialPipeline, members, 0);
        let mut world = World::new(&schedule, SimConfig::IDEAL, 1, |_| {});
        world.run(u64::MAX);
        let before = world.network.totals();
        world.send(0, contents(0, 10));
        world.run(u64::MAX);
        let after = world.network.totals();
        let receivers = u64::from(members) - 1;
        assert_eq!(after.blocks - before.blocks, receivers);
        // The announcement travels with the block, whose credit was granted before; and one credit
        // for the first block of the next message.
        assert_eq!(after.words - before.words, 2 * receivers, "{members} members");
    }
}
