//! Groups that verify: no copy that differs from the root's is reported as received.

use rdmc::{Algorithm, Error, FailureKind, GroupSettings, Region};

use crate::common::{self, Disk, Event, PATIENCE, World, close_all, contents};

const MEMBERS: u32 = 3;
const BYTES: usize = 100_500;

fn settings(algorithm: Algorithm, verify: bool) -> impl Fn(u32) -> GroupSettings + Sync {
    let made = common::group(1, algorithm, MEMBERS, 0);
    move |rank| made(rank).verify(verify)
}

/// Changes a byte of the block at 50,000.
fn change(bytes: &mut [u8], offset: u64) {
    if offset == 50_000 {
        bytes[7] ^= 1;
    }
}

/// A relay that sends what it reads back from its disk gives the members behind it the same copy.
#[test]
fn a_disk_that_changes_a_byte_is_named_at_every_member() {
    let alone = Algorithm::Sequential;
    for (algorithm, culprit, named) in [
        (alone, 1, 1..2),
        (alone, 2, 2..3),
        (Algorithm::Chain, 1, 1..3),
        (Algorithm::Chain, 2, 2..3),
    ] {
        let world = World::start(MEMBERS as usize);
        let groups =
            world.join_to_receive(|rank| settings(algorithm, true)(rank).receive_bytes_max(0));
        for rank in 1..MEMBERS {
            let (_, region) = Disk::of(BYTES, if rank == culprit { change } else { |_, _| () });
            groups[rank as usize].post_receive_buffer(region).unwrap();
        }
        groups[0].send(Region::from_vec(contents(1, BYTES)), PATIENCE).unwrap();
        let message = groups[culprit as usize].receive(PATIENCE).unwrap().unwrap();
        let waited = message.wait(PATIENCE);
        assert!(matches!(waited, Err(Error::Failed(_))), "reported as received: {waited:?}");
        for group in &groups {
            let Err(Error::Failed(failure)) = group.wait_complete(2, PATIENCE) else {
                panic!("the group goes on")
            };
            let found = (failure.kind, failure.delivered);
            assert_eq!(found, (FailureKind::Differs, 0), "{failure}");
            assert!(failure.member.is_some_and(|member| named.contains(&member)), "{failure}");
            assert!(failure.detail.starts_with("message 0 of 100500 bytes"), "{failure}");
        }
        drop(message);
        world.close();
    }
}

/// Sends a message from a disk to the disks of all receivers, which write by these functions, closes with
/// success everywhere, and returns which of them have something else.
fn replicated(verify: bool, writing: [fn(&mut [u8], u64); 2]) -> [bool; 2] {
    let world = World::start(MEMBERS as usize);
    let groups = world
        .join_to_receive(|rank| settings(Algorithm::Sequential, verify)(rank).receive_bytes_max(0));
    let disks = writing.map(|writing| Disk::of(BYTES, writing));
    for (group, (_, region)) in groups[1..].iter().zip(&disks) {
        group.post_receive_buffer(region.clone()).unwrap();
    }
    let (source, region) = Disk::of(BYTES, |_, _| ());
    *source.contents.lock().unwrap() = contents(1, BYTES);
    groups[0].send(region, PATIENCE).unwrap();
    std::thread::scope(|scope| {
        for group in &groups {
            scope.spawn(|| {
                if !group.settings().is_root() {
                    group.receive(PATIENCE).unwrap();
                }
                group.close(PATIENCE).unwrap();
            });
        }
    });
    let differs = disks.map(|(disk, _)| *disk.contents.lock().unwrap() != contents(1, BYTES));
    world.close();
    differs
}

#[test]
fn without_verification_every_member_closes_with_success() {
    assert_eq!(replicated(false, [change, |_, _| ()]), [true, false]);
}

#[test]
fn files_that_are_the_same_arrive_as_without() {
    assert_eq!(replicated(true, [|_, _| (), |_, _| ()]), [false, false]);
}

/// Of any length, also of those that would go into slots.
#[test]
fn messages_that_are_the_same_arrive_as_without() {
    let world = World::start(MEMBERS as usize);
    let groups = world.join(|rank| {
        settings(Algorithm::Chain, true)(rank).small(Some(rdmc::SmallMessages::default()))
    });
    let lengths = [0, 1, 1_000, 1_001, BYTES, 10 << 20];
    for (message, bytes) in (0..).zip(lengths) {
        let region = Region::from_vec(contents(message, bytes));
        groups[0].0.send(region, PATIENCE).unwrap();
    }
    close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    for (_, events) in &groups[1..] {
        let complete = events.try_iter().filter_map(|event| match event {
            Event::Complete(message, bytes) => Some((message, bytes)),
            _ => None,
        });
        for ((message, bytes), expected) in complete.zip(lengths) {
            assert!(bytes == contents(message, expected), "message {message}");
        }
    }
    drop(groups);
    world.close();
}
