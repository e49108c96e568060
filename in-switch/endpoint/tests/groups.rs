//! Groups of endpoints in network namespaces, through the switch in the kernel and the one in
//! userspace, with faults at every end. Needs root.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use data_plane::{DataPlane, Groups, KernelPlane, UserspacePlane};
use endpoint::{Counts, Endpoint, Event, Faults, Peer};
use mcrdma::{
    Branch, Counter, Counters, GroupKey, Merging, Region, Replication, Rewriting, Source,
};
use roce::{
    Mac, Serial,
    rc::{Kind, RequesterConfig, Status, Work},
};

const ID: u32 = 0x80_0077;
const PSN_FIRST: u32 = 0xff_ff00;
const VIRTUAL_START: u64 = 0x5000_0000;
const BYTES_MAX: u64 = 20_000;
/// Messages that may be open; each WRITE has its own place among this many.
const OPEN: u64 = 8;
const PLACE_BYTES: u64 = 32 << 10;
/// The test fails if no message completes for this long.
const PATIENCE: Duration = Duration::from_secs(120);

fn own_network() {
    lab::enter_own_network().unwrap();
}

fn ip(words: &str) {
    lab::ip(words).unwrap();
}

fn quiet(link: &str) {
    lab::quiet(link, 4200).unwrap();
}

fn skipped() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: needs root (network namespaces)");
    }
    !is_root
}

fn no_kernel_plane() -> bool {
    let possible = KernelPlane::check();
    if let Err(error) = &possible {
        println!("SKIPPED: {error}");
    }
    possible.is_err()
}

fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 3, 0, host as u8 + 1).into()
}

/// A message, as both ends generate it.
struct Message {
    is_write: bool,
    immediate: Option<u32>,
    bytes: Vec<u8>,
}

fn message(index: u64) -> Message {
    let random = |salt: u64| {
        let mixed = (index * 8 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 17
    };
    let length = if random(0) % 4 == 0 { random(1) % 3 } else { random(1) % BYTES_MAX };
    Message {
        is_write: random(2).is_multiple_of(2),
        immediate: random(3).is_multiple_of(2).then_some(index as u32),
        bytes: (0..length).map(|at| (at * 7 + index * 13) as u8).collect(),
    }
}

/// A receiver's addresses and memory.
struct Joined {
    host: usize,
    qpn: u32,
    mac: Mac,
    memory: roce::rc::MemoryRegion,
}

fn config() -> RequesterConfig {
    RequesterConfig {
        mtu_bytes: 1024,
        window_packets: 64,
        ack_packets: 16,
        timeout_ns: 20_000_000,
        retries: 20,
        ..RequesterConfig::default()
    }
}

const fn psn_offset(host: usize) -> u32 {
    host as u32 * 0x1_2345
}

/// A receiver: takes and checks this many messages, and answers until `stop` is set.
fn receive(
    mut endpoint: Endpoint,
    qpn: u32,
    key: u32,
    messages: u64,
    checked: &mpsc::Sender<usize>,
    stop: &AtomicBool,
) -> Counts {
    let posted = |index: u64| message(index);
    let mut next_post = 0;
    let mut arrived = 0;
    while !stop.load(Ordering::Relaxed) {
        // A receive for each message that takes one, well before it comes.
        while next_post < messages && next_post < arrived + 4 * OPEN {
            let message = posted(next_post);
            if !message.is_write || message.immediate.is_some() {
                let room = if message.is_write { 0 } else { message.bytes.len() };
                endpoint.receive(qpn, next_post, vec![0xee; room]).unwrap();
            }
            next_post += 1;
        }
        endpoint.progress(Duration::from_millis(5)).unwrap();
        while let Some(event) = endpoint.completed() {
            let Event::Arrived { arrival, memory, .. } = event else { panic!("{event:?}") };
            let message = posted(arrived);
            assert_eq!(
                (arrival.is_write, arrival.immediate),
                (message.is_write, message.immediate)
            );
            let place = (arrived % OPEN * PLACE_BYTES) as usize;
            let found = match message.is_write {
                true => &endpoint.memory(key).unwrap()[place..place + message.bytes.len()],
                false => &memory[..arrival.bytes as usize],
            };
            assert!(found == message.bytes, "message {arrived} of {} bytes", message.bytes.len());
            arrived += 1;
            if arrived == messages {
                checked.send(0).unwrap();
            }
        }
    }
    endpoint.counts()
}

/// Spreads changes of a group evenly over the messages that are sent through it: neither gets ahead of the other, on
/// whatever machine.
struct Pace {
    messages: u64,
    changes: u64,
    done: AtomicU64,
    changed: AtomicU64,
}

impl Pace {
    fn new(messages: u64, changes: u64) -> Arc<Self> {
        let (done, changed) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { messages, changes, done, changed })
    }

    /// Whether this message may be sent.
    fn has_message(&self, message: u64) -> bool {
        let changed = self.changed.load(Ordering::Relaxed);
        changed == self.changes || message * self.changes < (changed + 1) * self.messages
    }

    /// Waits until the next change is due; whether there is one.
    fn wait(&self) -> bool {
        let changed = self.changed.load(Ordering::Relaxed);
        let deadline = Instant::now() + PATIENCE;
        while self.done.load(Ordering::Relaxed) * self.changes < changed * self.messages {
            assert!(Instant::now() < deadline, "no messages are sent after {changed} changes");
            thread::yield_now();
        }
        changed < self.changes
    }
}

