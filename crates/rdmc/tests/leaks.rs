//! Groups and contexts release all resources, however they end. One test, alone in its process,
//! since it counts the resources of the process.

mod common;

use std::{
    fs,
    io::Read,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use common::{Event, PATIENCE, Recorder, World, among, close_all, contents, group};
use rdmc::{Algorithm, Fabric, Group, GroupSettings, Progress, Region};
use transport_contract::CountingAllocator;

#[global_allocator]
static MEMORY: CountingAllocator = CountingAllocator::new();

/// What tables, queues and the test itself may retain: a fraction of a byte for each group, less
/// than any resource of a group takes.
const SLACK_BYTES: usize = 16 << 10;
const SLACK_ALLOCATIONS: usize = 64;
/// Resident memory is counted in pages, and freed pages are not returned at once.
const SLACK_RESIDENT_KIB: usize = 8 << 10;
/// How often something is repeated that has left more than there was.
const ROUNDS_MAX: usize = 4;
/// How long threads and tables may take to release what has ended. An unused connection is closed only later.
const SETTLING: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    allocations: usize,
    bytes: usize,
    resident_kib: usize,
}

impl Held {
    fn now() -> Self {
        let count = |directory: &str| fs::read_dir(directory).unwrap().count();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            allocations: MEMORY.allocations(),
            bytes: MEMORY.bytes(),
            resident_kib: resident.trim_end_matches("kB").trim().parse().unwrap(),
        }
    }

    fn is_no_more_than(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.allocations <= before.allocations + SLACK_ALLOCATIONS
            && self.bytes <= before.bytes + SLACK_BYTES
            && self.resident_kib <= before.resident_kib + SLACK_RESIDENT_KIB
    }
}

/// Checks that after the first `warm_up` of `all`, which fill pools and tables, no more resources are held. The rest is run
/// again, with other numbers, if they are: a buffer may grow once to what a rare moment needs, a leak grows each time.
fn leaves_nothing(what: &str, warm_up: u64, all: Range<u64>, run: impl Fn(Range<u64>)) {
    let (first, rest) = (all.start..all.start + warm_up, all.start + warm_up..all.end);
    let started = Instant::now();
    run(first);
    // Threads that have answered a connection end a moment later.
    thread::sleep(Duration::from_millis(200));
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS_MAX {
        let (before, shift) = (Held::now(), rounds.len() as u64 * 1_000_000);
        run(rest.start + shift..rest.end + shift);
        if settles(&before) {
            println!("{what}: {before:?} before, {:?} now, {:?}", Held::now(), started.elapsed());
            return;
        }
        rounds.push(before);
    }
    panic!("{what}: {rounds:?} before each round, {:?} now", Held::now());
}

