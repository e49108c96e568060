//! Simulations of whole groups of relays, with all events in a random order.
//!
//! `World` is a network without time: the next of the possible events is drawn from a seed. It
//! checks that sends meet posted receives, that windows are kept, that memory is written once, and
//! at the end that all members have all messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use relay::{Action, ReceiveId, Relay, SendId, Settings, Window};
use schedule::{Algorithm, Schedule};

/// A possible next event.
#[derive(Debug)]
enum Pending {
    /// A block in transit: completes at the source, at the target, or both.
    Transfer { source: u32, send: Option<SendId>, target: u32, receive: Option<Block> },
    /// Cut-through: the first bytes of a block arrive, unless all of it has.
    Begin { target: u32, id: ReceiveId, immediate: u32 },
    /// Offload: a member polls the completion of a block that its network has received and relayed
    /// before.
    Look { member: u32, id: ReceiveId, bytes: u64, immediate: u32 },
    /// A member copies a first block to its position.
    Place { member: u32, action: Action },
    /// The application of a member provides memory.
    Accept { member: u32, message: u64 },
}

#[derive(Debug)]
struct Block {
    id: ReceiveId,
    immediate: u32,
    contents: Vec<u8>,
}

/// A control word on a connection.
#[derive(Debug)]
enum Word {
    Announce { message: u64, bytes: u64 },
    Grant(u32),
}

/// An offloaded send that waits for this many other operations of its member.
#[derive(Debug)]
struct Triggered {
    source: u32,
    missing: usize,
    target: u32,
    send: SendId,
    immediate: u32,
    part: (u64, u64, u64),
}

/// A block that is sent on, of which not all has arrived.
#[derive(Debug)]
struct Following {
    source: u32,
    after: ReceiveId,
    target: u32,
    send: SendId,
    receive: ReceiveId,
    immediate: u32,
}

/// The destination of a posted receive's block.
#[derive(Clone, Copy, Debug)]
enum Place {
    Spare,
    Memory { message: u64, offset: u64, bytes: u64 },
}

#[derive(Default)]
struct Member {
    memory: BTreeMap<u64, Vec<Option<u8>>>,
    spare: BTreeMap<ReceiveId, Vec<u8>>,
    places: BTreeMap<ReceiveId, Place>,
    /// All blocks that have arrived.
    came: BTreeMap<ReceiveId, Vec<u8>>,
    /// Receives whose blocks are known to be arriving.
    begun: BTreeSet<ReceiveId>,
    receives_open: u32,
    sends_open: u32,
    ready_bytes: BTreeMap<u64, u64>,
    received: u64,
    complete: u64,
    copies: u64,
}

struct World {
    relays: Vec<Relay>,
    members: Vec<Member>,
    /// Receives posted at the target for the source, by (source, target), in order.
    posted: BTreeMap<(u32, u32), VecDeque<ReceiveId>>,
    /// Offloaded receives, by (source, target, immediate).
    offloaded: BTreeMap<(u32, u32, u32), ReceiveId>,
    /// Offloaded operations that are not done, by member and id, and the sends that wait for each.
    undone: BTreeMap<(u32, u64), Vec<SendId>>,
    triggered: BTreeMap<(u32, SendId), Triggered>,
    words: BTreeMap<(u32, u32), VecDeque<Word>>,
    pending: Vec<Pending>,
    following: Vec<Following>,
    has_cut_through: bool,
    window: Window,
    random: ChaCha8Rng,
}