/// Sends this many messages, some at a time.
fn send(endpoint: &mut Endpoint, qpn: u32, messages: u64, pace: &Pace) {
    let (mut posted, mut done) = (0, 0);
    let mut deadline = Instant::now() + PATIENCE;
    while done < messages {
        assert!(Instant::now() < deadline, "{done} of {messages}: {:?}", endpoint.counts());
        while posted < messages && posted < done + OPEN && pace.has_message(posted) {
            let message = message(posted);
            let address = VIRTUAL_START + posted % OPEN * PLACE_BYTES;
            let kind = match message.is_write {
                true => Kind::Write { address, key: 1 },
                false => Kind::Send,
            };
            let bytes = message.bytes.len() as u32;
            let work = Work { id: posted, kind, bytes, immediate: message.immediate };
            endpoint.send(qpn, work, message.bytes).unwrap();
            posted += 1;
        }
        endpoint.progress(Duration::from_millis(5)).unwrap();
        while let Some(event) = endpoint.completed() {
            assert_eq!(event, Event::Sent { qpn, id: done, status: Status::Done });
            done += 1;
            pace.done.store(done, Ordering::Relaxed);
            deadline = Instant::now() + PATIENCE;
        }
    }
}

/// Counters of a switch.
struct Outcome {
    sender: Counts,
    receivers: Vec<Counts>,
    counters: Counters,
    seconds: f64,
}

/// The group's tables, once all receivers have reported.
fn tables(
    sender_qpn: u32,
    joined: &[Joined],
    port: impl Fn(usize) -> u32,
) -> (Replication, Merging) {
    let branch = |joined: &Joined| Branch {
        port: port(joined.host),
        mac: joined.mac,
        target: address(joined.host),
        rewriting: Some(Rewriting {
            qpn: joined.qpn,
            psn_offset: psn_offset(joined.host),
            regions: vec![Region {
                start: VIRTUAL_START,
                bytes: joined.memory.bytes,
                member_start: joined.memory.start,
                member_key: joined.memory.key,
            }],
        }),
    };
    let source = |joined: &Joined| Source {
        address: address(joined.host),
        psn_offset: psn_offset(joined.host),
        ports: vec![port(joined.host)],
    };
    let merging = Merging {
        psn_first: Serial::new(PSN_FIRST),
        virtual_address: address(200),
        virtual_mac: Some(Mac([2, 0, 0, 0, 9, 9])),
        members: joined.iter().map(source).collect(),
        all_notifications: false,
    };
    let branches = joined.iter().map(branch).collect();
    (Replication { sender_qpn, inputs: vec![port(0)], branches }, merging)
}

/// Host 0 sends to `receivers` others, through the switch that `start` makes of the ports `s0` on;
/// `start` inserts the group of the tables that it gets, and returns a function that reads the counters.
fn run(
    receivers: usize,
    messages: u64,
    faults: Faults,
    start: impl FnOnce(&[String]) -> Inserting,
) -> Outcome {
    run_at(&Pace::new(messages, 0), receivers, faults, start)
}

