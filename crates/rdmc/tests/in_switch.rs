//! Groups whose blocks a switch copies, in network namespaces: a real context at each host and a
//! real switch between them. Requires root.

use std::{
    net::SocketAddr,
    os::unix::fs::FileExt,
    process::Command,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use mcrdma::Counter;
use rdmc::{
    Algorithm, Application, Context, ContextSettings, Error, Failure, FailureKind, Group,
    GroupSettings, Incoming, Region, Secret, Suspicion,
};
use testing_switch::hosts::{MTU_BYTES, OneSwitch, Plane, address, run, skipped};

const PATIENCE: Duration = Duration::from_secs(60);
const SILENCE_MS: u64 = 1_500;
const BLOCK_BYTES: u64 = 64 << 10;
const PORT: u16 = 7000;
/// The MTU of the path.
const PACKET_BYTES: u64 = 4096;

fn contents(message: u64, bytes: u64) -> Vec<u8> {
    let mix = |at: u64| (message + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(at + 1);
    (0..bytes).map(|at| (mix(at) >> 32) as u8).collect()
}

fn packets(bytes: u64) -> u64 {
    let (whole, rest) = (bytes / BLOCK_BYTES, bytes % BLOCK_BYTES);
    let of_block = |bytes: u64| bytes.div_ceil(PACKET_BYTES).max(1);
    whole * of_block(BLOCK_BYTES) + if rest > 0 || whole == 0 { of_block(rest) } else { 0 }
}

fn start(host: usize, switch: &OneSwitch) -> Context {
    start_with(host, switch, Duration::from_millis(SILENCE_MS))
}

/// With this silence timeout.
fn start_with(host: usize, switch: &OneSwitch, silence_timeout: Duration) -> Context {
    Context::start(settings(host, switch, silence_timeout)).unwrap()
}

fn settings(host: usize, switch: &OneSwitch, silence_timeout: Duration) -> ContextSettings {
    let listen = SocketAddr::new(address(host), PORT);
    let mut settings = ContextSettings::new(listen, Secret::from_bytes([3; 32]));
    settings.tcp.silence_timeout = silence_timeout;
    settings.connect_timeout = Duration::from_secs(20);
    settings.switches = (host == 0).then(|| Arc::new(switch.clone()) as _);
    settings.delegates = (host != 0).then(|| Arc::new(switch.clone()) as _);
    settings
}

#[derive(Debug)]
enum Event {
    Complete(u64, Region),
    Failed(Failure),
    Closed,
}

/// Receives into this region, if there is one, or else into new memory, and records events.
struct Recorder(Sender<Event>, Option<Region>);

impl Application for Recorder {
    fn incoming(&mut self, _: u64, bytes: u64) -> Incoming {
        Incoming::Into(self.1.take().unwrap_or_else(|| Region::zeroed(bytes as usize)))
    }

    fn complete(&mut self, message: u64, region: Region) {
        let _ = self.0.send(Event::Complete(message, region));
    }

    fn failed(&mut self, failure: &Failure, _: Vec<(u64, Region)>) {
        let _ = self.0.send(Event::Failed(failure.clone()));
    }

    fn closed(&mut self) {
        let _ = self.0.send(Event::Closed);
    }
}

/// Joins group 1 of the first `members` hosts; host 0 is the root.
fn join(context: &Context, host: usize, members: usize) -> Result<(Group, Receiver<Event>), Error> {
    join_as(context, host, members, 1, 0)
}

/// As [`join`], with this number, and this rank of the root.
fn join_as(
    context: &Context,
    host: usize,
    members: usize,
    number: u64,
    root: usize,
) -> Result<(Group, Receiver<Event>), Error> {
    join_into(context, host, members, number, root, None)
}

/// As [`join`], receiving the first message into this region.
fn join_into(
    context: &Context,
    host: usize,
    members: usize,
    number: u64,
    root: usize,
    memory: Option<Region>,
) -> Result<(Group, Receiver<Event>), Error> {
    let rank = (host + root) % members;
    let host_of = |rank: usize| (rank + members - root) % members;
    let addresses: Vec<SocketAddr> =
        (0..members).map(|rank| SocketAddr::new(address(host_of(rank)), PORT)).collect();
    let settings = GroupSettings::new(number, addresses, rank as u32)
        .schedule(Algorithm::InSwitch)
        .root(root as u32)
        .block_bytes(BLOCK_BYTES)
        .messages_in_flight(3);
    let (sender, events) = channel();
    Ok((context.create_group_with(settings, Recorder(sender, memory))?, events))
}

/// Checks that messages of these lengths arrive at this many receivers, whole and in order, and
/// that each block passes the root's link once.
fn deliver(plane: Plane, receivers: usize, lengths: &[u64]) {
    if skipped(plane) {
        return;
    }
    let hosts = receivers + 1;
    let counters = run(
        plane,
        hosts,
        |_| {},
        |host, switch| {
            switch.duplicates.store(2, Ordering::Relaxed);
            let context = start(host, switch);
            let (group, events) = join(&context, host, hosts).unwrap();
            if host == 0 {
                assert_eq!(switch.groups().len(), 1);
                for (message, &bytes) in (0..).zip(lengths) {
                    group.try_send(Region::from_vec(contents(message, bytes))).unwrap();
                }
            }
            for (message, &bytes) in (0..).zip(lengths) {
                let Event::Complete(number, region) = events.recv_timeout(PATIENCE).unwrap() else {
                    panic!("message {message} was not completed at host {host}");
                };
                assert_eq!(number, message);
                let found = region.read(0..region.len()).unwrap();
                assert!(found[..] == contents(message, bytes), "message {message} at host {host}");
            }
            group.close(PATIENCE).unwrap();
            let counters = switch.counters();
            context.close(PATIENCE).unwrap();
            if host == 0 {
                assert_eq!(switch.groups(), [], "it was taken out of the switch");
            }
            counters
        },
    );
    let counted = |counter| counters[0].counted(counter);
    let expected: u64 = lengths.iter().map(|&bytes| packets(bytes)).sum();
    let (sent, copies) = (counted(Counter::Request), counted(Counter::Copy));
    println!("{plane:?}: {sent} packets from the root for {expected}, {copies} copies");
    // Receivers on a busy host may be late, so that some packets are repeated; relaying or sending
    // one by one would take a multiple.
    assert!((expected..expected + expected / 2 + 50).contains(&sent), "{sent} for {expected}");
    assert_eq!(copies + counted(Counter::CopyFailed), sent * receivers as u64);
}

const LENGTHS: [u64; 14] = [
    0,
    1,
    2,
    PACKET_BYTES - 1,
    PACKET_BYTES,
    PACKET_BYTES + 1,
    BLOCK_BYTES - 1,
    BLOCK_BYTES,
    BLOCK_BYTES + 1,
    0,
    1_000_003,
    5 * BLOCK_BYTES,
    3_000_000,
    17,
];

#[test]
fn messages_of_all_lengths_pass_the_roots_link_once() {
    assert!(PACKET_BYTES < u64::from(MTU_BYTES));
    deliver(Plane::Userspace, 3, &LENGTHS);
}

#[test]
fn messages_of_all_lengths_pass_the_roots_link_once_in_the_kernel() {
    deliver(Plane::Kernel, 3, &LENGTHS);
}

/// Each host has several queue pairs, and neither root has rank 0.
#[test]
fn groups_of_the_same_hosts_do_not_mix() {
    if skipped(Plane::Userspace) {
        return;
    }
    const MESSAGES: u64 = 8;
    run(
        Plane::Userspace,
        3,
        |_| {},
        |host, switch| {
            let context = start(host, switch);
            let groups = [1, 2].map(|number| join_as(&context, host, 3, number, number as usize));
            let groups = groups.map(Result::unwrap);
            if host == 0 {
                assert_eq!(switch.groups().len(), 2);
                for message in 0..MESSAGES {
                    for (number, (group, _)) in (1..).zip(&groups) {
                        let bytes = contents(1000 * number + message, 200_000 + number);
                        group.try_send(Region::from_vec(bytes)).unwrap();
                    }
                }
            }
            for (number, (_, events)) in (1..).zip(&groups) {
                for message in 0..MESSAGES {
                    let Event::Complete(_, region) = events.recv_timeout(PATIENCE).unwrap() else {
                        panic!("message {message} of group {number} was not completed");
                    };
                    let expected = contents(1000 * number + message, 200_000 + number);
                    assert!(region.read(0..region.len()).unwrap()[..] == expected, "{message}");
                }
            }
            groups.iter().for_each(|(group, _)| group.close(PATIENCE).unwrap());
            context.close(PATIENCE).unwrap();
        },
    );
}

/// The first group whose blocks switches copy is created in the middle of one message, and the last
/// such group ends in the middle of the next.
#[test]
fn a_relayed_message_continues_while_an_in_switch_group_is_created_and_closed() {
    if skipped(Plane::Userspace) {
        return;
    }
    const BYTES: u64 = 20 * BLOCK_BYTES + 17;
    const HOSTS: usize = 3;
    run(
        Plane::Userspace,
        HOSTS,
        |_| {},
        |host, switch| {
            let context = start(host, switch);
            let addresses = (0..HOSTS).map(|host| (address(host), PORT).into()).collect();
            let settings = GroupSettings::new(7, addresses, host as u32)
                .schedule(Algorithm::Chain)
                .block_bytes(BLOCK_BYTES);
            let (sender, events) = channel();
            let (ask, asked) = channel();
            let (allow, allowed) = channel();
            let application = Hesitant { ask, allowed, recorder: Recorder(sender, None) };
            let relayed = context.create_group_with(settings, application).unwrap();
            let expect = |message| {
                let Event::Complete(number, region) = events.recv_timeout(PATIENCE).unwrap() else {
                    panic!("message {message} was not completed at host {host}");
                };
                let found = region.read(0..region.len()).unwrap();
                assert_eq!(number, message);
                assert!(found[..] == contents(message, BYTES), "message {message} at host {host}");
            };
            let begin = |message| {
                if host == 0 {
                    relayed.send(Region::from_vec(contents(message, BYTES)), PATIENCE).unwrap();
                } else {
                    // Its first block has arrived, and the others follow when it has memory.
                    asked.recv_timeout(PATIENCE).unwrap();
                }
            };
            begin(0);
            let (copied, copied_events) = join(&context, host, HOSTS).unwrap();
            allow.send(()).unwrap();
            if host == 0 {
                copied.send(Region::from_vec(contents(100, BYTES)), PATIENCE).unwrap();
            }
            expect(0);
            let first = copied_events.recv_timeout(PATIENCE).unwrap();
            assert!(matches!(first, Event::Complete(0, _)), "{first:?}");
            begin(1);
            copied.close(PATIENCE).unwrap();
            allow.send(()).unwrap();
            expect(1);
            relayed.close(PATIENCE).unwrap();
            context.close(PATIENCE).unwrap();
        },
    );
}

/// Provides memory for a message when the test allows it.
struct Hesitant {
    ask: Sender<()>,
    allowed: Receiver<()>,
    recorder: Recorder,
}

impl Application for Hesitant {
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        let _ = self.ask.send(());
        let _ = self.allowed.recv_timeout(PATIENCE);
        self.recorder.incoming(message, bytes)
    }

    fn complete(&mut self, message: u64, region: Region) {
        self.recorder.complete(message, region);
    }

    fn failed(&mut self, failure: &Failure, regions: Vec<(u64, Region)>) {
        self.recorder.failed(failure, regions);
    }
}

/// The file shrinks at the root or at a receiver, to any length.
#[test]
fn a_file_that_shrinks_is_an_error_that_names_the_member() {
    const BYTES: u64 = 20 * BLOCK_BYTES;
    if skipped(Plane::Userspace) {
        return;
    }
    let shrinks = [0, 1]
        .into_iter()
        .flat_map(|culprit| [0, 100, BYTES / 2, BYTES - 1].map(|left| (culprit, left)));
    for (culprit, left) in shrinks {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES).unwrap();
        let failures = run(
            Plane::Userspace,
            3,
            |_| {},
            |host, switch| {
                let context = start(host, switch);
                let region =
                    (host == culprit).then(|| Region::from_file_writable(&file, BYTES).unwrap());
                let (group, events) = join_into(&context, host, 3, 1, 0, region.clone()).unwrap();
                if host == 0 {
                    file.set_len(left).unwrap();
                    let memory = || Region::zeroed(BYTES as usize);
                    group.try_send(region.unwrap_or_else(memory)).unwrap();
                }
                let Event::Failed(failure) = events.recv_timeout(PATIENCE).unwrap() else {
                    panic!("it was delivered");
                };
                drop(group);
                context.close(PATIENCE).unwrap();
                failure
            },
        );
        for failure in failures {
            let who = (failure.member, failure.kind);
            assert_eq!(who, (Some(culprit as u32), FailureKind::Memory), "{failure}");
        }
    }
}

