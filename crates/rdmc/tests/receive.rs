//! Groups without callbacks: messages are received by calls, in memory that is posted or bounded.

use std::{
    io::{self, Read},
    sync::{Arc, Mutex, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use rdmc::{
    Algorithm, Error, FailureKind, Group, GroupSettings, Progress, Region, SmallMessages, Storage,
};

use crate::common::{Gate, PATIENCE, Recorder, World, among, contents, group};

const BOTH: [Progress; 2] = [Progress::Thread, Progress::Caller];

fn chain(members: u32) -> impl Fn(u32) -> GroupSettings + Sync {
    group(1, Algorithm::Chain, members, 0)
}

fn send(group: &Group, bytes: Vec<u8>) -> rdmc::SendHandle {
    group.try_send(Region::from_vec(bytes)).unwrap()
}

/// Closes at the root, while the other member waits for it.
fn close(groups: &[Group]) {
    thread::scope(|scope| {
        for group in groups {
            scope.spawn(|| group.close(PATIENCE).unwrap());
        }
    });
}

#[test]
fn messages_are_read_in_order_and_whole() {
    for progress in BOTH {
        for small in [None, Some(SmallMessages::default())] {
            let world = World::start_with(3, |settings| settings.progress = progress);
            let groups = world.join_to_receive(|rank| chain(3)(rank).small(small));
            let sizes = [0, 1, 999, 1_000, 50_001, 0, 20_000];
            thread::scope(|scope| {
                scope.spawn(|| {
                    for (message, &bytes) in (0..).zip(&sizes) {
                        send(&groups[0], contents(message, bytes));
                    }
                    groups[0].close(PATIENCE).unwrap();
                });
                for group in &groups[1..] {
                    scope.spawn(|| {
                        let mut read = Vec::new();
                        while let Some(mut message) = group.receive(PATIENCE).unwrap() {
                            assert_eq!(message.number(), read.len() as u64);
                            let mut bytes = Vec::new();
                            message.read_to_end(&mut bytes).unwrap();
                            assert_eq!(message.len(), bytes.len() as u64);
                            read.push(bytes);
                        }
                        let sent =
                            (0..).zip(&sizes).map(|(message, &bytes)| contents(message, bytes));
                        assert!(read.into_iter().eq(sent));
                        assert!(group.receive(PATIENCE).unwrap().is_none(), "it stays closed");
                    });
                }
            });
            world.close();
        }
    }
}

#[test]
fn every_byte_is_in_one_block_and_its_memory_comes_back() {
    for progress in BOTH {
        for small in [None, Some(SmallMessages::default())] {
            let world = World::start_with(2, |settings| settings.progress = progress);
            let groups = world.join_to_receive(|rank| chain(2)(rank).small(small));
            let sizes = [0, 700, 40_500];
            thread::scope(|scope| {
                scope.spawn(|| {
                    for (message, &bytes) in (0..).zip(&sizes) {
                        let handle = send(&groups[0], contents(message, bytes));
                        let region = handle.into_region(PATIENCE).unwrap();
                        assert_eq!(region.try_into_vec().unwrap(), contents(message, bytes));
                    }
                    groups[0].close(PATIENCE).unwrap();
                });
                for (number, message) in (0..).zip(groups[1].messages(PATIENCE)) {
                    let mut message = message.unwrap();
                    let sent = contents(number, message.len() as usize);
                    let mut seen = vec![0; sent.len()];
                    let region = message.region().clone();
                    for block in message.blocks() {
                        let block = block.unwrap();
                        let range = block.start as usize..block.end as usize;
                        assert!(seen[range.clone()].iter().all(|&times| times == 0));
                        seen[range.clone()].fill(1);
                        assert_eq!(*region.read(range.clone()).unwrap(), sent[range]);
                    }
                    assert!(seen.into_iter().all(|times| times == 1));
                    drop(region);
                    message.wait(PATIENCE).unwrap();
                    let region = message.into_region(PATIENCE).unwrap();
                    assert_eq!(region.try_into_vec().unwrap(), sent);
                }
            });
            world.close();
        }
    }
}

#[test]
fn a_slow_reader_applies_back_pressure_and_its_memory_stays_bounded() {
    const BYTES: usize = 10_000;
    let world = World::start(2);
    let groups = world.join_to_receive(|rank| chain(2)(rank).receive_bytes_max(25_000));
    let handles: Vec<_> = (0..6).map(|number| send(&groups[0], contents(number, BYTES))).collect();
    handles[1].wait(PATIENCE).unwrap();
    for received in 0..6 {
        // Two messages that were not received fit, and only they have memory.
        let with_memory = (received as usize + 2).min(6);
        handles[with_memory - 1].wait(PATIENCE).unwrap();
        assert!(handles[with_memory..].iter().all(|handle| !handle.is_complete()));
        let message = groups[1].receive(PATIENCE).unwrap().expect("a message");
        let region = message.into_region(PATIENCE).unwrap();
        assert_eq!(region.try_into_vec().unwrap(), contents(received, BYTES));
    }
    close(&groups);
    world.close();
}

#[test]
fn a_message_longer_than_the_bound_is_received() {
    let world = World::start(2);
    let groups = world.join_to_receive(|rank| chain(2)(rank).receive_bytes_max(0));
    let handle = send(&groups[0], contents(0, 30_000));
    let mut bytes = Vec::new();
    let mut message = groups[1].receive(PATIENCE).unwrap().expect("a message");
    message.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, contents(0, 30_000));
    handle.wait(PATIENCE).unwrap();
    close(&groups);
    world.close();
}

#[test]
fn posted_memory_is_received_into_and_comes_back() {
    for progress in BOTH {
        let world = World::start_with(2, |settings| settings.progress = progress);
        let groups = world.join_to_receive(|rank| chain(2)(rank).receive_bytes_max(0));
        for bytes in [9_000, 8_000] {
            groups[1].post_receive_buffer(Region::from_vec(vec![1; bytes])).unwrap();
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..3 {
                    send(&groups[0], contents(number, 8_000));
                }
                groups[0].close(PATIENCE).unwrap();
            });
            for bytes in [9_000, 8_000] {
                let message = groups[1].receive(PATIENCE).unwrap().expect("a message");
                let sent = contents(message.number(), 8_000);
                let region = message.into_region(PATIENCE).unwrap().try_into_vec().unwrap();
                assert!(region.len() == bytes && region[..8_000] == sent);
                assert!(region[8_000..].iter().all(|&byte| byte == 1), "the rest is untouched");
            }
            let small = Region::from_vec(vec![1; 7_999]);
            groups[1].post_receive_buffer(small).unwrap();
            match groups[1].receive(PATIENCE) {
                Err(Error::RegionTooSmall { message: 2, bytes: 8_000, region, .. }) => {
                    assert_eq!(region.try_into_vec().unwrap(), vec![1; 7_999]);
                }
                other => panic!("{other:?}"),
            }
            groups[1].post_receive_buffer(Region::from_vec(vec![1; 8_001])).unwrap();
            let message = groups[1].receive(PATIENCE).unwrap().expect("a message");
            assert_eq!((message.number(), message.region().len()), (2, 8_001));
            drop(message);
            assert!(groups[1].receive(PATIENCE).unwrap().is_none());
        });
        world.close();
    }
}