fn run_at(
    pace: &Pace,
    receivers: usize,
    faults: Faults,
    start: impl FnOnce(&[String]) -> Inserting,
) -> Outcome {
    let messages = pace.messages;
    own_network();
    let ports: Vec<String> = (0..=receivers).map(|port| format!("s{port}")).collect();
    for (host, port) in ports.iter().enumerate() {
        ip(&format!("link add {port} type veth peer name h{host}"));
        quiet(port);
    }
    let insert = start(&ports);
    let stop = AtomicBool::new(false);
    let (moves, moved) = (Barrier::new(receivers + 2), Barrier::new(receivers + 2));
    let (tell_thread, threads) = mpsc::channel::<(usize, i32)>();
    let (tell_sender, sender) = mpsc::channel();
    let (tell_joined, joined) = mpsc::channel();
    let (tell_checked, checked) = mpsc::channel();
    let open = |host: usize| {
        own_network();
        tell_thread.send((host, rustix::thread::gettid().as_raw_pid())).unwrap();
        moves.wait();
        ip(&format!("addr add {}/24 dev h{host}", address(host)));
        quiet(&format!("h{host}"));
        let mut endpoint = Endpoint::open(&format!("h{host}"), address(host)).unwrap();
        let seed = faults.seed + 100 * host as u64;
        if faults != (Faults { seed: faults.seed, ..Faults::default() }) {
            endpoint.inject(Faults { seed, ..faults });
        }
        moved.wait();
        endpoint
    };
    thread::scope(|scope| {
        let (go, gone) = mpsc::channel::<()>();
        let open = &open;
        let sending = scope.spawn(move || {
            let mut endpoint = open(0);
            let peer = Peer { address: address(200), qpn: ID, next_hop: None };
            let qpn = endpoint.queue_pair(peer, config(), PSN_FIRST, 0);
            tell_sender.send(qpn).unwrap();
            gone.recv().unwrap();
            let begin = Instant::now();
            send(&mut endpoint, qpn, messages, pace);
            (endpoint.counts(), begin.elapsed().as_secs_f64())
        });
        let (sender_qpns, receiving): (Vec<_>, Vec<_>) = (1..=receivers)
            .map(|host| {
                let (sender_qpn, connected) = mpsc::channel::<u32>();
                let (tell_joined, tell_checked) = (tell_joined.clone(), tell_checked.clone());
                let stop = &stop;
                let thread = scope.spawn(move || {
                    let mut endpoint = open(host);
                    let memory = endpoint.register((OPEN * PLACE_BYTES) as usize);
                    let peer = Peer {
                        address: address(0),
                        qpn: connected.recv().unwrap(),
                        next_hop: None,
                    };
                    let first = (PSN_FIRST + psn_offset(host)) % (1 << 24);
                    let qpn = endpoint.queue_pair(peer, config(), 0, first);
                    let mac = endpoint.mac();
                    tell_joined.send(Joined { host, qpn, mac, memory }).unwrap();
                    receive(endpoint, qpn, memory.key, messages, &tell_checked, stop)
                });
                (sender_qpn, thread)
            })
            .unzip();
        for _ in 0..=receivers {
            let (host, thread) = threads.recv().unwrap();
            ip(&format!("link set h{host} netns {thread}"));
        }
        moves.wait();
        moved.wait();
        let sender_qpn: u32 = sender.recv().unwrap();
        sender_qpns
            .iter()
            .for_each(|channel: &mpsc::Sender<u32>| channel.send(sender_qpn).unwrap());
        let mut all: Vec<Joined> = (0..receivers).map(|_| joined.recv().unwrap()).collect();
        all.sort_by_key(|joined| joined.host);
        let number = |host: usize| KernelPlane::port_number(&format!("s{host}")).unwrap();
        let (replication, merging) = tables(sender_qpn, &all, number);
        let counters = insert(GroupKey { sender: address(0), id: ID }, replication, merging);
        go.send(()).unwrap();
        let (sender, seconds) = sending.join().unwrap();
        for _ in 0..receivers {
            checked.recv_timeout(PATIENCE).expect("a receiver has everything");
        }
        stop.store(true, Ordering::Relaxed);
        let receivers = receiving.into_iter().map(|thread| thread.join().unwrap()).collect();
        Outcome { sender, receivers, counters: counters(), seconds }
    })
}

type Inserting = Box<dyn FnOnce(GroupKey, Replication, Merging) -> Box<dyn FnOnce() -> Counters>>;

/// The switch in userspace, in a thread of its own until the counters are read.
fn in_userspace(ports: &[String]) -> Inserting {
    let mut plane = UserspacePlane::open(ports.iter().map(String::as_str)).unwrap();
    let (tables, stop) = (plane.tables(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || plane.run(&stopped).unwrap());
    Box::new(move |key, replication, merging| {
        tables.lock().tables.insert(key, replication, Some(merging)).unwrap();
        Box::new(move || {
            stop.store(true, Ordering::Relaxed);
            thread.join().unwrap();
            tables.lock().tables.counters
        })
    })
}

fn bridge() {
    ip("link add name bridge0 type bridge mcast_snooping 0");
    quiet("bridge0");
}

/// A new one for maps.
fn directory() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("/sys/fs/bpf/rdmc-test-endpoint-{number}-{}", std::process::id()).into()
}