/// Messages are sent from a file, and received into one.
#[test]
fn files_pass_through_the_switch() {
    const BYTES: u64 = 1_000_003;
    if skipped(Plane::Userspace) {
        return;
    }
    let files: Vec<_> = (0..3).map(|_| tempfile::tempfile().unwrap()).collect();
    files.iter().for_each(|file| file.set_len(BYTES).unwrap());
    files[0].write_all_at(&contents(0, BYTES), 0).unwrap();
    run(
        Plane::Userspace,
        3,
        |_| {},
        |host, switch| {
            let context = start(host, switch);
            let region = Region::from_file_writable(&files[host], BYTES).unwrap();
            let (group, _events) =
                join_into(&context, host, 3, 1, 0, Some(region.clone())).unwrap();
            if host == 0 {
                group.try_send(region).unwrap();
            }
            group.close(PATIENCE).unwrap();
            context.close(PATIENCE).unwrap();
        },
    );
    for file in files {
        let mut found = vec![0; BYTES as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == contents(0, BYTES));
    }
}

#[test]
fn one_receiver_is_a_group() {
    deliver(Plane::Userspace, 1, &[0, 1, 300_000, 70_000]);
}

/// As in all groups, every surviving member's failure names the member that died.
#[test]
fn a_member_that_dies_ends_the_group() {
    if skipped(Plane::Userspace) {
        return;
    }
    let begun = AtomicBool::new(false);
    let failures = run(
        Plane::Userspace,
        4,
        |_| {},
        |host, switch| {
            let context = start(host, switch);
            let (group, events) = join(&context, host, 4).unwrap();
            if host == 2 {
                // The member dies once a block has arrived.
                let first = events.recv_timeout(PATIENCE).unwrap();
                assert!(matches!(first, Event::Complete(0, _)));
                begun.store(true, Ordering::Relaxed);
                drop((group, context));
                return None;
            }
            let failure = fail(host, &group, &events);
            drop(group);
            context.close(PATIENCE).unwrap();
            Some(failure)
        },
    );
    assert!(begun.load(Ordering::Relaxed));
    for failure in failures.into_iter().flatten() {
        assert_eq!(failure.member, Some(2), "{failure}");
    }
}