#[test]
fn posted_memory_that_no_message_took_is_freed_with_the_group() {
    for progress in BOTH {
        let world = World::start_with(2, |settings| settings.progress = progress);
        let groups = world.join_to_receive(chain(2));
        let mut region = Region::zeroed(100);
        groups[1].post_receive_buffer(region.clone()).unwrap();
        close(&groups);
        drop(groups);
        let until = Instant::now() + PATIENCE;
        // Only the last reference has the vector.
        while let Err(shared) = region.try_into_vec() {
            assert!(
                Instant::now() < until,
                "the context holds on to memory of a group that is gone"
            );
            region = shared;
            thread::yield_now();
        }
        world.close();
    }
}

#[test]
fn memory_that_cannot_be_written_is_refused_and_comes_back() {
    let world = World::start(1);
    let groups = world.join_to_receive(chain(1));
    let refused = groups[0].post_receive_buffer(Region::from_shared([1_u8; 5]));
    assert!(
        matches!(refused, Err(Error::RegionReadOnly { group: 1, region }) if region.len() == 5)
    );
    world.close();
}

#[test]
fn a_group_with_callbacks_receives_by_them_alone() {
    let world = World::start(1);
    let (recorder, _events) = std::sync::mpsc::channel();
    let settings = among(chain(1)(0), &world.addresses);
    let group = world.contexts[0].create_group_with(settings, Recorder(recorder)).unwrap();
    let handle = send(&group, vec![1; 10]);
    assert!(matches!(group.receive(PATIENCE), Err(Error::HasCallbacks(1))));
    let posted = group.post_receive_buffer(Region::from_vec(vec![1]));
    assert!(matches!(posted, Err(Error::HasCallbacks(1))));
    assert!(matches!(handle.into_region(PATIENCE), Err(Error::HasCallbacks(1))));
    group.close(PATIENCE).unwrap();
    world.close();
}

