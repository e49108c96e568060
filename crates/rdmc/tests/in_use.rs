//! Memory that is in use: of messages that are being sent, and that applications provide.

use std::{thread, time::Duration};

use rdmc::{Algorithm, Error, FailureKind, Group, GroupSettings, LeaseError, Region};

use crate::common::{Disk, PATIENCE, World};

/// Messages of this length are written into slots, longer ones relayed.
const SLOT_BYTES: usize = 10 * 1024;

fn chain(members: u32) -> impl Fn(u32) -> GroupSettings + Sync {
    crate::common::group(1, Algorithm::Chain, members, 0)
}

fn fails_by_memory(group: &Group, member: u32) -> String {
    let Err(Error::Failed(failure)) = group.wait_complete(9, PATIENCE) else {
        panic!("the group goes on")
    };
    assert_eq!((failure.member, failure.kind), (Some(member), FailureKind::Memory), "{failure}");
    failure.detail
}

#[test]
fn the_number_of_a_group_is_free_once_it_was_closed_or_dropped() {
    let world = World::start(1);
    let create = || {
        let settings = crate::common::among(chain(1)(0), &world.addresses);
        world.contexts[0].create_group(settings)
    };
    for round in 0..100 {
        let group = create().unwrap_or_else(|error| panic!("round {round}: {error}"));
        if round % 2 == 0 {
            group.close(PATIENCE).unwrap();
        }
        let refused = create().err().map(|error| error.to_string());
        let is_open = round % 2 == 1;
        assert_eq!(refused.is_some_and(|text| text.contains("is in use")), is_open, "{round}");
    }
    world.close();
}

/// At once, also without a stall timeout; the region comes back to the application.
#[test]
fn memory_in_use_fails_the_group_with_the_reason_whatever_the_length() {
    for bytes in [100, 10 * SLOT_BYTES] {
        for is_stored in [false, true] {
            let world = World::start(2);
            let groups = world.join_to_receive(|rank| {
                let mut settings = chain(2)(rank).stall_timeout(Duration::MAX);
                settings.small = Some(rdmc::SmallMessages::default());
                settings
            });
            let region = match is_stored {
                true => Disk::of(bytes, |_, _| ()).1,
                false => Region::zeroed(bytes),
            };
            let reader = (!is_stored).then(|| region.read(0..bytes).unwrap());
            let stored_reader = is_stored.then(|| region.read_stored(0..bytes).unwrap());
            groups[1].post_receive_buffer(region).unwrap();
            groups[0].send(Region::zeroed(bytes), PATIENCE).unwrap();
            let detail = fails_by_memory(&groups[1], 1);
            assert!(detail.contains("are in use"), "{detail}");
            fails_by_memory(&groups[0], 1);
            drop((reader, stored_reader));
            world.close();
        }
    }
}

/// The region of the last message is provided again while a part of it is still being read.
#[test]
fn a_region_that_is_posted_again_while_it_is_read_fails_the_group() {
    let world = World::start(2);
    let groups = world.join_to_receive(|rank| {
        let mut settings = chain(2)(rank).stall_timeout(Duration::MAX);
        settings.small = Some(rdmc::SmallMessages::default());
        settings
    });
    let region = Region::zeroed(100);
    groups[1].post_receive_buffer(region.clone()).unwrap();
    groups[0].send(Region::from_vec(vec![1; 100]), PATIENCE).unwrap();
    groups[1].wait_complete(1, PATIENCE).unwrap();
    let reader = region.read(50..51).unwrap();
    groups[1].post_receive_buffer(region.clone()).unwrap();
    groups[0].send(Region::from_vec(vec![2; 100]), PATIENCE).unwrap();
    fails_by_memory(&groups[0], 1);
    assert_eq!(*reader, [1]);
    world.close();
}

/// The last receiver provides no memory for a while, so that the others hold the message.
#[test]
fn what_is_sent_or_still_to_be_passed_on_cannot_be_written() {
    const BYTES: usize = 300_000;
    let world = World::start(3);
    let groups = world.join_to_receive(|rank| chain(3)(rank).receive_bytes_max(0));
    let regions = [Region::from_vec(vec![7; BYTES]), Region::zeroed(BYTES), Region::zeroed(BYTES)];
    groups[0].send(regions[0].clone(), PATIENCE).unwrap();
    let refuses = |region: &Region| {
        for range in [0..1, BYTES / 2..BYTES / 2 + 1, BYTES - 1..BYTES] {
            let in_use = Err(LeaseError::InUse { range: range.clone() });
            assert_eq!(region.write(range).map(drop), in_use);
        }
    };
    // No other member has provided memory.
    refuses(&regions[0]);
    groups[1].post_receive_buffer(regions[1].clone()).unwrap();
    let message = groups[1].receive(PATIENCE).unwrap().unwrap();
    message.wait(PATIENCE).unwrap();
    refuses(&regions[1]);
    groups[2].post_receive_buffer(regions[2].clone()).unwrap();
    thread::scope(|scope| {
        for group in &groups {
            scope.spawn(|| group.wait_complete(1, PATIENCE).unwrap());
        }
    });
    for region in &regions {
        region.write(0..BYTES).unwrap().fill(8);
    }
    drop(message);
    world.close();
}