/// Runs a group in which the hosts after this one fall silent once a message has arrived, although their links stay
/// up. Returns the failures at the others; links would notice it much later.
fn fall_silent(hosts: usize, last: usize, suspicions: &[Suspicion]) -> Vec<Failure> {
    let over = AtomicUsize::new(0);
    let await_over = || {
        let deadline = Instant::now() + 2 * PATIENCE;
        while over.load(Ordering::Relaxed) <= last && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let failures = run(
        Plane::Userspace,
        hosts,
        |switch| switch.suspicions.lock().unwrap().extend_from_slice(suspicions),
        |host, switch| {
            let context = start_with(host, switch, 10 * PATIENCE);
            let (group, events) = join(&context, host, hosts).unwrap();
            let failure = if host > last {
                assert!(matches!(events.recv_timeout(PATIENCE).unwrap(), Event::Complete(0, _)));
                // No frame fits into this queue.
                tc(&format!("qdisc add dev h{host} root bfifo limit 0"));
                await_over();
                tc(&format!("qdisc del dev h{host} root"));
                None
            } else {
                // Also if it panics, so that the others end.
                let is_over = Over(&over);
                let failure = fail(host, &group, &events);
                drop(is_over);
                await_over();
                Some(failure)
            };
            drop(group);
            drop(context);
            failure
        },
    );
    failures.into_iter().flatten().collect()
}

/// Counts members that are over, when it is dropped.
struct Over<'a>(&'a AtomicUsize);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn tc(words: &str) {
    assert!(Command::new("tc").args(words.split(' ')).status().unwrap().success());
}