#[test]
fn no_more_messages_are_queued_than_the_limit() {
    for progress in BOTH {
        let world = World::start_with(2, |settings| settings.progress = progress);
        let settings = |rank| chain(2)(rank).send_queue_max(2).receive_bytes_max(0);
        let groups = world.join_to_receive(settings);
        let region = || Region::from_vec(contents(0, 5_000));
        for _ in 0..2 {
            groups[0].send(region(), Duration::ZERO).unwrap();
        }
        let timeout = Duration::from_millis(50);
        for refused in [groups[0].try_send(region()), groups[0].send(region(), timeout)] {
            match refused {
                Err(Error::QueueFull { group: 1, messages: 2, region }) => {
                    assert_eq!(region.try_into_vec().unwrap(), contents(0, 5_000));
                }
                other => panic!("{other:?}"),
            }
        }
        thread::scope(|scope| {
            let receiving =
                scope.spawn(|| groups[1].messages(PATIENCE).map(Result::unwrap).count());
            for _ in 0..20 {
                groups[0].send(region(), PATIENCE).unwrap();
            }
            groups[0].close(PATIENCE).unwrap();
            assert_eq!(receiving.join().unwrap(), 22);
        });
        world.close();
    }
}

#[test]
fn a_read_returns_arrived_blocks_before_the_failure_of_its_group() {
    for progress in BOTH {
        let world = World::start_with(2, |settings| settings.progress = progress);
        let groups = world.join_to_receive(chain(2));
        let gate = Arc::new(Gate::default());
        thread::scope(|scope| {
            let (root, receiver) = (&groups[0], &groups[1]);
            let (first, is_first) = std::sync::mpsc::channel();
            let receiving = scope.spawn(move || {
                let whole = receiver.receive(PATIENCE).unwrap().expect("a message");
                let mut message = receiver.receive(PATIENCE).unwrap().expect("a message");
                let mut bytes = [0; 5_000];
                message.read_exact(&mut bytes).unwrap();
                assert_eq!(bytes, [7; 5_000]);
                first.send(()).unwrap();
                let error = message.read_to_end(&mut Vec::new()).unwrap_err();
                let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
                let Some(Error::Failed(failure)) = cause else { panic!("{error}") };
                assert_eq!(failure.kind, FailureKind::Application);
                assert!(matches!(message.into_region(PATIENCE), Err(Error::Failed(_))));
                assert!(matches!(receiver.receive(PATIENCE), Err(Error::Failed(_))));
                // A message that is whole remains available.
                let region = whole.into_region(PATIENCE).unwrap();
                assert_eq!(region.try_into_vec().unwrap(), contents(0, 3_000));
            });
            send(root, contents(0, 3_000));
            root.try_send(gate.region(100_000)).unwrap();
            // With `Progress::Caller` this thread makes progress.
            while is_first.try_recv().is_err() {
                let _ = root.wait_complete(2, Duration::from_millis(10));
            }
            root.abort("on purpose");
            let _ = root.wait_complete(2, PATIENCE);
            receiving.join().unwrap();
        });
        gate.open();
        world.close();
    }
}

#[test]
fn messages_complete_before_a_failure_are_received_before_it() {
    let world = World::start(2);
    let groups = world.join_to_receive(chain(2));
    send(&groups[0], contents(0, 3_000));
    groups[1].wait_complete(1, PATIENCE).unwrap();
    groups[0].abort("on purpose");
    assert!(groups[1].wait_complete(2, PATIENCE).is_err());
    let mut bytes = Vec::new();
    let mut message = groups[1].receive(PATIENCE).unwrap().expect("a message");
    message.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, contents(0, 3_000));
    assert!(matches!(groups[1].receive(PATIENCE), Err(Error::Failed(_))));
    assert!(groups[1].messages(PATIENCE).count() == 1, "one error, and the end");
    world.close();
}

/// Storage of zeros, which runs a function when it is dropped.
struct RunsAtDrop<F: FnMut() + Send>(Mutex<F>);

impl<F: FnMut() + Send> Storage for RunsAtDrop<F> {
    fn read_at(&self, into: &mut [u8], _: u64) -> io::Result<()> {
        into.fill(0);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "storage that is watched".into()
    }
}

impl<F: FnMut() + Send> Drop for RunsAtDrop<F> {
    fn drop(&mut self) {
        self.0.get_mut().unwrap()();
    }
}

/// Returns memory whose owner runs `at_drop` when the last reference is gone.
fn watched(bytes: u64, at_drop: impl FnMut() + Send + 'static) -> Region {
    Region::from_storage(Arc::new(RunsAtDrop(Mutex::new(at_drop))), bytes, true).unwrap()
}

