//! What the root learns of messages that every member has, while the group runs.

use std::{thread, time::Duration};

use rdmc::{Algorithm, Error, Group, GroupSettings, Region, RelayError, SmallMessages};

use crate::common::{self, Event, PATIENCE, World, close_all};

const MEMBERS: u32 = 3;

fn chain(small: Option<SmallMessages>) -> impl Fn(u32) -> GroupSettings + Sync {
    let made = common::group(1, Algorithm::Chain, MEMBERS, 0);
    move |rank| made(rank).small(small)
}

fn close(groups: &[Group]) {
    thread::scope(|scope| {
        for group in groups {
            scope.spawn(|| group.close(PATIENCE).unwrap());
        }
    });
}

/// Relayed messages and small ones; the last member provides no memory for the second for a while.
#[test]
fn the_root_waits_until_every_member_has_a_message() {
    for small in [None, Some(SmallMessages::default())] {
        let world = World::start(MEMBERS as usize);
        let groups = world.join_to_receive(|rank| chain(small)(rank).receive_bytes_max(0));
        let (root, last) = (&groups[0], &groups[2]);
        for _ in 0..2 {
            root.send(Region::zeroed(5_000), PATIENCE).unwrap();
        }
        let receive = |group: &Group| drop(group.receive(PATIENCE).unwrap().unwrap());
        receive(&groups[1]);
        receive(&groups[1]);
        receive(last);
        root.wait_delivered(1, PATIENCE).unwrap();
        assert_eq!(root.delivered(), 1);
        let waited = root.wait_delivered(2, Duration::from_millis(100));
        let Err(Error::Timeout { what, .. }) = &waited else { panic!("{waited:?}") };
        assert!(what.contains("2 messages of group 1 at every member"), "{what}");
        receive(last);
        root.wait_delivered(2, PATIENCE).unwrap();
        assert_eq!((root.delivered(), last.delivered()), (2, 0));
        let waited = last.wait_delivered(1, PATIENCE);
        assert!(matches!(waited, Err(Error::Relay(RelayError::NotRoot { .. }))), "{waited:?}");
        close(&groups);
        assert!(groups.iter().all(|group| group.delivered() == 2));
        let waited = root.wait_delivered(3, PATIENCE);
        assert!(matches!(waited, Err(Error::Closed(1))), "{waited:?}");
        world.close();
    }
}

#[test]
fn each_of_several_messages_is_reported_while_the_group_is_idle() {
    for algorithm in [Algorithm::Chain, Algorithm::BinomialPipeline, Algorithm::Circulant] {
        let world = World::start(5);
        let made = common::group(1, algorithm, 5, 2);
        let groups = world.join_to_receive(|rank| made(rank).report_delivered(true));
        for _ in 0..4 {
            groups[2].send(Region::zeroed(50_000), PATIENCE).unwrap();
        }
        groups[2].wait_delivered(4, PATIENCE).unwrap();
        close(&groups);
        world.close();
    }
}

#[test]
fn a_wait_ends_with_the_group() {
    let world = World::start(MEMBERS as usize);
    let groups = world.join_to_receive(|rank| chain(None)(rank).receive_bytes_max(0));
    groups[0].send(Region::zeroed(5_000), PATIENCE).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| groups[0].wait_delivered(1, PATIENCE));
        groups[2].abort("enough");
        let waited = waiting.join().unwrap();
        assert!(matches!(&waited, Err(Error::Failed(it)) if it.member == Some(2)), "{waited:?}");
    });
    world.close();
}

#[test]
fn each_message_is_reported_at_the_root_if_it_asks() {
    const MESSAGES: u64 = 7;
    for reports in [false, true] {
        for small in [None, Some(SmallMessages::default())] {
            let world = World::start(MEMBERS as usize);
            let groups = world.join(|rank| chain(small)(rank).report_delivered(reports));
            for _ in 0..MESSAGES {
                groups[0].0.send(Region::zeroed(3_000), PATIENCE).unwrap();
            }
            close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
            for (rank, (_, events)) in groups.iter().enumerate() {
                let counts = events.try_iter().filter_map(|event| match event {
                    Event::Delivered(count) => Some(count),
                    _ => None,
                });
                let counts: Vec<u64> = counts.collect();
                assert!(counts.is_sorted_by(|one, next| one < next), "{counts:?}");
                let last = (reports && rank == 0).then_some(MESSAGES);
                assert_eq!(counts.last().copied(), last, "at {rank}");
            }
            drop(groups);
            world.close();
        }
    }
}