/// The switch in the kernel, on a bridge.
fn in_the_kernel(ports: &[String]) -> Inserting {
    bridge();
    let mut plane = KernelPlane::open(&directory()).unwrap();
    for port in ports {
        ip(&format!("link set {port} master bridge0"));
        plane.attach(port).unwrap();
    }
    Box::new(move |key, replication, merging| {
        plane.insert(key, &replication, Some(&merging)).unwrap();
        Box::new(move || {
            let counters = plane.counters().unwrap();
            plane.unpin().unwrap();
            counters
        })
    })
}

/// Changes a group at this pace, until its counters are read: all changes have been made then.
fn changing(pace: Arc<Pace>, mut groups: Groups, stop: impl FnOnce() + 'static) -> Inserting {
    Box::new(move |key, replication, merging| {
        groups.insert(key, replication.clone(), Some(merging)).unwrap();
        let thread = thread::spawn(move || {
            while pace.wait() {
                let change = pace.changed.load(Ordering::Relaxed) + 1;
                assert!(groups.replace(key, changed(&replication, change)).unwrap());
                pace.changed.store(change, Ordering::Relaxed);
            }
            groups.counters().unwrap()
        });
        Box::new(move || {
            let counters = thread.join().unwrap();
            stop();
            counters
        })
    })
}

/// The group after this many changes: other members, which have no endpoint, leave and join at every place, and the ones with
/// endpoints are at other places.
fn changed(replication: &Replication, change: u64) -> Replication {
    let mut branches = replication.branches.clone();
    let places = branches.len();
    branches.rotate_left(change as usize % places);
    for other in 0..change * 7 % 6 {
        let mut branch = branches[other as usize % places].clone();
        branch.mac = Mac([2, 0, 0, 0, 8, other as u8]);
        branch.target = address(100 + other as usize);
        if let Some(rewriting) = &mut branch.rewriting {
            (rewriting.qpn, rewriting.psn_offset) = (0x9000 + other as u32, other as u32 * 999);
        }
        branches.insert((change + other * 3) as usize % (branches.len() + 1), branch);
    }
    Replication { branches, ..replication.clone() }
}

/// One sender and three receivers, which compare the contents of all messages; nothing is repeated.
fn check_changes(outcome: &Outcome, pace: &Pace) {
    let counted = |counter| outcome.counters.counted(counter);
    let changes = pace.changed.load(Ordering::Relaxed);
    assert_eq!(changes, pace.changes);
    let copies = counted(Counter::Copy);
    println!("{changes} changes during {} messages, {copies} copies", pace.messages);
    assert!(copies >= 3 * outcome.sender.requests_sent);
    assert_eq!(counted(Counter::CopyFailed) + counted(Counter::RegionUnknown), 0);
    assert_eq!(counted(Counter::IcrcError), 0);
}

