//! Messages in files: they arrive whole, once and in order; and failures when a file shrinks or its
//! disk stalls. An unhandled signal would end this process.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read, Seek, Write},
    sync::{
        Arc, Condvar, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use rdmc::{
    Algorithm, Application, Error, Fabric, Failure, FailureKind, Group, GroupSettings, Incoming,
    Progress, Protection, Region, SmallMessages, Storage,
};

use crate::common::{self, Disk, PATIENCE, World, among, contents};

const MEMBERS: u32 = 3;

fn file_of(contents: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(contents).unwrap();
    file
}

fn contents_of(mut file: &File) -> Vec<u8> {
    let mut contents = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut contents).unwrap();
    contents
}

/// The events of an application.
#[derive(Debug)]
enum Event {
    Block(u64),
    Complete,
    Failed(Failure, Vec<u64>),
}

/// Receives every message into the region that `memory` returns.
struct Receiving<M> {
    memory: M,
    events: Sender<Event>,
}

impl<M: FnMut(u64, u64) -> Region + Send + 'static> Application for Receiving<M> {
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        Incoming::Into((self.memory)(message, bytes))
    }

    fn block(&mut self, _: u64, offset: u64, _: u64) {
        let _ = self.events.send(Event::Block(offset));
    }

    fn complete(&mut self, _: u64, _: Region) {
        let _ = self.events.send(Event::Complete);
    }

    fn failed(&mut self, failure: &Failure, regions: Vec<(u64, Region)>) {
        let messages = regions.into_iter().map(|(message, _)| message).collect();
        let _ = self.events.send(Event::Failed(failure.clone(), messages));
    }
}

type Joined = Vec<(Group, Receiver<Event>)>;