impl World {
    fn new(
        schedule: &Schedule,
        block_bytes: u64,
        window: Window,
        in_flight: u32,
        offload: Option<u32>,
        seed: u64,
    ) -> Self {
        let relays = (0..schedule.members())
            .map(|rank| {
                Relay::new(Settings {
                    schedule: schedule.clone(),
                    rank,
                    block_bytes,
                    window,
                    messages_in_flight: in_flight,
                    offload,
                })
                .unwrap()
            })
            .collect::<Vec<_>>();
        let limit = offload.map(|limit| Window { receives: limit, sends: limit });
        let mut world = Self {
            members: relays.iter().map(|_| Member::default()).collect(),
            relays,
            posted: BTreeMap::new(),
            offloaded: BTreeMap::new(),
            undone: BTreeMap::new(),
            triggered: BTreeMap::new(),
            words: BTreeMap::new(),
            pending: Vec::new(),
            following: Vec::new(),
            has_cut_through: false,
            window: limit.unwrap_or(window),
            random: ChaCha8Rng::seed_from_u64(seed),
        };
        for rank in 0..schedule.members() {
            world.carry_out(rank);
        }
        world
    }

    fn send(&mut self, root: u32, message: u64, contents: &[u8]) {
        let memory = contents.iter().copied().map(Some).collect();
        self.members[root as usize].memory.insert(message, memory);
        assert_eq!(self.relays[root as usize].send(message, contents.len() as u64), Ok(()));
        self.carry_out(root);
    }

    /// Runs events until there are none left.
    fn run(&mut self) {
        loop {
            let links: Vec<_> =
                self.words.iter().filter(|(_, queue)| !queue.is_empty()).map(|(&l, _)| l).collect();
            let choices = links.len() + self.pending.len();
            if choices == 0 {
                return;
            }
            let choice = self.random.random_range(0..choices);
            match links.get(choice) {
                Some(&(source, target)) => self.deliver_word(source, target),
                None => self.happen(choice - links.len()),
            }
        }
    }

    fn deliver_word(&mut self, source: u32, target: u32) {
        let word = self.words.get_mut(&(source, target)).unwrap().pop_front().unwrap();
        let relay = &mut self.relays[target as usize];
        match word {
            Word::Announce { message, bytes } => relay.announced(source, message, bytes),
            Word::Grant(count) => relay.granted(source, count),
        }
        .unwrap();
        self.carry_out(target);
    }

    fn happen(&mut self, index: usize) {
        match self.pending.swap_remove(index) {
            Pending::Begin { target, id, immediate } => {
                let member = &mut self.members[target as usize];
                if !member.came.contains_key(&id) {
                    member.begun.insert(id);
                    self.relays[target as usize].arriving(id, immediate).unwrap();
                    self.carry_out(target);
                }
            }
            Pending::Look { member, id, bytes, immediate } => {
                self.members[member as usize].receives_open -= 1;
                self.relays[member as usize].received(id, bytes, immediate).unwrap();
                self.carry_out(member);
            }
            Pending::Place { member, action } => {
                let Action::PlaceFirst { id, .. } = action else { panic!("{action:?}") };
                self.members[member as usize].note(action);
                self.relays[member as usize].placed(id).unwrap();
                self.carry_out(member);
            }
            Pending::Accept { member, message } => {
                self.relays[member as usize].accepted(message).unwrap();
                self.carry_out(member);
            }
            Pending::Transfer { source, send: Some(send), target, receive }
                if receive.is_none() || self.random.random_bool(0.5) =>
            {
                if receive.is_some() {
                    self.pending.push(Pending::Transfer { source, send: None, target, receive });
                }
                self.members[source as usize].sends_open -= 1;
                self.note_done(source, send.0);
                self.relays[source as usize].sent(send).unwrap();
                self.carry_out(source);
            }
            Pending::Transfer { source, send, target, receive } => {
                if send.is_some() {
                    self.pending.push(Pending::Transfer { source, send, target, receive: None });
                }
                self.arrive(target, receive.unwrap());
            }
        }
    }

    fn arrive(&mut self, target: u32, block: Block) {
        let member = &mut self.members[target as usize];
        match member.places[&block.id] {
            Place::Spare => {
                member.spare.insert(block.id, block.contents.clone());
            }
            Place::Memory { message, offset, bytes } => {
                assert_eq!(block.contents.len() as u64, bytes);
                member.write(message, offset, &block.contents);
            }
        }
        let (id, bytes, immediate) = (block.id, block.contents.len() as u64, block.immediate);
        member.came.insert(id, block.contents);
        self.go_on(target, id);
        let look = Pending::Look { member: target, id, bytes, immediate };
        self.pending.push(look);
        // With offload the network continues at once, and its member polls some time later.
        if !self.note_done(target, id.0) {
            self.happen(self.pending.len() - 1);
        }
    }