#[test]
fn owners_of_memory_may_call_the_group_when_it_is_freed() {
    for progress in BOTH {
        let world = World::start_with(2, |settings| settings.progress = progress);
        let groups: Vec<_> = world.join_to_receive(chain(2)).into_iter().map(Arc::new).collect();
        let (freed, told) = channel();
        let region = |rank: usize| {
            let (group, freed) = (Arc::downgrade(&groups[rank]), freed.clone());
            watched(5_000, move || {
                let failure = group.upgrade().and_then(|group| group.failure());
                freed.send((rank, failure)).unwrap();
            })
        };
        for _ in 0..2 {
            groups[1].post_receive_buffer(region(1)).unwrap();
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                // The first is given back by the group, the second by its handle.
                groups[0].try_send(region(0)).unwrap();
                let handle = groups[0].try_send(region(0)).unwrap();
                groups[0].close(PATIENCE).unwrap();
                drop(handle);
            });
            drop(groups[1].receive(PATIENCE).unwrap().expect("a message"));
            let message = groups[1].receive(PATIENCE).unwrap().expect("a message");
            groups[1].wait_complete(2, PATIENCE).unwrap();
            drop(message);
            groups[1].close(PATIENCE).unwrap();
        });
        let mut ranks: Vec<_> = told
            .try_iter()
            .map(|(rank, failure)| {
                assert!(failure.is_none());
                rank
            })
            .collect();
        ranks.sort_unstable();
        assert_eq!(ranks, [0, 0, 1, 1], "freed when the group is closed, {progress:?}");
        drop(groups);
        world.close();
    }
}

#[test]
fn owners_of_memory_may_call_the_group_that_refuses_it() {
    let world = World::start(1);
    let (recorder, _events) = channel();
    let settings = among(chain(1)(0), &world.addresses);
    let group = world.contexts[0].create_group_with(settings, Recorder(recorder)).unwrap();
    let group = Arc::new(group);
    let (freed, told) = channel();
    let region = || {
        let (group, freed) = (Arc::downgrade(&group), freed.clone());
        watched(5_000, move || {
            let failure = group.upgrade().and_then(|group| group.failure());
            freed.send(failure.is_some()).unwrap();
        })
    };
    assert!(group.accept(0, region()).is_err(), "no message waits for memory");
    group.abort("on purpose");
    assert!(group.wait_complete(1, PATIENCE).is_err());
    assert!(matches!(group.accept(0, region()), Err(Error::Failed(_))));
    assert!(matches!(group.try_send(region()), Err(Error::Failed(_))));
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [false, true, true]);
    drop(group);
    world.close();
}

#[test]
fn memory_that_is_slow_to_free_delays_only_the_end_of_its_group() {
    let world = World::start(2);
    let slow = world.join_to_receive(chain(2));
    let other = world.join_to_receive(group(2, Algorithm::Chain, 2, 0));
    let (go_on, stuck) = channel::<()>();
    let (started, has_started) = channel();
    let region = watched(5_000, move || {
        started.send(()).unwrap();
        assert!(stuck.recv().is_err(), "released by the test");
    });
    slow[0].try_send(region).unwrap();
    slow[1].receive(PATIENCE).unwrap().expect("a message").into_region(PATIENCE).unwrap();
    has_started.recv_timeout(PATIENCE).unwrap();
    for groups in [&slow, &other] {
        let handle = send(&groups[0], contents(1, 3_000));
        let message = groups[1].receive(PATIENCE).unwrap().expect("a message");
        let region = message.into_region(PATIENCE).unwrap();
        assert_eq!(region.try_into_vec().unwrap(), contents(1, 3_000));
        handle.into_region(PATIENCE).unwrap();
    }
    close(&other);
    drop(go_on);
    close(&slow);
    world.close();
}

#[test]
fn a_panic_while_memory_is_freed_fails_its_group_alone() {
    for progress in BOTH {
        let world = World::start_with(2, |settings| settings.progress = progress);
        // The message is not complete before it is received.
        let groups = world.join_to_receive(|rank| chain(2)(rank).small(None).receive_bytes_max(0));
        let (sent, is_sent) = channel();
        let other = world.join_to_receive(group(2, Algorithm::Chain, 2, 0));
        thread::scope(|scope| {
            scope.spawn(|| {
                // A handle that outlives the sending frees the memory itself, on this thread.
                groups[0].try_send(watched(5_000, || panic!("on purpose"))).unwrap();
                sent.send(()).unwrap();
                let Err(Error::Failed(failure)) = groups[0].wait_complete(2, PATIENCE) else {
                    panic!("the group has failed")
                };
                assert_eq!(failure.detail, "releasing memory panicked: on purpose");
            });
            is_sent.recv().unwrap();
            drop(groups[1].receive(PATIENCE).unwrap().expect("a message"));
            assert!(matches!(groups[1].wait_complete(2, PATIENCE), Err(Error::Failed(_))));
        });
        close(&other);
        world.close();
    }
}
