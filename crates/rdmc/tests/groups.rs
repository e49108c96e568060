//! The library's guarantees when no member fails, over any fabric (see `common`).

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rdmc::{Algorithm, CompletionMode, Fabric, Progress, Protection, Region, Secret};

use crate::common::{self, Event, PATIENCE, World, close_all, contents, fabric, group, ipv6};

/// Sends messages of these sizes, closes, and checks the events of every member.
fn deliver(world: &World, settings: impl Fn(u32) -> rdmc::GroupSettings + Sync, sizes: &[usize]) {
    let groups = world.join(&settings);
    let root = settings(0).root as usize;
    for (message, &bytes) in sizes.iter().enumerate() {
        let region = Region::from_vec(contents(message as u64, bytes));
        assert_eq!(groups[root].0.try_send(region).unwrap().message(), message as u64);
    }
    for (rank, closed) in close_all(&groups).into_iter().enumerate() {
        closed.unwrap_or_else(|error| panic!("member {rank}: {error}"));
    }
    for (rank, (_, events)) in groups.iter().enumerate() {
        check_events(events.try_iter().collect(), sizes, rank == root, settings(0).report_blocks);
    }
}

/// Checks for every message once, in order, with the right contents, and then the end.
fn check_events(events: Vec<Event>, sizes: &[usize], is_root: bool, blocks: bool) {
    let mut incoming = 0;
    let mut received = 0;
    let mut complete = 0;
    let mut block_bytes = 0;
    let mut closed = 0;
    for event in events {
        assert_eq!(closed, 0, "nothing comes after the end");
        match event {
            Event::Incoming(message, bytes) => {
                assert_eq!((message, bytes), (incoming, sizes[incoming as usize] as u64));
                incoming += 1;
            }
            Event::Block(_, _, bytes) => block_bytes += bytes,
            Event::Received(message) => {
                assert_eq!(message, received);
                received += 1;
            }
            Event::Complete(message, data) => {
                assert_eq!(message, complete);
                assert!(data == contents(message, sizes[message as usize]), "message {message}");
                complete += 1;
            }
            Event::Delivered(_) => panic!("nobody has asked"),
            Event::Failed(failure, _) => panic!("{failure}"),
            Event::Closed => closed += 1,
        }
    }
    let all = sizes.len() as u64;
    let expected = if is_root { (0, 0, all, 1) } else { (all, all, all, 1) };
    assert_eq!((incoming, received, complete, closed), expected);
    if blocks && !is_root {
        assert_eq!(block_bytes, sizes.iter().sum::<usize>() as u64);
    }
}

#[test]
fn every_algorithm_delivers_messages_of_every_length() {
    let sizes = [0, 1, 999, 1_000, 1_001, 0, 54_321, 7_000];
    for members in [1, 2, 3, 4, 5, 8, 9] {
        let world = World::start(members as usize);
        for (number, algorithm) in (0..).zip(Algorithm::RELAYING) {
            deliver(&world, group(number, algorithm, members, members / 2), &sizes);
        }
        world.close();
    }
}

#[test]
fn several_streams_per_neighbour_and_ipv6() {
    if fabric() != Fabric::Tcp {
        println!("SKIPPED: streams are for TCP alone");
        return;
    }
    let world = World::start_with(5, |settings| {
        settings.streams = 3;
        settings.listen = ipv6();
    });
    deliver(&world, group(1, Algorithm::BinomialPipeline, 5, 0), &[100_000, 5, 0, 33_333]);
    world.close();
}

/// Members with and without several threads, of blocks that are sent on while they arrive and of short ones.
#[test]
fn several_threads_serve_the_streams() {
    if fabric() != Fabric::Tcp {
        println!("SKIPPED: threads are for TCP alone");
        return;
    }
    let made = std::sync::atomic::AtomicUsize::new(0);
    let world = World::start_with(5, |settings| {
        settings.streams = 4;
        settings.tcp.direct_copies = false;
        settings.tcp.threads = Some([3, 1, 4, 2, 8][made.fetch_add(1, Ordering::Relaxed)]);
    });
    for (number, algorithm) in (0..).zip(Algorithm::RELAYING) {
        let settings = |rank| {
            let mut settings = group(number, algorithm, 5, 1)(rank);
            settings.block_bytes = Some(64 << 10);
            settings
        };
        deliver(&world, settings, &[1_000_000, 5, 0, 300_001]);
    }
    world.close();
}

#[test]
fn blocks_are_reported_as_they_come() {
    let world = World::start(4);
    let settings = |rank| {
        let mut settings = group(1, Algorithm::Chain, 4, 0)(rank);
        settings.report_blocks = true;
        settings
    };
    deliver(&world, settings, &[10_500, 3]);
    world.close();
}

#[test]
fn all_completion_modes_deliver() {
    for mode in [CompletionMode::Polling, CompletionMode::Hybrid, CompletionMode::EventOnly] {
        let world = World::start_with(3, |settings| settings.completion = mode);
        deliver(&world, group(1, Algorithm::BinomialPipeline, 3, 0), &[20_000, 1]);
        world.close();
    }
}

#[test]
fn the_caller_can_drive_progress() {
    let world = World::start_with(3, |settings| settings.progress = Progress::Caller);
    let groups = world.join(group(1, Algorithm::BinomialPipeline, 3, 0));
    let sent = groups[0].0.try_send(Region::from_vec(contents(0, 12_345))).unwrap();
    groups.iter().for_each(|(group, _)| group.start_close().unwrap());
    let mut ended = [false; 3];
    while ended.contains(&false) {
        for (member, context) in world.contexts.iter().enumerate() {
            context.progress(Duration::from_millis(1)).unwrap();
            for event in groups[member].1.try_iter() {
                match event {
                    Event::Complete(0, data) => assert!(data == contents(0, 12_345)),
                    Event::Delivered(_) => panic!("nobody has asked"),
                    Event::Failed(failure, _) => panic!("{failure}"),
                    Event::Closed => ended[member] = true,
                    _ => {}
                }
            }
        }
    }
    assert!(sent.is_complete());
    world.close();
}

