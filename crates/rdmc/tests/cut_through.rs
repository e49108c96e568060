//! Groups relay blocks that are arriving, over every network that can follow them.

use std::time::{Duration, Instant};

use rdmc::{Algorithm, Fabric, Progress, Region};

use crate::common::{self, Event, PATIENCE, World, contents, group};

/// More than sockets buffer, so that a block arrives in parts.
const BLOCK_BYTES: u64 = 32 << 20;
const BLOCKS: u64 = 2;

/// Sends a message along a chain of three. Returns whether the middle was seen to have begun to send more
/// blocks than it had received.
fn sends_on_early(world: &World) -> bool {
    let groups = world.join(|rank| group(1, Algorithm::Chain, 3, 0)(rank).block_bytes(BLOCK_BYTES));
    // The last block is short.
    let bytes = (BLOCKS * BLOCK_BYTES) as usize - 1_000_000;
    let message = contents(0, bytes);
    groups[0].0.try_send(Region::from_vec(message.clone())).unwrap();
    groups.iter().for_each(|(group, _)| group.start_close().unwrap());
    let (mut ended, mut is_early, until) = ([false; 3], false, Instant::now() + PATIENCE);
    while ended.contains(&false) {
        assert!(Instant::now() < until, "{ended:?}");
        for (member, context) in world.contexts.iter().enumerate() {
            context.progress(Duration::from_millis(1)).unwrap();
            for event in groups[member].1.try_iter() {
                match event {
                    Event::Complete(0, data) => assert!(data == message, "member {member}"),
                    Event::Failed(failure, _) => panic!("{failure}"),
                    Event::Closed => ended[member] = true,
                    _ => {}
                }
            }
        }
        let counters = world.contexts[1].counters().unwrap();
        is_early |= counters.blocks_sent > counters.blocks_received;
    }
    let counters = world.contexts[1].counters().unwrap();
    assert_eq!((counters.blocks_received, counters.blocks_sent), (BLOCKS, BLOCKS));
    is_early
}

#[test]
fn blocks_that_are_arriving_are_sent_on() {
    for (name, can_follow) in [("tcp", true), ("ofi-tcp", true), ("sockets", false)] {
        let fabric: Fabric = name.parse().unwrap();
        let mut settings = common::context_settings(&rdmc::Secret::random().unwrap());
        settings.fabric = fabric.clone();
        match rdmc::Context::start(settings) {
            Ok(context) => context.close(PATIENCE).unwrap(),
            Err(error) => {
                eprintln!("SKIPPED: over {name}, which needs libfabric: {error}");
                continue;
            }
        }
        let world = World::start_with(3, |settings| {
            settings.fabric = fabric.clone();
            settings.progress = Progress::Caller;
            // One thread drives all, and copies long blocks between its turns.
            settings.tcp.silence_timeout = PATIENCE;
        });
        assert_eq!(sends_on_early(&world), can_follow, "over {name}");
        world.close();
    }
}