/// Joins all members; receivers take messages into the region that `memory` returns for their rank.
fn join<M>(
    world: &World,
    settings: impl Fn(u32) -> GroupSettings + Sync,
    memory: impl Fn(u32) -> M + Sync,
) -> Joined
where
    M: FnMut(u64, u64) -> Region + Send + 'static,
{
    let (settings, memory) = (&settings, &memory);
    std::thread::scope(|scope| {
        let joining: Vec<_> = (0..)
            .zip(&world.contexts)
            .map(|(rank, context)| {
                scope.spawn(move || {
                    let (sender, events) = channel();
                    let application = Receiving { memory: memory(rank), events: sender };
                    let group = context
                        .create_group_with(among(settings(rank), &world.addresses), application);
                    (group.unwrap(), events)
                })
            })
            .collect();
        joining.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn close_all(groups: &Joined, case: &str) {
    std::thread::scope(|scope| {
        for (group, _) in groups {
            scope.spawn(move || {
                group.close(PATIENCE).unwrap_or_else(|error| panic!("{case}: {error}"))
            });
        }
    });
}

fn failure_of(events: &Receiver<Event>) -> (Failure, Vec<u64>) {
    loop {
        if let Event::Failed(failure, regions) = events.recv_timeout(PATIENCE).unwrap() {
            return (failure, regions);
        }
    }
}

/// The networks of this host, each with a protection.
fn networks() -> Vec<(Fabric, Protection)> {
    let mut networks: Vec<_> = Protection::ALL.map(|how| (Fabric::Tcp, how)).into();
    for name in ["ofi-tcp", "sockets"] {
        let fabric: Fabric = name.parse().unwrap();
        let mut settings = common::context_settings(&rdmc::Secret::random().unwrap());
        settings.fabric = fabric.clone();
        match rdmc::Context::start(settings) {
            Ok(context) => {
                context.close(PATIENCE).unwrap();
                networks.push((fabric, Protection::None));
            }
            Err(error) => eprintln!("SKIPPED: over {name}, which needs libfabric: {error}"),
        }
    }
    networks
}

fn world_over(network: &(Fabric, Protection)) -> World {
    let (fabric, protection) = network;
    World::start_with(MEMBERS as usize, |settings| {
        settings.fabric = fabric.clone();
        settings.protection = Some(*protection);
    })
}

fn in_heap(_: u64, bytes: u64) -> Region {
    Region::zeroed(bytes as usize)
}

#[test]
fn files_arrive_whole_in_every_algorithm_over_every_network() {
    let lengths = [0, 1, 999, 1_000, 1_001, 50_500, 3];
    let sent: Vec<Vec<u8>> =
        (0..).zip(lengths).map(|(message, bytes)| contents(message, bytes)).collect();
    for network in networks() {
        let world = world_over(&network);
        let algorithms = Algorithm::ALL.into_iter().filter(|&it| it != Algorithm::InSwitch);
        for (number, algorithm) in (0..).zip(algorithms) {
            for (offload, small) in
                [(false, None), (false, Some(SmallMessages::default())), (true, None)]
            {
                let files: Vec<Vec<File>> = (0..MEMBERS)
                    .map(|_| lengths.iter().map(|&bytes| file_of(&vec![9; bytes])).collect())
                    .collect();
                let settings = |rank| {
                    let mut settings = common::group(number, algorithm, MEMBERS, 0)(rank);
                    (settings.offload, settings.small) = (offload, small);
                    settings
                };
                let groups = join(&world, settings, |rank| {
                    let files: Vec<File> =
                        files[rank as usize].iter().map(|file| file.try_clone().unwrap()).collect();
                    move |message, bytes| {
                        Region::from_file_writable(&files[message as usize], bytes).unwrap()
                    }
                });
                for (index, message) in sent.iter().enumerate() {
                    // Sent from a file and from memory alternately: their order is preserved.
                    let region = if index % 3 == 1 {
                        Region::from_vec(message.clone())
                    } else {
                        Region::from_file(&file_of(message), message.len() as u64).unwrap()
                    };
                    groups[0].0.try_send(region).unwrap();
                }
                let case = format!("{network:?} {algorithm} offload {offload} {small:?}");
                close_all(&groups, &case);
                for files in &files[1..] {
                    for (file, message) in files.iter().zip(&sent) {
                        assert!(contents_of(file) == *message, "{case}");
                    }
                }
            }
        }
        world.close();
    }
}

/// Notes the names of the threads that use it.
struct Watched {
    bytes: Mutex<Vec<u8>>,
    users: Mutex<BTreeSet<String>>,
}

impl Watched {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes: Mutex::new(bytes), users: Mutex::default() })
    }

    fn region(self: &Arc<Self>) -> Region {
        let bytes = self.bytes.lock().unwrap().len() as u64;
        Region::from_storage(Arc::clone(self) as Arc<dyn Storage>, bytes, true).unwrap()
    }

    fn note_user(&self) {
        let name = std::thread::current().name().unwrap_or("no name").to_owned();
        self.users.lock().unwrap().insert(name);
    }
}

impl Storage for Watched {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.note_user();
        into.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..into.len()]);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.note_user();
        self.bytes.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn name(&self) -> String {
        "a watched file".into()
    }
}

/// First blocks, relayed blocks, small messages, offloaded ones: a thread that keeps a member alive or
/// runs callbacks never waits for a disk.
#[test]
fn only_the_storage_thread_of_a_group_accesses_its_files() {
    let lengths = [1, 999, 1_000, 1_001, 50_500, 3];
    let mut networks: Vec<_> =
        networks().into_iter().map(|network| (network, Progress::Thread)).collect();
    networks.push(((Fabric::Tcp, Protection::None), Progress::Caller));
    for network in networks {
        let ((fabric, protection), progress) = &network;
        let world = World::start_with(MEMBERS as usize, |settings| {
            settings.fabric = fabric.clone();
            (settings.protection, settings.progress) = (Some(*protection), *progress);
        });
        let algorithms = Algorithm::ALL.into_iter().filter(|&it| it != Algorithm::InSwitch);
        for (number, algorithm) in (1..).zip(algorithms) {
            for (offload, small) in
                [(false, None), (false, Some(SmallMessages::default())), (true, None)]
            {
                let case = format!("{network:?} {algorithm} offload {offload} {small:?}");
                let files: Vec<Vec<Arc<Watched>>> = (0..MEMBERS)
                    .map(|_| lengths.iter().map(|&bytes| Watched::new(vec![9; bytes])).collect())
                    .collect();
                let settings = |rank| {
                    let mut settings = common::group(number, algorithm, MEMBERS, 0)(rank);
                    (settings.offload, settings.small) = (offload, small);
                    settings
                };
                let groups = join(&world, settings, |rank| {
                    let files = files[rank as usize].clone();
                    move |message, _| files[message as usize].region()
                });
                for (index, file) in files[0].iter().enumerate() {
                    let sent = contents(index as u64, lengths[index]);
                    *file.bytes.lock().unwrap() = sent.clone();
                    // Small messages are sent from memory only.
                    let is_small = index % 2 == 0;
                    let region = if is_small { Region::from_vec(sent) } else { file.region() };
                    groups[0].0.try_send(region).unwrap();
                }
                close_all(&groups, &case);
                let storage = BTreeSet::from([format!("rdmc-storage-{number}")]);
                for (rank, files) in files.iter().enumerate() {
                    for (index, file) in files.iter().enumerate() {
                        let is_used = rank > 0 || index % 2 == 1;
                        let expected = if is_used { &storage } else { &BTreeSet::new() };
                        let case = format!("{case}, member {rank}, message {index}");
                        assert_eq!(*file.users.lock().unwrap(), *expected, "{case}");
                        let sent = contents(index as u64, lengths[index]);
                        assert!(*file.bytes.lock().unwrap() == sent, "{case}");
                    }
                }
            }
        }
        world.close();
    }
}