/// Through a switch in userspace.
fn change_in_userspace(changes: u64) {
    let pace = Pace::new(4 * changes, changes);
    let changes = Arc::clone(&pace);
    let outcome = run_at(&pace, 3, Faults::default(), move |ports| {
        let mut plane = UserspacePlane::open(ports.iter().map(String::as_str)).unwrap();
        let (tables, stop) = (plane.tables(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || plane.run(&stopped).unwrap());
        changing(changes, Groups::in_userspace(tables), move || {
            stop.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        })
    });
    check_changes(&outcome, &pace);
}

/// Through a switch in the kernel.
fn change_in_kernel(changes: u64) {
    let pace = Pace::new(4 * changes, changes);
    let changes = Arc::clone(&pace);
    let outcome = run_at(&pace, 3, Faults::default(), move |ports| {
        bridge();
        let directory = directory();
        let mut groups = Groups::in_kernel(&directory).unwrap();
        for port in ports {
            ip(&format!("link set {port} master bridge0"));
            groups.kernel().unwrap().attach(port).unwrap();
        }
        changing(changes, groups, move || std::fs::remove_dir_all(&directory).unwrap())
    });
    check_changes(&outcome, &pace);
}

#[test]
fn groups_that_change_under_sends_and_writes_through_the_switch_in_userspace() {
    if !skipped() {
        change_in_userspace(100);
    }
}

#[test]
fn groups_that_change_under_sends_and_writes_through_the_switch_in_the_kernel() {
    if !skipped() && !no_kernel_plane() {
        change_in_kernel(100);
    }
}

#[test]
#[ignore = "takes minutes; for every night"]
fn a_thousand_changes_under_sends_and_writes_through_the_switch_in_userspace() {
    if !skipped() {
        change_in_userspace(1000);
    }
}

#[test]
#[ignore = "takes minutes; for every night"]
fn a_thousand_changes_under_sends_and_writes_through_the_switch_in_the_kernel() {
    if !skipped() && !no_kernel_plane() {
        change_in_kernel(1000);
    }
}

/// Messages with about the requested number of packets.
const fn messages(packets: u64) -> u64 {
    // On average 3/4 of them have 10 packets.
    packets / 8
}

fn check(outcome: &Outcome, receivers: usize, has_faults: bool) {
    let Outcome { sender, receivers: all, counters, seconds } = outcome;
    let counted = |counter| counters.counted(counter);
    println!(
        "{} requests, {} repeated, {:.0} a second; {} faults; switch: {} copies, {} ACKs, {} NAKs \
         forwarded, {} answers suppressed, {} ICRC errors",
        sender.requests_sent,
        sender.requests_repeated,
        sender.requests_sent as f64 / seconds,
        sender.faults_injected + all.iter().map(|counts| counts.faults_injected).sum::<u64>(),
        counted(Counter::Copy),
        counted(Counter::AckForwarded),
        counted(Counter::NakForwarded),
        counted(Counter::AnswerSuppressed),
        counted(Counter::IcrcError),
    );
    assert_eq!(all.len(), receivers);
    // A WRITE whose address was damaged on its way to the switch is not copied, nor a request that became one of a kind
    // that is for one receiver.
    let refused = counted(Counter::RegionUnknown) + counted(Counter::RequestRefused);
    let copied = counted(Counter::Request) - refused;
    assert_eq!(counted(Counter::Copy) + counted(Counter::CopyFailed), copied * receivers as u64);
    if has_faults {
        assert!(sender.requests_repeated > 0 && counted(Counter::NakForwarded) > 0);
        assert!(counted(Counter::IcrcError) > 0);
    } else {
        // The sender's link carries each packet once, unless a busy host was late.
        assert_eq!(counted(Counter::Request), sender.requests_sent);
        assert_eq!(counted(Counter::IcrcError) + counted(Counter::CopyFailed), 0);
    }
}

const FAULTS: Faults =
    Faults { loss: 0.01, duplicate: 0.005, reorder: 0.005, corrupt: 0.005, mark: 0.0, seed: 7 };

#[test]
fn a_group_through_the_switch_in_userspace() {
    if skipped() {
        return;
    }
    check(&run(3, messages(16_000), Faults::default(), in_userspace), 3, false);
}

#[test]
fn faults_at_every_end_through_the_switch_in_userspace() {
    if skipped() {
        return;
    }
    check(&run(3, messages(16_000), FAULTS, in_userspace), 3, true);
}

#[test]
fn groups_through_the_switch_in_the_kernel() {
    if skipped() || no_kernel_plane() {
        return;
    }
    for receivers in [1, 3, 7] {
        let outcome = run(receivers, messages(8_000), Faults::default(), in_the_kernel);
        check(&outcome, receivers, false);
    }
}

#[test]
fn faults_at_every_end_through_the_switch_in_the_kernel() {
    if skipped() || no_kernel_plane() {
        return;
    }
    check(&run(3, messages(16_000), FAULTS, in_the_kernel), 3, true);
}

/// As [`Outcome`] is checked, and the switch has made at least a million copies; members compare every
/// byte that arrives.
fn check_million(outcome: &Outcome) {
    const COPIES_MIN: u64 = 1_000_000;
    check(outcome, 3, true);
    let copies = outcome.counters.counted(Counter::Copy);
    assert!(copies >= COPIES_MIN, "{copies} copies");
    println!("no wrong byte in {copies} packets, some of which were lost at every place");
}

#[test]
#[ignore = "takes minutes; for every night"]
fn a_million_packets_with_faults_at_every_end_through_the_switch_in_userspace() {
    if skipped() {
        return;
    }
    check_million(&run(3, messages(400_000), FAULTS, in_userspace));
}

#[test]
#[ignore = "takes minutes; for every night"]
fn a_million_packets_with_faults_at_every_end_through_the_switch_in_the_kernel() {
    if skipped() || no_kernel_plane() {
        return;
    }
    check_million(&run(3, messages(400_000), FAULTS, in_the_kernel));
}