#[test]
fn a_host_that_a_switch_suspects_is_asked_and_named() {
    if skipped(Plane::Userspace) {
        return;
    }
    let suspicion = |host: usize| Suspicion {
        member: address(host),
        reason: format!("switch tor: host {host} is silent"),
    };
    // It suspects one that lives, too.
    let failures = fall_silent(4, 2, &[suspicion(1), suspicion(3)]);
    assert_eq!(failures.len(), 3);
    let detail = &failures[0].detail;
    let expected = "switch tor: host 3 is silent, and its host has acknowledged nothing for";
    assert!(detail.contains(expected), "{detail}");
    for failure in failures {
        assert_eq!((failure.member, failure.kind), (Some(3), FailureKind::Lost), "{failure}");
    }
}

/// No switch can tell: it compares receivers with others.
#[test]
fn an_only_host_or_all_hosts_that_fall_silent_are_named() {
    if skipped(Plane::Userspace) {
        return;
    }
    for hosts in [2, 4] {
        let failures = fall_silent(hosts, 0, &[]);
        let [failure] = &failures[..] else { panic!("{failures:?}") };
        assert!(failure.member.is_some_and(|member| member > 0), "{failure}");
        assert_eq!(failure.kind, FailureKind::Lost, "{failure}");
        for expected in ["no block was", "and its host has acknowledged nothing for"] {
            assert!(failure.detail.contains(expected), "{failure}");
        }
    }
}