const BYTES: usize = 2_000_000;

/// When a file shrinks, and to how many bytes.
struct Shrink {
    when: &'static str,
    /// The part of the message that has arrived before.
    at: Option<u64>,
    left: u64,
}

const SHRINKS: [Shrink; 6] = [
    Shrink { when: "before the first block", at: None, left: 0 },
    Shrink { when: "in the first block", at: None, left: 500 },
    Shrink { when: "in the middle", at: None, left: BYTES as u64 / 2 },
    Shrink { when: "in the last block", at: None, left: BYTES as u64 - 1 },
    Shrink { when: "on the way, to nothing", at: Some(100_000), left: 0 },
    Shrink { when: "on the way, by one block", at: Some(100_000), left: BYTES as u64 - 1_000 },
];

/// Truncates a file that the root sends, or that member 1 receives into: all members report a
/// memory error at that member, and no signal ends the process.
fn assert_shrinking_is_named(
    world: &World,
    number: u64,
    settings: &(dyn Fn(u32) -> GroupSettings + Sync),
    bytes: usize,
    culprit: u32,
    shrink: &Shrink,
) {
    let &Shrink { when, at, left } = shrink;
    let file = file_of(&contents(1, bytes));
    let shrink = || file.set_len(left).unwrap();
    let groups = join(
        world,
        |rank| {
            let mut settings = settings(rank).report_blocks(true);
            settings.number = number;
            settings
        },
        |rank| {
            let file = file.try_clone().unwrap();
            move |message, bytes| {
                if rank != culprit {
                    return in_heap(message, bytes);
                }
                let region = Region::from_file_writable(&file, bytes).unwrap();
                if at.is_none() {
                    file.set_len(left).unwrap();
                }
                region
            }
        },
    );
    let source = match culprit {
        0 => Region::from_file(&file, bytes as u64).unwrap(),
        _ => Region::from_vec(contents(1, bytes)),
    };
    if culprit == 0 && at.is_none() {
        shrink();
    }
    groups[0].0.try_send(source).unwrap();
    if let Some(at) = at {
        // Member 1 has a small part of the message: windows are some blocks.
        while !matches!(groups[1].1.recv_timeout(PATIENCE).unwrap(), Event::Block(offset) if offset >= at)
        {
        }
        shrink();
    }
    for (group, events) in &groups {
        let (failure, _) = failure_of(events);
        let case = format!("at member {culprit}, {when}: {failure}");
        assert_eq!((failure.member, failure.kind), (Some(culprit), FailureKind::Memory), "{case}");
        if group.settings().rank == culprit {
            // A receiver may also fail while it reads back a block that it relays.
            let words =
                ["read", "write"].map(|access| format!("the file has shrunk: {access} of "));
            assert!(words.iter().any(|words| failure.detail.starts_with(words)), "{case}");
        }
    }
}