#[test]
fn closing_and_waiting_make_progress_where_no_thread_does() {
    let world = World::start_with(3, |settings| settings.progress = Progress::Caller);
    // No thread calls `progress`; each member has one thread, which waits.
    for (number, algorithm) in [(1, Algorithm::BinomialPipeline), (2, Algorithm::Chain)] {
        let groups = world.join(group(number, algorithm, 3, 0));
        let ([root, one, two], events) = ([0, 1, 2].map(|rank| &groups[rank].0), &groups[2].1);
        thread::scope(|scope| {
            scope.spawn(|| one.close(PATIENCE).unwrap());
            scope.spawn(|| {
                two.wait_complete(2, PATIENCE).unwrap();
                two.close(PATIENCE).unwrap();
            });
            root.try_send(Region::from_vec(contents(0, 12_345))).unwrap().wait(PATIENCE).unwrap();
            root.try_send(Region::from_vec(contents(1, 7))).unwrap();
            root.close(PATIENCE).unwrap();
        });
        check_events(events.try_iter().collect(), &[12_345, 7], false, false);
    }
    world.close();
}

#[test]
fn callbacks_come_in_order_whichever_thread_drives() {
    let world = World::start_with(2, |settings| settings.progress = Progress::Caller);
    let sizes = [1_700; 200];
    let groups = world.join(group(1, Algorithm::Chain, 2, 0));
    for message in 0..sizes.len() as u64 {
        groups[0].0.try_send(Region::from_vec(contents(message, 1_700))).unwrap();
    }
    let [root, receiver] = [0, 1].map(|rank| &groups[rank].0);
    let closed = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !closed.load(Ordering::Relaxed) {
                    world.contexts[1].progress(Duration::from_micros(100)).unwrap();
                }
            });
        }
        scope.spawn(|| root.close(PATIENCE).unwrap());
        let outcome = receiver.close(PATIENCE);
        closed.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
    check_events(groups[1].1.try_iter().collect(), &sizes, false, false);
    world.close();
}

#[test]
fn only_first_blocks_are_copied() {
    let members = 4;
    let world = World::start(members);
    let (messages, blocks) = (3, 500);
    let sizes = vec![blocks * 1_000; messages];
    deliver(&world, group(1, Algorithm::BinomialPipeline, members as u32, 0), &sizes);
    for (rank, context) in world.contexts.iter().enumerate() {
        let counters = context.counters().unwrap();
        let firsts = if rank == 0 { 0 } else { messages as u64 };
        assert!(counters.bytes_copied <= firsts * 1_000, "member {rank}: {counters:?}");
        let received = if rank == 0 { 0 } else { (messages * blocks) as u64 };
        assert_eq!(counters.blocks_received, received);
        assert_eq!(counters.bytes_received, received * 1_000);
    }
    world.close();
}

#[test]
fn many_overlapping_groups_with_different_roots_do_not_mix() {
    let members = 5_u32;
    let world = World::start(members as usize);
    thread::scope(|scope| {
        for number in 0..15 {
            let world = &world;
            let algorithm = Algorithm::RELAYING[number as usize % Algorithm::RELAYING.len()];
            scope.spawn(move || {
                let root = number as u32 % members;
                deliver(world, group(number, algorithm, members, root), &[40_000, 17, 2_000]);
            });
        }
    });
    world.close();
}

#[test]
fn a_group_number_is_free_again_after_close() {
    let world = World::start(2);
    for _ in 0..5 {
        deliver(&world, group(7, Algorithm::Chain, 2, 0), &[3_000]);
    }
    world.close();
}

#[test]
fn the_root_is_notified_when_its_memory_is_free() {
    let world = World::start(3);
    let groups = world.join(group(1, Algorithm::BinomialPipeline, 3, 0));
    let sent = groups[0].0.try_send(Region::from_vec(contents(0, 30_000))).unwrap();
    sent.wait(PATIENCE).unwrap();
    groups[2].0.wait_complete(1, PATIENCE).unwrap();
    close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    world.close();
}

#[test]
fn contexts_listen_on_ipv6_too() {
    let mut settings = common::context_settings(&Secret::from_bytes([1; 32]));
    settings.listen = (std::net::Ipv6Addr::LOCALHOST, 0).into();
    let context = rdmc::Context::start(settings).unwrap();
    assert!(context.address().is_ipv6() && context.address().port() != 0);
    context.close(PATIENCE).unwrap();
}

/// Nobody makes progress in a context whose only group has closed: what tells its neighbours so has to be written before.
#[test]
fn a_member_whose_caller_returns_from_close_keeps_no_neighbour_waiting() {
    for protection in [Some(Protection::None), None] {
        let world = World::start_with(3, |settings| {
            settings.progress = Progress::Caller;
            settings.protection = protection;
            settings.tcp.drain_timeout = 10 * PATIENCE;
            settings.tcp.silence_timeout = 10 * PATIENCE;
        });
        for (number, algorithm) in (1..).zip([Algorithm::Chain, Algorithm::Sequential]) {
            let groups = world.join_to_receive(group(number, algorithm, 3, 0));
            thread::scope(|scope| {
                for group in &groups {
                    scope.spawn(|| group.close(PATIENCE).unwrap());
                }
            });
        }
        world.close();
    }
}