    /// Lets sends go on that have waited for a block.
    fn go_on(&mut self, source: u32, id: ReceiveId) {
        let waits = |it: &Following| (it.source, it.after) == (source, id);
        let (ready, rest) = std::mem::take(&mut self.following).into_iter().partition(waits);
        self.following = rest;
        let ready: Vec<Following> = ready;
        for Following { target, send, receive, immediate, .. } in ready {
            let contents = self.members[source as usize].came[&id].clone();
            let receive = Some(Block { id: receive, immediate, contents });
            self.pending.push(Pending::Transfer { source, send: Some(send), target, receive });
        }
    }

    fn carry_out(&mut self, rank: u32) {
        while let Some(action) = self.relays[rank as usize].poll_action() {
            match action {
                Action::PostFirst { source, id } => self.post(rank, source, id, Place::Spare),
                Action::PostReceive { source, id, message, offset, bytes } => {
                    self.post(rank, source, id, Place::Memory { message, offset, bytes });
                }
                Action::PostSend { target, id, after: None, message, block, offset, bytes } => {
                    let receive =
                        self.posted.get_mut(&(rank, target)).and_then(VecDeque::pop_front);
                    let receive = receive.expect("a send without a posted receive");
                    self.open_send(rank);
                    self.begin(target, receive, block);
                    self.start_send(rank, target, id, receive, block, message, offset, bytes);
                }
                Action::PostSend {
                    target, id: send, after: Some(after), block: immediate, ..
                } => {
                    let receive =
                        self.posted.get_mut(&(rank, target)).and_then(VecDeque::pop_front);
                    let receive = receive.expect("a send without a posted receive");
                    let member = &self.members[rank as usize];
                    assert!(member.begun.contains(&after), "a send of what has not begun");
                    let has_come = member.came.contains_key(&after);
                    self.open_send(rank);
                    self.begin(target, receive, immediate);
                    self.following.push(Following {
                        source: rank,
                        after,
                        target,
                        send,
                        receive,
                        immediate,
                    });
                    if has_come {
                        self.go_on(rank, after);
                    }
                }
                Action::PostOffloadedReceive { source, id, message, immediate, offset, bytes } => {
                    self.open_receive(rank, id, Place::Memory { message, offset, bytes });
                    let other = self.offloaded.insert((source, rank, immediate), id);
                    assert!(other.is_none(), "an immediate that is in use");
                    self.undone.insert((rank, id.0), Vec::new());
                }
                Action::Grant { source, count } => {
                    assert!(count > 0);
                    self.words.entry((rank, source)).or_default().push_back(Word::Grant(count));
                }
                Action::PostOffloadedSend {
                    target,
                    id,
                    message,
                    immediate,
                    offset,
                    bytes,
                    after_receive,
                    after_send,
                } => {
                    let is_posted = self.offloaded.contains_key(&(rank, target, immediate));
                    assert!(is_posted, "an offloaded send without a posted receive");
                    self.open_send(rank);
                    let part = (message, offset, bytes);
                    let receive = after_receive.map(|(_, receive)| receive.0);
                    let mut missing = 0;
                    for before in receive.into_iter().chain(after_send.map(|(_, send)| send.0)) {
                        if let Some(waiting) = self.undone.get_mut(&(rank, before)) {
                            waiting.push(id);
                            missing += 1;
                        }
                    }
                    let send =
                        Triggered { source: rank, missing, target, send: id, immediate, part };
                    self.undone.insert((rank, id.0), Vec::new());
                    self.triggered.insert((rank, id), send);
                    self.start_triggered(rank, id);
                }
                Action::Announce { target, message, bytes } => {
                    let word = Word::Announce { message, bytes };
                    self.words.entry((rank, target)).or_default().push_back(word);
                }
                Action::Incoming { message, bytes } => {
                    let memory = vec![None; bytes as usize];
                    self.members[rank as usize].memory.insert(message, memory);
                    self.pending.push(Pending::Accept { member: rank, message });
                }
                action @ Action::PlaceFirst { .. } => {
                    self.pending.push(Pending::Place { member: rank, action });
                }
                other => self.members[rank as usize].note(other),
            }
        }
    }