#[test]
fn a_file_that_shrinks_fails_its_group_with_an_error_that_names_the_member() {
    for network in networks() {
        let world = world_over(&network);
        let mut number = 0;
        for culprit in [0, 1] {
            for shrink in &SHRINKS {
                number += 1;
                let settings = common::group(number, Algorithm::Chain, MEMBERS, 0);
                assert_shrinking_is_named(&world, number, &settings, BYTES, culprit, shrink);
            }
        }
        world.close();
    }
}

#[test]
fn a_file_that_shrinks_before_a_small_message_is_an_error_too() {
    for network in networks() {
        let world = world_over(&network);
        for (number, culprit) in [(1, 0), (2, 1)] {
            let settings = |rank| {
                common::group(number, Algorithm::Chain, MEMBERS, 0)(rank)
                    .small(Some(SmallMessages::default()))
            };
            let shrink = Shrink { when: "before a small message", at: None, left: 10 };
            assert_shrinking_is_named(&world, number, &settings, 300, culprit, &shrink);
        }
        world.close();
    }
}

/// A disk that completes reads and writes when the test allows it.
struct Gate {
    bytes: Mutex<Vec<u8>>,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_open: bool,
    /// How many accesses have begun.
    uses: u32,
}

impl Gate {
    fn closed(contents: Vec<u8>) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { bytes: Mutex::new(contents), state, changed })
    }

    fn open(&self) {
        self.state.lock().unwrap().is_open = true;
        self.changed.notify_all();
    }

    /// Waits until a thread waits for the disk.
    fn wait_for_somebody(&self) {
        let state = self.state.lock().unwrap();
        let nobody = |state: &mut GateState| state.uses == 0;
        let (state, waited) = self.changed.wait_timeout_while(state, PATIENCE, nobody).unwrap();
        assert!(state.uses > 0, "the disk is not used, {waited:?}");
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.uses += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.is_open).unwrap());
    }
}

impl Storage for Gate {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.pass();
        into.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..into.len()]);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.pass();
        self.bytes.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn name(&self) -> String {
        "the disk of this test".into()
    }
}

/// Joins group 1, whose root or first receiver has its message behind the gate.
fn join_behind(
    world: &World,
    gate: &Arc<Gate>,
    culprit: u32,
    bytes: usize,
    stall_timeout: Duration,
) -> Joined {
    let region = Region::from_storage(Arc::clone(gate) as Arc<dyn Storage>, bytes as u64, true);
    let region = region.unwrap();
    let groups = join(
        world,
        |rank| {
            common::group(1, Algorithm::BinomialPipeline, MEMBERS, 0)(rank)
                .stall_timeout(stall_timeout)
        },
        |rank| {
            let region = region.clone();
            move |message, bytes| {
                if rank == culprit { region.clone() } else { in_heap(message, bytes) }
            }
        },
    );
    let source = if culprit == 0 { region } else { Region::from_vec(contents(1, bytes)) };
    groups[0].0.try_send(source).unwrap();
    groups
}

/// A disk that stalls for many times the silence timeout delays only its own group.
#[test]
fn a_stalled_disk_delays_its_own_group_only() {
    const BYTES: usize = 300_000;
    const SILENCE_MS: u64 = 400;
    for culprit in [0, 1] {
        let world = World::start_with(MEMBERS as usize, |settings| {
            settings.tcp.silence_timeout = Duration::from_millis(SILENCE_MS);
        });
        let gate = Gate::closed(if culprit == 0 { contents(1, BYTES) } else { vec![0; BYTES] });
        let groups = join_behind(&world, &gate, culprit, BYTES, Duration::from_secs(600));
        gate.wait_for_somebody();
        let others = join(&world, common::group(2, Algorithm::Chain, MEMBERS, 2), |_| in_heap);
        let (since, mut message) = (Instant::now(), 0);
        while since.elapsed() < Duration::from_millis(4 * SILENCE_MS) {
            others[2].0.try_send(Region::from_vec(contents(2, 5_000))).unwrap();
            message += 1;
            for (group, _) in &others {
                group.wait_complete(message, PATIENCE).unwrap();
            }
        }
        assert!(groups.iter().all(|(group, _)| group.failure().is_none()), "member {culprit}");
        gate.open();
        close_all(&groups, "behind the gate");
        close_all(&others, "others");
        assert!(*gate.bytes.lock().unwrap() == contents(1, BYTES));
        world.close();
    }
}