/// It does not receive for a while, and its host answers.
#[test]
fn a_slow_receiver_stays_though_switches_suspect_it() {
    if skipped(Plane::Userspace) {
        return;
    }
    let suspicion = Suspicion { member: address(2), reason: "switch tor: it is slow".into() };
    run(
        Plane::Userspace,
        3,
        |switch| switch.suspicions.lock().unwrap().push(suspicion),
        |host, switch| {
            let context = start_with(host, switch, 10 * PATIENCE);
            let (group, events) = join(&context, host, 3).unwrap();
            // Time enough to be asked several times.
            let until = Instant::now() + Duration::from_secs(2);
            for message in 0.. {
                if host == 0 {
                    let last = Instant::now() >= until;
                    let bytes = contents(u64::from(last), 100_000);
                    group.send(Region::from_vec(bytes), PATIENCE).unwrap();
                }
                let event = events.recv_timeout(PATIENCE).unwrap();
                let Event::Complete(number, region) = event else { panic!("{event:?}") };
                assert_eq!(number, message);
                if region.read(0..region.len()).unwrap()[..] == contents(1, 100_000) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            group.close(PATIENCE).unwrap();
            context.close(PATIENCE).unwrap();
        },
    );
}

/// Sends messages until the group fails, and returns the failure.
fn fail(host: usize, group: &Group, events: &Receiver<Event>) -> Failure {
    loop {
        if host == 0 {
            // Fails once the group has failed, which is checked below.
            let _ = group.try_send(Region::zeroed(300_000));
        }
        match events.recv_timeout(PATIENCE).unwrap() {
            Event::Complete(..) => {}
            Event::Failed(failure) => return failure,
            Event::Closed => panic!("closed"),
        }
    }
}

/// Runs a group of a root and three receivers until it fails; `after` runs after its first
/// messages.
fn break_by(after: impl Fn(&OneSwitch) + Sync) -> Vec<Failure> {
    let under_way = Barrier::new(2);
    let watch = |switch: &OneSwitch| {
        under_way.wait();
        after(switch);
    };
    run(Plane::Userspace, 4, watch, |host, switch| {
        let context = start(host, switch);
        let (group, events) = join(&context, host, 4).unwrap();
        if host == 0 {
            group.try_send(Region::zeroed(1_000_000)).unwrap();
            assert!(matches!(events.recv_timeout(PATIENCE).unwrap(), Event::Complete(0, _)));
            under_way.wait();
        }
        let failure = fail(host, &group, &events);
        drop(group);
        context.close(PATIENCE).unwrap();
        failure
    })
}

#[test]
fn a_switch_that_loses_the_group_ends_it_and_no_member_is_blamed() {
    if skipped(Plane::Userspace) {
        return;
    }
    for failure in break_by(OneSwitch::forget) {
        assert_eq!((failure.member, failure.kind), (None, FailureKind::Network), "{failure}");
        assert_eq!(failure.reporter, 0, "{failure}");
    }
}

#[test]
fn a_fault_reported_by_a_switch_ends_the_group() {
    if skipped(Plane::Userspace) {
        return;
    }
    let failures = break_by(|switch| {
        *switch.trouble.lock().unwrap() = Some("leaf 3 was started anew".into());
    });
    assert!(failures[0].detail.contains("leaf 3 was started anew"), "{}", failures[0]);
    for failure in failures {
        assert_eq!((failure.member, failure.kind), (None, FailureKind::Network), "{failure}");
    }
}

/// Members that wait receive the reason at once, not a timeout.
#[test]
fn a_refusal_by_a_switch_is_reported_to_all_members() {
    if skipped(Plane::Userspace) {
        return;
    }
    let errors = run(
        Plane::Userspace,
        3,
        |_| {},
        |host, switch| {
            let context = start(host, &switch.refusing("switch leaf-1 has 65536 groups"));
            let error = join(&context, host, 3).map(drop).unwrap_err();
            context.close(PATIENCE).unwrap();
            error
        },
    );
    for error in errors {
        assert!(matches!(error, Error::InSwitch { group: 1, .. }), "{error}");
        assert!(error.to_string().contains("leaf-1 has 65536 groups"), "{error}");
    }
}

/// A receiver that cannot sign is named, to all.
#[test]
fn members_that_cannot_agree_have_no_switch() {
    if skipped(Plane::Userspace) {
        return;
    }
    let errors = run(
        Plane::Userspace,
        3,
        |_| {},
        |host, switch| {
            let mut settings = settings(host, switch, Duration::from_millis(SILENCE_MS));
            if host == 2 {
                settings.delegates = None;
            }
            let context = Context::start(settings).unwrap();
            let error = join(&context, host, 3).map(drop).unwrap_err();
            context.close(PATIENCE).unwrap();
            error
        },
    );
    for (host, error) in errors.into_iter().enumerate() {
        assert!(matches!(error, Error::InSwitch { group: 1, .. }), "{error}");
        let who =
            if host == 2 { "this member cannot join" } else { "member 2 at 10.7.0.3 cannot join" };
        for words in [who, "no certificate", "--cert, --key and --ca"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}

#[test]
fn members_of_one_machine_have_no_switch() {
    let listen = "127.0.0.1:0".parse().unwrap();
    let start = |switches| {
        let mut settings = ContextSettings::new(listen, Secret::from_bytes([3; 32]));
        settings.switches = switches;
        Context::start(settings).unwrap()
    };
    #[derive(Debug)]
    struct None;
    impl rdmc::Switches for None {
        fn insert(
            &self,
            _: &mcrdma::plan::Group,
            _: Duration,
        ) -> Result<Box<dyn rdmc::Inserted>, rdmc::InsertError> {
            panic!("no member could join");
        }
    }
    let contexts = [start(Some(Arc::new(None))), start(Option::None)];
    let addresses = contexts.each_ref().map(Context::address);
    let errors: Vec<Error> = std::thread::scope(|scope| {
        let joining: Vec<_> = (0..)
            .zip(&contexts)
            .map(|(rank, context)| {
                scope.spawn(move || {
                    let settings = GroupSettings::new(1, addresses.to_vec(), rank)
                        .schedule(Algorithm::InSwitch);
                    let (sender, _events) = channel();
                    context.create_group_with(settings, Recorder(sender, Option::None)).map(drop)
                })
            })
            .collect();
        joining.into_iter().map(|thread| thread.join().unwrap().unwrap_err()).collect()
    });
    for error in errors {
        assert!(matches!(error, Error::InSwitch { .. }), "{error}");
        assert!(error.to_string().contains("loopback"), "{error}");
    }
}

#[test]
fn unsupported_groups_are_refused_before_a_switch_is_asked() {
    let listen = "127.0.0.1:0".parse().unwrap();
    let context =
        Context::start(ContextSettings::new(listen, Secret::from_bytes([3; 32]))).unwrap();
    let create = |rank, members: u32| {
        let addresses = vec![context.address(); members as usize];
        let (sender, _events) = channel();
        let settings = GroupSettings::new(1, addresses, rank).schedule(Algorithm::InSwitch);
        context.create_group_with(settings, Recorder(sender, None)).map(drop).unwrap_err()
    };
    let error = create(0, 3);
    assert!(error.to_string().contains("ContextSettings::switches"), "{error}");
    let error = create(1, 66);
    assert!(error.to_string().contains("65 receivers; switches copy to at most 64"), "{error}");
}