    /// Lets the first bytes of a block arrive at any time from now on.
    fn begin(&mut self, target: u32, id: ReceiveId, immediate: u32) {
        if self.has_cut_through {
            self.pending.push(Pending::Begin { target, id, immediate });
        }
    }

    fn post(&mut self, rank: u32, source: u32, id: ReceiveId, place: Place) {
        self.open_receive(rank, id, place);
        self.posted.entry((source, rank)).or_default().push_back(id);
        self.words.entry((rank, source)).or_default().push_back(Word::Grant(1));
    }

    fn open_receive(&mut self, rank: u32, id: ReceiveId, place: Place) {
        let member = &mut self.members[rank as usize];
        member.places.insert(id, place);
        member.receives_open += 1;
        assert!(member.receives_open <= self.window.receives, "receive window of member {rank}");
    }

    fn open_send(&mut self, rank: u32) {
        let member = &mut self.members[rank as usize];
        member.sends_open += 1;
        assert!(member.sends_open <= self.window.sends, "send window of member {rank}");
    }

    /// Starts a send that waits for nothing else.
    fn start_triggered(&mut self, member: u32, id: SendId) {
        if self.triggered.get(&(member, id)).is_none_or(|triggered| triggered.missing > 0) {
            return;
        }
        let Some(triggered) = self.triggered.remove(&(member, id)) else { return };
        let Triggered { source, target, send, immediate, part, .. } = triggered;
        let receive = self.offloaded.remove(&(source, target, immediate));
        let receive = receive.expect("a block without a receive");
        let (message, offset, bytes) = part;
        self.start_send(source, target, send, receive, immediate, message, offset, bytes);
    }

    /// Marks an operation as done before its member polls it. Returns false if it is not offloaded.
    fn note_done(&mut self, member: u32, operation: u64) -> bool {
        let Some(waiting) = self.undone.remove(&(member, operation)) else { return false };
        for send in waiting {
            if let Some(triggered) = self.triggered.get_mut(&(member, send)) {
                triggered.missing -= 1;
            }
            self.start_triggered(member, send);
        }
        true
    }

    fn start_send(
        &mut self,
        source: u32,
        target: u32,
        send: SendId,
        id: ReceiveId,
        immediate: u32,
        message: u64,
        offset: u64,
        bytes: u64,
    ) {
        let member = &mut self.members[source as usize];
        let range = offset as usize..(offset + bytes) as usize;
        let contents = member.memory[&message][range]
            .iter()
            .map(|byte| byte.expect("sends what it holds"))
            .collect();
        let receive = Some(Block { id, immediate, contents });
        self.pending.push(Pending::Transfer { source, send: Some(send), target, receive });
    }
}

impl Member {
    fn write(&mut self, message: u64, offset: u64, contents: &[u8]) {
        let memory = self.memory.get_mut(&message).unwrap();
        for (place, &byte) in memory[offset as usize..].iter_mut().zip(contents) {
            assert!(place.replace(byte).is_none(), "written twice");
        }
    }

