//! Behaviour on invalid input and when members fail, over any fabric (see `common`).

use std::{
    io::Read,
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

use rdmc::{
    Algorithm, Application, Context, Error, FailureKind, GroupSettings, Incoming, Region,
    RelayError, Secret, Window,
};

use crate::common::{
    Event, PATIENCE, Recorder, World, among, close_all, contents, context_settings, group,
};

fn pipeline(number: u64, members: u32) -> impl Fn(u32) -> GroupSettings + Sync {
    group(number, Algorithm::BinomialPipeline, members, 0)
}

/// Returns the one failure that was reported to a member, as its last event.
fn failure_of(events: &std::sync::mpsc::Receiver<Event>) -> rdmc::Failure {
    loop {
        match events.recv_timeout(PATIENCE).expect("a failure") {
            Event::Failed(failure, _) => {
                assert!(events.recv_timeout(Duration::from_millis(50)).is_err(), "comes last");
                return failure;
            }
            Event::Closed => panic!("closed instead of failed"),
            _ => {}
        }
    }
}

#[test]
fn a_member_that_aborts_is_named_once_at_each_member_and_other_groups_continue() {
    let world = World::start(8);
    let failing = world.join(pipeline(1, 8));
    let other = world.join(group(2, Algorithm::Chain, 8, 3));
    failing[0].0.try_send(Region::zeroed(50_000)).unwrap();
    failing[5].0.abort("the disk is full");
    for (_, events) in &failing {
        let failure = failure_of(events);
        assert_eq!((failure.member, failure.kind), (Some(5), FailureKind::Application));
        assert!(failure.detail.contains("the disk is full"), "{failure}");
    }
    assert!(matches!(failing[0].0.try_send(Region::zeroed(1)), Err(Error::Failed(_))));
    assert!(matches!(failing[2].0.close(PATIENCE), Err(Error::Failed(_))));
    other[3].0.try_send(Region::from_vec(contents(0, 50_000))).unwrap();
    close_all(&other).into_iter().for_each(|closed| closed.unwrap());
    world.close();
}

/// Over a real network; `./dev sim` covers the other cases.
#[test]
fn a_failure_reports_how_many_messages_reached_all_members() {
    let world = World::start(5);
    let groups = world.join(pipeline(1, 5));
    for _ in 0..3 {
        groups[0].0.try_send(Region::zeroed(50_000)).unwrap();
    }
    let is_last = |event| matches!(event, Event::Received(2));
    for (_, events) in &groups[1..] {
        while !is_last(events.recv_timeout(PATIENCE).expect("three messages")) {}
    }
    groups[3].0.abort("enough");
    for (_, events) in &groups {
        assert_eq!(failure_of(events).delivered, 3);
    }
    drop(groups);
    world.close();
}

#[test]
fn dropping_a_context_fails_its_groups_at_all_members() {
    let mut world = World::start(5);
    let groups = world.join(group(1, Algorithm::Chain, 5, 0));
    drop(world.contexts.remove(2));
    for (rank, (_, events)) in groups.iter().enumerate() {
        assert_eq!(failure_of(events).member, Some(2), "at member {rank}");
    }
    world.close();
}

#[test]
fn a_context_that_closes_right_after_a_failure_still_reports_the_cause_to_others() {
    for number in 0..20 {
        let mut world = World::start(3);
        let mut groups = world.join(group(number, Algorithm::Sequential, 3, 0));
        // The file is shorter than its region, which is detected before anything is posted.
        let file = tempfile::tempfile().unwrap();
        let (root, events) = groups.remove(0);
        root.try_send(Region::from_file(&file, 50_000).unwrap()).unwrap();
        while !matches!(events.recv_timeout(PATIENCE).expect("a failure"), Event::Failed(..)) {}
        drop(root);
        world.contexts.remove(0).close(PATIENCE).unwrap();
        for (_, events) in &groups {
            let failure = failure_of(events);
            let cause = (failure.member, failure.kind);
            assert_eq!(cause, (Some(0), FailureKind::Memory), "{failure}");
        }
        world.close();
    }
}

#[test]
fn dropping_a_group_fails_it_for_everybody() {
    let world = World::start(3);
    let mut groups = world.join(pipeline(1, 3));
    drop(groups.remove(1).0);
    assert_eq!(failure_of(&groups[0].1).member, Some(1));
    assert_eq!(failure_of(&groups[1].1).member, Some(1));
    world.close();
}

#[test]
fn mismatched_group_settings_are_named_at_both_ends() {
    type Change = fn(&mut GroupSettings);
    let changes: [(&str, Change); 3] = [
        ("block size", |settings| settings.block_bytes = Some(77)),
        ("root", |settings| settings.root = 1),
        ("algorithm", |settings| settings.schedule = Algorithm::Sequential.into()),
    ];
    let world = World::start(2);
    for (number, (what, change)) in (0..).zip(changes) {
        let settings = |rank| {
            let mut settings = pipeline(number, 2)(rank);
            if rank == 1 {
                change(&mut settings);
            }
            settings
        };
        for (group, _) in world.join_results(settings, |_| Recorder) {
            let error = group.unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
    world.close();
}

#[test]
fn another_secret_is_refused_with_the_reason() {
    let contexts = [1, 2].map(|byte| {
        let mut settings = context_settings(&Secret::from_bytes([byte; 32]));
        if byte == 1 {
            settings.connect_timeout = Duration::from_millis(200);
        }
        Context::start(settings).unwrap()
    });
    let addresses = [contexts[0].address(), contexts[1].address()];
    let (sender, _events) = channel();
    let refused =
        contexts[1].create_group_with(among(pipeline(1, 2)(1), &addresses), Recorder(sender));
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("member 0") && error.contains("secret"), "{error}");
    // The other one learns of it as well, though it only waits.
    let (sender, _events) = channel();
    let missed =
        contexts[0].create_group_with(among(pipeline(1, 2)(0), &addresses), Recorder(sender));
    let error = missed.unwrap_err().to_string();
    let told = format!("{} was refused: it ", addresses[1].ip());
    assert!(error.contains("members 1") && error.contains(&told), "{error}");
    assert!(error.contains("secret"), "{error}");
}

#[test]
fn members_that_use_other_numbers_are_told_so() {
    let world = World::start_with(2, |settings| {
        settings.connect_timeout = Duration::from_millis(500);
    });
    let errors = thread::scope(|scope| {
        let threads = [0, 1].map(|rank| {
            let world = &world;
            scope.spawn(move || {
                let (sender, _events) = channel();
                let settings = pipeline(u64::from(rank) + 7, 2)(rank);
                let settings = among(settings, &world.addresses);
                let context = &world.contexts[rank as usize];
                context.create_group_with(settings, Recorder(sender)).unwrap_err().to_string()
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    let told = "member 1 wants to join group 8: do the numbers differ";
    assert!(errors[0].contains(told), "{errors:?}");
    world.close();
}

#[test]
fn members_that_never_connect_are_named() {
    let world = World::start_with(3, |settings| {
        settings.connect_timeout = Duration::from_millis(200);
    });
    let (sender, _events) = channel();
    let group = world.contexts[0]
        .create_group_with(among(pipeline(1, 3)(0), &world.addresses), Recorder(sender));
    let error = group.unwrap_err().to_string();
    let missing = format!("members 1 ({}), 2 (", world.addresses[1]);
    assert!(error.contains(&missing), "{error}");
    world.close();
}

#[test]
fn a_group_has_a_limit_of_its_own_for_joining() {
    let world = World::start_with(2, |settings| settings.connect_timeout = Duration::MAX);
    let settings = pipeline(1, 2)(0).connect_timeout(Duration::from_millis(200));
    let (sender, _events) = channel();
    let group =
        world.contexts[0].create_group_with(among(settings, &world.addresses), Recorder(sender));
    let error = group.unwrap_err().to_string();
    assert!(error.contains(&world.addresses[1].to_string()), "{error}");
    world.close();
}

#[test]
fn an_unreachable_member_is_named() {
    let mut world = World::start_with(2, |settings| {
        settings.connect_timeout = Duration::from_millis(200);
    });
    drop(world.contexts.remove(0));
    let (sender, _events) = channel();
    let group = world.contexts[0]
        .create_group_with(among(pipeline(1, 2)(1), &world.addresses), Recorder(sender));
    let error = group.unwrap_err().to_string();
    assert!(error.contains(&world.addresses[0].to_string()), "{error}");
    world.close();
}

#[test]
fn impossible_settings_are_refused_with_the_remedy() {
    let world = World::start(1);
    let create = |change: fn(&mut GroupSettings)| {
        let mut settings = pipeline(1, 1)(0);
        change(&mut settings);
        let (sender, _events) = channel();
        let group = world.contexts[0]
            .create_group_with(among(settings, &world.addresses), Recorder(sender));
        group.map(drop).unwrap_err().to_string()
    };
    assert!(create(|settings| settings.block_bytes = Some(0)).contains("block_bytes is 0"));
    assert!(
        create(|settings| settings.block_bytes = Some(1 << 40)).contains("use 1 to 2147483648")
    );
    assert!(create(|settings| settings.rank = 1).contains("rank is 1; use 0 to 0"));
    assert!(
        create(|settings| settings.window = Some(Window { receives: 1, sends: 0 }))
            .contains("window.sends is 0")
    );
    assert!(create(|settings| settings.messages_in_flight = 0).contains("use 1 to 1024"));
    world.close();
}

#[test]
fn a_number_that_is_in_use_is_refused() {
    let world = World::start(1);
    let groups = world.join(pipeline(1, 1));
    let (sender, _events) = channel();
    let again = world.contexts[0]
        .create_group_with(among(pipeline(1, 1)(0), &world.addresses), Recorder(sender));
    assert!(matches!(again, Err(Error::NumberInUse(1))));
    close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    world.close();
}

#[test]
fn only_the_root_sends_and_nobody_closes_twice() {
    let world = World::start(2);
    let groups = world.join(pipeline(1, 2));
    let refused = groups[1].0.try_send(Region::zeroed(1)).unwrap_err();
    assert!(matches!(refused, Error::Relay(RelayError::NotRoot { root: 0, rank: 1 })));
    close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    assert!(matches!(groups[0].0.close(PATIENCE), Err(Error::Closed(1))));
    assert!(matches!(groups[0].0.try_send(Region::zeroed(1)), Err(Error::Closed(1))));
    world.close();
}

#[test]
fn a_close_that_times_out_fails_the_group_at_every_member() {
    let world = World::start(2);
    let groups = world.join(pipeline(1, 2));
    // A receiver alone cannot close: the root has not closed.
    let error = groups[1].0.close(Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(failure_of(&groups[0].1).member, Some(1));
    world.close();
}

/// Answers each message with the given function.
struct Answer(Sender<Event>, fn(u64) -> Incoming);

impl Application for Answer {
    fn incoming(&mut self, _: u64, bytes: u64) -> Incoming {
        (self.1)(bytes)
    }

    fn complete(&mut self, _: u64, _: Region) {}

    fn failed(&mut self, failure: &rdmc::Failure, regions: Vec<(u64, Region)>) {
        let messages = regions.into_iter().map(|(message, _)| message).collect();
        let _ = self.0.send(Event::Failed(failure.clone(), messages));
    }
}

fn receiver_answers(answer: fn(Sender<Event>) -> Answer) -> Vec<rdmc::Failure> {
    let world = World::start(3);
    let results = world.join_results(pipeline(1, 3), |rank| {
        if rank == 2 {
            answer
        } else {
            |sender| Answer(sender, |n| Incoming::Into(Region::zeroed(n as usize)))
        }
    });
    let groups: Vec<_> =
        results.into_iter().map(|(group, events)| (group.unwrap(), events)).collect();
    groups[0].0.try_send(Region::zeroed(5_000)).unwrap();
    let failures = groups.iter().map(|(_, events)| failure_of(events)).collect();
    world.close();
    failures
}

#[test]
fn a_region_that_is_too_small_fails_the_group_and_is_named() {
    for failure in receiver_answers(|sender| Answer(sender, |_| Incoming::Into(Region::zeroed(10))))
    {
        assert_eq!(failure.member, Some(2));
        assert!(failure.detail.contains("message 0 of group 1 has 5000 bytes"), "{failure}");
    }
}

#[test]
fn a_read_only_region_fails_the_group_and_is_named() {
    let answer =
        |sender| Answer(sender, |n| Incoming::Into(Region::from_shared(vec![0; n as usize])));
    for failure in receiver_answers(answer) {
        assert_eq!(failure.member, Some(2));
    }
}

#[test]
fn a_refusal_fails_the_group_with_its_reason() {
    for failure in receiver_answers(|sender| Answer(sender, |_| Incoming::Refuse("no room".into())))
    {
        assert_eq!((failure.member, failure.kind), (Some(2), FailureKind::Application));
        assert!(failure.detail.contains("no room"), "{failure}");
    }
}

#[test]
fn a_callback_that_panics_fails_its_group_only() {
    for failure in receiver_answers(|sender| Answer(sender, |_| panic!("on purpose"))) {
        assert_eq!(failure.member, Some(2));
        assert!(failure.detail.contains("panicked: on purpose"), "{failure}");
    }
}

/// Panics in `received` of its first message, once all blocks of two messages have arrived; then
/// counts its calls.
struct PanicsOnce {
    events: Sender<Event>,
    /// The second message was announced.
    second: Sender<()>,
    all_is_here: std::sync::mpsc::Receiver<()>,
}

impl Application for PanicsOnce {
    /// The first message does not complete before the second is announced.
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        if message == 0 {
            return Incoming::Later;
        }
        let _ = self.second.send(());
        Incoming::Into(Region::zeroed(bytes as usize))
    }

    fn received(&mut self, message: u64) {
        let _ = self.events.send(Event::Received(message));
        let _ = self.all_is_here.recv_timeout(PATIENCE);
        panic!("on purpose");
    }

    fn complete(&mut self, message: u64, _: Region) {
        let _ = self.events.send(Event::Complete(message, Vec::new()));
    }

    fn failed(&mut self, failure: &rdmc::Failure, regions: Vec<(u64, Region)>) {
        let messages = regions.into_iter().map(|(message, _)| message).collect();
        let _ = self.events.send(Event::Failed(failure.clone(), messages));
    }

    fn closed(&mut self) {
        let _ = self.events.send(Event::Closed);
    }
}

#[test]
fn after_a_panic_an_application_gets_only_the_failure_and_its_memory() {
    let world = World::start(2);
    let ((sender, events), (here, all_is_here)) = (channel(), channel());
    let (second, announced) = channel();
    let [root, receiver] = [0, 1].map(pipeline(1, 2));
    let (root, receiver) = thread::scope(|scope| {
        let (contexts, addresses) = (&world.contexts, &world.addresses);
        let (ignored, _) = channel();
        let recorder = Recorder(ignored);
        let root = scope.spawn(|| contexts[0].create_group_with(among(root, addresses), recorder));
        let receiver = contexts[1].create_group_with(
            among(receiver, addresses),
            PanicsOnce { events: sender, second, all_is_here },
        );
        (root.join().unwrap().unwrap(), receiver.unwrap())
    });
    for _ in 0..2 {
        root.try_send(Region::zeroed(5_000)).unwrap();
    }
    announced.recv_timeout(PATIENCE).unwrap();
    receiver.accept(0, Region::zeroed(5_000)).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while world.contexts[1].counters().unwrap().blocks_received < 10 {
        assert!(std::time::Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    here.send(()).unwrap();
    assert!(matches!(events.recv_timeout(PATIENCE), Ok(Event::Received(0))));
    match events.recv_timeout(PATIENCE) {
        Ok(Event::Failed(failure, regions)) => {
            assert_eq!((failure.member, regions), (Some(1), vec![0, 1]), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    let error = receiver.close(PATIENCE).unwrap_err().to_string();
    assert!(error.contains("panicked: on purpose"), "{error}");
    assert!(events.recv_timeout(PATIENCE).is_err(), "the failure comes last");
    world.close();
}

#[test]
fn memory_may_come_later_and_a_wrong_region_may_be_replaced() {
    let world = World::start(2);
    let results =
        world.join_results(pipeline(1, 2), |_| |sender| Answer(sender, |_| Incoming::Later));
    let groups: Vec<_> =
        results.into_iter().map(|(group, events)| (group.unwrap(), events)).collect();
    groups[0].0.try_send(Region::from_vec(contents(0, 2_500))).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    let too_small = loop {
        match groups[1].0.accept(0, Region::zeroed(1)) {
            Err(Error::Relay(RelayError::Unknown { .. }))
                if std::time::Instant::now() < deadline =>
            {
                thread::yield_now();
            }
            other => break other,
        }
    };
    assert!(matches!(too_small, Err(Error::RegionTooSmall { bytes: 2_500, .. })));
    let region = Region::zeroed(3_000);
    groups[1].0.accept(0, region.clone()).unwrap();
    assert!(groups[1].0.accept(0, Region::zeroed(3_000)).is_err(), "given already");
    close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    assert!(region.read(0..2_500).unwrap()[..] == contents(0, 2_500));
    world.close();
}

/// Blocks in its callback until released.
struct Slow(std::sync::mpsc::Receiver<()>);

impl Application for Slow {
    fn incoming(&mut self, _: u64, bytes: u64) -> Incoming {
        let _ = self.0.recv_timeout(PATIENCE);
        Incoming::Into(Region::zeroed(bytes as usize))
    }

    fn complete(&mut self, _: u64, _: Region) {}
}

#[test]
fn a_slow_callback_delays_its_own_group_only() {
    let world = World::start(2);
    let (go_on, slow) = channel();
    let (one, two) = thread::scope(|scope| {
        let (addresses, contexts) = (&world.addresses, &world.contexts);
        // A message of one block would be received without memory of the application's.
        let settings = |rank| GroupSettings::new(1, addresses.clone(), rank).block_bytes(64 << 10);
        let (sender, _events) = channel();
        let root = settings(0);
        let root = scope.spawn(|| contexts[0].create_group_with(root, Recorder(sender)));
        let receiver = contexts[1].create_group_with(settings(1), Slow(slow)).unwrap();
        (root.join().unwrap().unwrap(), receiver)
    });
    let handle = one.try_send(Region::zeroed(1_000_000)).unwrap();
    let other = world.join(pipeline(2, 2));
    other[0].0.try_send(Region::from_vec(contents(0, 9_000))).unwrap();
    close_all(&other).into_iter().for_each(|closed| closed.unwrap());
    assert!(!handle.is_complete(), "the slow one is still held");
    go_on.send(()).unwrap();
    handle.wait(PATIENCE).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| two.close(PATIENCE).unwrap());
        one.close(PATIENCE).unwrap();
    });
    world.close();
}

/// Blocks in its first `block` until released, and records the ranges that are reported.
struct StuckInBlock {
    go_on: std::sync::mpsc::Receiver<()>,
    events: Sender<(u64, u64)>,
}

impl Application for StuckInBlock {
    fn incoming(&mut self, _: u64, bytes: u64) -> Incoming {
        Incoming::Into(Region::zeroed(bytes as usize))
    }

    fn block(&mut self, _: u64, offset: u64, bytes: u64) {
        let _ = self.events.send((offset, bytes));
        let _ = self.go_on.recv_timeout(PATIENCE);
    }

    fn complete(&mut self, _: u64, _: Region) {}
}

#[test]
fn blocks_that_arrive_during_a_stuck_callback_are_reported_in_few_calls() {
    const BLOCKS: u64 = 5_000;
    let world = World::start(2);
    let ((go_on, is_let_go), (sender, events)) = (channel(), channel());
    let settings = |rank| {
        let mut settings = group(1, Algorithm::Chain, 2, 0)(rank);
        (settings.block_bytes, settings.report_blocks) = (Some(10), true);
        settings
    };
    let (root, receiver) = thread::scope(|scope| {
        let (contexts, addresses) = (&world.contexts, &world.addresses);
        let (recorder, _) = channel();
        let root = scope.spawn(|| {
            contexts[0].create_group_with(among(settings(0), addresses), Recorder(recorder))
        });
        let stuck = StuckInBlock { go_on: is_let_go, events: sender };
        let receiver = contexts[1].create_group_with(among(settings(1), addresses), stuck);
        (root.join().unwrap().unwrap(), receiver.unwrap())
    });
    root.try_send(Region::zeroed(10 * BLOCKS as usize)).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while world.contexts[1].counters().unwrap().blocks_received < BLOCKS {
        assert!(std::time::Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    drop(go_on);
    thread::scope(|scope| {
        scope.spawn(|| receiver.close(PATIENCE).unwrap());
        root.close(PATIENCE).unwrap();
    });
    let mut ranges: Vec<(u64, u64)> = events.try_iter().collect();
    assert!(ranges.len() < 100, "{} calls", ranges.len());
    ranges.sort_unstable();
    let end = ranges.into_iter().fold(0, |end, (offset, bytes)| {
        assert_eq!(offset, end, "each byte once");
        offset + bytes
    });
    assert_eq!(end, 10 * BLOCKS);
    world.close();
}

#[test]
fn a_stalled_group_fails_and_names_the_member() {
    let world = World::start(2);
    let settings = |rank| {
        let mut settings = pipeline(1, 2)(rank);
        settings.stall_timeout = Duration::from_millis(100);
        settings
    };
    let results = world.join_results(settings, |_| |sender| Answer(sender, |_| Incoming::Later));
    let groups: Vec<_> =
        results.into_iter().map(|(group, events)| (group.unwrap(), events)).collect();
    groups[0].0.try_send(Region::zeroed(50_000)).unwrap();
    for (_, events) in &groups {
        let failure = failure_of(events);
        assert_eq!((failure.member, failure.kind), (Some(1), FailureKind::Stalled), "{failure}");
    }
    world.close();
}

#[test]
fn a_group_that_was_idle_for_long_has_not_stalled() {
    let world = World::start(2);
    let settings = |rank| {
        let mut settings = pipeline(1, 2)(rank);
        settings.stall_timeout = Duration::from_secs(1);
        settings
    };
    let groups = world.join(settings);
    for message in 0..2 {
        thread::sleep(Duration::from_millis(1200));
        let sent = groups[0].0.try_send(Region::from_vec(contents(message, 5_000))).unwrap();
        sent.wait(PATIENCE).unwrap();
    }
    thread::sleep(Duration::from_millis(1200));
    close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    world.close();
}

#[test]
fn closing_ends_unauthenticated_connections() {
    let world = World::start(1);
    let mut silent = std::net::TcpStream::connect(world.addresses[0]).unwrap();
    // The greeting shows that the handshake is in progress.
    let mut greeting = [0; 6];
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    silent.read_exact(&mut greeting).unwrap();
    world.close();
    silent.set_nonblocking(true).unwrap();
    assert!(matches!(silent.read(&mut greeting), Ok(0)), "the connection is over");
}