/// Waits until no more is held than before.
fn settles(before: &Held) -> bool {
    let deadline = Instant::now() + SETTLING;
    while !Held::now().is_no_more_than(before) {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

fn chain(number: u64) -> impl Fn(u32) -> GroupSettings + Sync {
    group(number, Algorithm::Chain, 3, 0)
}

/// Creates, uses and closes groups, each with a new number.
fn use_groups(world: &World, numbers: Range<u64>) {
    for number in numbers {
        let groups = world.join(chain(number));
        groups[0].0.try_send(Region::from_vec(contents(0, 3_000))).unwrap();
        close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    }
}

/// Ends groups in the middle of a message: a member aborts, or drops its group.
fn fail_groups(world: &World, numbers: Range<u64>) {
    for number in numbers {
        let mut groups = world.join(chain(number));
        groups[0].0.try_send(Region::from_vec(contents(0, 300_000))).unwrap();
        let culprit = (number % 3) as usize;
        if number % 2 == 0 {
            groups[culprit].0.abort("enough");
        } else {
            drop(groups.remove(culprit).0);
        }
        for (_, events) in &groups {
            let failure = events.iter().find_map(|event| match event {
                Event::Failed(failure, _) => Some(failure),
                _ => None,
            });
            assert_eq!(failure.expect("a failure").member, Some(culprit as u32));
        }
    }
}

/// Uses groups without callbacks: messages are read, taken, dropped or never received, and groups
/// closed, dropped or aborted.
fn receive_in_groups(world: &World, numbers: Range<u64>) {
    for number in numbers {
        let groups = world.join_to_receive(chain(number));
        groups[1].post_receive_buffer(Region::from_vec(vec![0; 4_000])).unwrap();
        let sent = [0, 1, 2]
            .map(|message| groups[0].try_send(Region::from_vec(contents(message, 3_000))).unwrap());
        let mut message = groups[1].receive(PATIENCE).unwrap().expect("a message");
        message.read_to_end(&mut Vec::new()).unwrap();
        drop(groups[2].receive(PATIENCE).unwrap());
        let [first, ..] = sent;
        first.into_region(PATIENCE).unwrap();
        message.into_region(PATIENCE).unwrap();
        match number % 3 {
            0 => thread::scope(|scope| {
                for group in &groups {
                    scope.spawn(|| group.close(PATIENCE).unwrap());
                }
            }),
            1 => groups[1].abort("enough"),
            _ => {}
        }
    }
}

/// Sends messages in one group that stays open.
fn receive_messages(groups: &[Group], numbers: Range<u64>) {
    for number in numbers {
        let handle = groups[0].try_send(Region::from_vec(contents(number, 3_000))).unwrap();
        for group in &groups[1..] {
            let message = group.receive(PATIENCE).unwrap().expect("a message");
            match number % 2 {
                0 => drop(message.into_region(PATIENCE).unwrap()),
                _ => drop(message),
            }
        }
        match number % 3 {
            0 => drop(handle.into_region(PATIENCE).unwrap()),
            _ => handle.wait(PATIENCE).unwrap(),
        }
    }
    let sent = groups[0].try_send(Region::from_vec(Vec::new())).unwrap();
    for group in groups {
        // All members have completed the dropped messages.
        group.wait_complete(sent.message() + 1, PATIENCE).unwrap();
    }
    for group in &groups[1..] {
        drop(group.receive(PATIENCE).unwrap());
    }
}

/// Counts something once it stays the same: a new link opens two descriptors for a moment, to look whether its
/// peer is a process of this machine, and threads that have answered a connection end a moment later.
fn steady(count: impl Fn(Held) -> usize) -> usize {
    let mut counts = [usize::MAX; 4];
    loop {
        counts.rotate_left(1);
        counts[3] = count(Held::now());
        if counts.iter().all(|&count| count == counts[3]) {
            return counts[3];
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that groups which are open at the same time have no connections of their own.
fn open_groups_hold_no_descriptors(world: &World, numbers: Range<u64>) {
    if common::fabric() != Fabric::Tcp {
        // There each group has queue pairs of its own.
        return;
    }
    let first = world.join_to_receive(chain(numbers.start));
    let before = steady(|held| held.descriptors);
    let others = numbers.skip(1).map(|number| world.join_to_receive(chain(number)));
    let others: Vec<_> = others.collect();
    assert_eq!(steady(|held| held.descriptors), before, "{} groups", others.len());
    drop((first, others));
}

/// Checks that groups without callbacks which are open at the same time have no threads of their own: not
/// while they are idle, nor once they have received.
fn open_groups_hold_no_threads(progress: Progress) {
    let world = World::start_with(2, |settings| settings.progress = progress);
    let pair = |number| world.join_to_receive(group(number, Algorithm::Chain, 2, 0));
    let use_group = |groups: &[Group]| {
        thread::scope(|scope| {
            // The root's handle and the receiver's message are dropped before they are complete.
            scope.spawn(|| {
                groups[0].send(Region::from_vec(contents(0, 3_000)), PATIENCE).unwrap();
                groups[0].wait_complete(1, PATIENCE).unwrap();
            });
            drop(groups[1].receive(PATIENCE).unwrap().expect("a message"));
            groups[1].wait_complete(1, PATIENCE).unwrap();
        });
    };
    let first = pair(1);
    use_group(&first);
    let before = steady(|held| held.threads);
    let others: Vec<_> = (2..202).map(pair).collect();
    others.iter().for_each(|groups| use_group(groups));
    assert_eq!(steady(|held| held.threads), before, "{} groups, {progress:?}", others.len());
    drop((first, others));
    world.close();
}

/// Creates groups that only one member joins.
fn miss_members(world: &World, numbers: Range<u64>) {
    for number in numbers {
        let context = &world.contexts[2];
        let (sender, _events) = std::sync::mpsc::channel();
        let missed =
            context.create_group_with(among(chain(number)(2), &world.addresses), Recorder(sender));
        assert!(missed.is_err());
    }
}

/// Uses contexts with a group that is closed, or of which one member dies.
fn use_contexts(numbers: Range<u64>) {
    for number in numbers {
        let mut world = World::start(3);
        let groups = world.join(chain(number));
        groups[0].0.try_send(Region::from_vec(contents(0, 3_000))).unwrap();
        if number % 2 == 0 {
            close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
        } else {
            drop(world.contexts.remove(1));
            assert!(groups[0].1.iter().any(|event| matches!(event, Event::Failed(..))));
        }
        drop(groups);
        world.close();
    }
}

#[test]
fn groups_and_contexts_leak_nothing_however_they_end() {
    let world = World::start(3);
    leaves_nothing("groups", 200, 0..2_000, |numbers| use_groups(&world, numbers));
    leaves_nothing("groups that fail", 50, 2_000..2_400, |numbers| fail_groups(&world, numbers));
    leaves_nothing("groups without callbacks", 100, 2_400..2_900, |numbers| {
        receive_in_groups(&world, numbers);
    });
    open_groups_hold_no_descriptors(&world, 2_900..2_930);
    [Progress::Thread, Progress::Caller].into_iter().for_each(open_groups_hold_no_threads);
    let groups = world.join_to_receive(chain(3_000));
    leaves_nothing("messages", 500, 0..3_000, |numbers| receive_messages(&groups, numbers));
    drop(groups);
    world.close();
    let world = World::start_with(3, |settings| {
        settings.connect_timeout = Duration::from_millis(10);
    });
    leaves_nothing("groups that other members do not join", 20, 0..100, |numbers| {
        miss_members(&world, numbers)
    });
    world.close();
    leaves_nothing("contexts", 50, 0..200, use_contexts);
}