    fn note(&mut self, action: Action) {
        match action {
            Action::PlaceFirst { id, message, offset, bytes } => {
                let contents = self.spare.remove(&id).unwrap();
                assert_eq!(contents.len() as u64, bytes);
                self.write(message, offset, &contents);
                self.copies += 1;
            }
            Action::BlockReady { message, offset, bytes, .. } => {
                let range = offset as usize..(offset + bytes) as usize;
                assert!(self.memory[&message][range].iter().all(Option::is_some));
                *self.ready_bytes.entry(message).or_default() += bytes;
            }
            Action::Received { message } => {
                assert_eq!(message, number(self.received), "received in order");
                assert_eq!(self.ready_bytes[&message], self.memory[&message].len() as u64);
                self.received += 1;
            }
            Action::Complete { message } => {
                assert_eq!(message, number(self.complete), "complete in order");
                self.complete += 1;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the number of a relayed message, the i-th: others, which are not relayed, are between.
fn number(index: u64) -> u64 {
    7 * index + 2
}

fn contents(message: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 7 + message * 31 + 1) as u8).collect()
}

#[allow(clippy::too_many_arguments, reason = "what the cases differ in")]
fn check_world(
    schedule: &Schedule,
    sizes: &[usize],
    block_bytes: u64,
    window: Window,
    in_flight: u32,
    offload: Option<u32>,
    cut_through: bool,
    seed: u64,
) {
    let mut world = World::new(schedule, block_bytes, window, in_flight, offload, seed);
    world.has_cut_through = cut_through;
    for (message, &bytes) in sizes.iter().enumerate() {
        world.send(schedule.root(), number(message as u64), &contents(message, bytes));
    }
    world.run();
    for (rank, member) in world.members.iter().enumerate() {
        let waits: Vec<_> = world.relays[rank].waits().collect();
        assert_eq!(member.complete, sizes.len() as u64, "member {rank} waits for {waits:?}");
        let copies_max = if offload.is_some() { 0 } else { sizes.len() as u64 };
        assert!(member.copies <= copies_max, "only first blocks are copied");
        for (message, &bytes) in sizes.iter().enumerate() {
            let memory: Option<Vec<u8>> =
                member.memory[&number(message as u64)].iter().copied().collect();
            assert_eq!(memory, Some(contents(message, bytes)), "message {message} at {rank}");
        }
    }
}

fn schedule_of(algorithm: Algorithm, members: u32, root: u32, rack_members: u32) -> Schedule {
    let racks: Vec<u32> = (0..members).map(|rank| rank / rack_members).collect();
    Schedule::with_racks(algorithm, &racks, root).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_order_of_events_delivers_everything(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        members in 1_u32..=20,
        root in any::<u32>(),
        rack_members in 1_u32..=7,
        sizes in prop::collection::vec(0_usize..60, 1..6),
        block_bytes in 1_u64..=9,
        receives in 1_u32..=4,
        sends in 1_u32..=4,
        in_flight in 1_u32..=4,
        offload in prop::option::of(1_u32..=40),
        cut_through in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let schedule = schedule_of(algorithm, members, root % members, rack_members);
        let window = Window { receives, sends };
        check_world(&schedule, &sizes, block_bytes, window, in_flight, offload, cut_through, seed);
    }
}

#[test]
fn larger_groups_with_many_messages() {
    for (algorithm, members) in Algorithm::ALL.iter().flat_map(|&a| [(a, 64), (a, 100)]) {
        let schedule = schedule_of(algorithm, members, 3, 16);
        for (offload, cut_through) in [(None, false), (None, true), (Some(4_096), false)] {
            let (sizes, window) = ([500, 0, 1, 300, 17], Window::default());
            check_world(&schedule, &sizes, 10, window, 2, offload, cut_through, 7);
        }
    }
}

/// All operations are posted at once, or as many as a limit of two or three allows.
#[test]
fn offload_delivers_for_every_small_group_and_message() {
    for algorithm in Algorithm::ALL {
        for members in 1..=9 {
            let schedule = schedule_of(algorithm, members, members / 2, 3);
            for blocks in 1..=7 {
                for limit in [1, 2, 3, 1_000] {
                    let window = Window { receives: 1, sends: 1 + limit % 3 };
                    let sizes = [blocks * 2 - 1, 0, blocks * 2];
                    check_world(&schedule, &sizes, 2, window, 2, Some(limit), false, 11);
                }
            }
        }
    }
}