/// When the stall timeout ends the group, all members report whose storage it is; memory that the
/// disk uses is not returned, and closing reports the job that does not end.
#[test]
fn a_disk_that_never_answers_is_named_and_keeps_its_memory() {
    const BYTES: usize = 300_000;
    for culprit in [0, 1] {
        let world = World::start_with(MEMBERS as usize, |_| {});
        let gate = Gate::closed(vec![1; BYTES]);
        let groups = join_behind(&world, &gate, culprit, BYTES, Duration::from_secs(4));
        let access = if culprit == 0 { "read" } else { "write" };
        for (rank, (_, events)) in (0..).zip(&groups) {
            let (failure, regions) = failure_of(events);
            let who = (failure.member, failure.kind);
            assert_eq!(who, (Some(culprit), FailureKind::Stalled), "{failure}");
            if rank == culprit {
                let words =
                    format!("it has waited for its storage ({access} of 1000 bytes of the disk");
                assert!(failure.detail.contains(&words), "{failure}");
                assert!(regions.is_empty(), "memory was handed back that the disk uses");
            }
        }
        drop(groups);
        for (rank, context) in (0..).zip(world.contexts) {
            let closed = context.close(Duration::from_secs(5));
            if rank == culprit {
                let Err(Error::Timeout { what, .. }) = &closed else { panic!("{closed:?}") };
                let words = format!("a {access} of 1000 bytes of the disk of this test");
                assert!(what.contains(&words), "{what}");
            } else {
                closed.unwrap();
            }
        }
        gate.open();
    }
}

/// No call waits for ever for a disk that a failed group still uses, and the disk is not asked for anything more.
#[test]
fn an_aborted_group_ends_without_waiting_for_its_disk() {
    const BYTES: usize = 300_000;
    for culprit in [0, 1] {
        let world = World::start_with(MEMBERS as usize, |_| {});
        let gate = Gate::closed(vec![1; BYTES]);
        let groups = join_behind(&world, &gate, culprit, BYTES, Duration::MAX);
        gate.wait_for_somebody();
        groups[2].0.abort("enough");
        for (_, events) in &groups {
            let (failure, _) = failure_of(events);
            assert_eq!((failure.member, failure.kind), (Some(2), FailureKind::Application));
        }
        gate.open();
        drop(groups);
        world.close();
        assert_eq!(gate.state.lock().unwrap().uses, 1, "member {culprit}");
    }
}

/// The group fails with the panic's text, also without a stall timeout; another group of the context
/// and the same disk goes on.
#[test]
fn a_disk_that_panics_fails_its_group_with_the_text() {
    const BYTES: usize = 100_000;
    let world = World::start(2);
    let settings = |number| {
        let made = common::group(number, Algorithm::Chain, 2, 0);
        move |rank| made(rank).stall_timeout(Duration::MAX)
    };
    let (groups, others) = (world.join_to_receive(settings(1)), world.join_to_receive(settings(2)));
    let (_, region) = Disk::of(BYTES, |_, offset| assert!(offset == 0, "a bug of the disk"));
    groups[1].post_receive_buffer(region).unwrap();
    groups[0].send(Region::from_vec(contents(1, BYTES)), PATIENCE).unwrap();
    for group in &groups {
        let Err(Error::Failed(failure)) = group.wait_complete(2, PATIENCE) else {
            panic!("it goes on")
        };
        assert_eq!((failure.member, failure.kind), (Some(1), FailureKind::Memory), "{failure}");
        assert!(failure.detail.starts_with("it panicked: a bug of the disk"), "{failure}");
    }
    let (disk, region) = Disk::of(BYTES, |_, _| ());
    others[1].post_receive_buffer(region).unwrap();
    others[0].send(Region::from_vec(contents(2, BYTES)), PATIENCE).unwrap();
    others[1].wait_complete(1, PATIENCE).unwrap();
    assert!(*disk.contents.lock().unwrap() == contents(2, BYTES));
    drop(groups);
    world.close();
}
