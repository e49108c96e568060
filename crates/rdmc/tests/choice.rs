//! Groups whose root chooses for all: what members take, and what they refuse.

use std::{thread, time::Duration};

use rdmc::{
    Algorithm, Context, ContextSettings, Error, Group, GroupSettings, Progress, Protection, Region,
    Schedule, Scheduling, Secret, Window,
};

use crate::common::{PATIENCE, World, among, close_all, contents, group};

fn open(number: u64) -> impl Fn(u32) -> GroupSettings + Sync {
    move |rank| GroupSettings::new(number, Vec::new(), rank)
}

fn usual() -> ContextSettings {
    crate::common::context_settings(&Secret::from_bytes([0; 32]))
}

fn taken(groups: &[Group]) -> Vec<(Algorithm, u64)> {
    groups.iter().map(|group| (group.schedule().algorithm(), group.block_bytes())).collect()
}

fn close(groups: Vec<Group>) {
    thread::scope(|scope| {
        for group in &groups {
            scope.spawn(|| group.close(PATIENCE).unwrap());
        }
    });
}

/// Sends a message and compares it at all other members.
fn send(groups: &[Group], root: usize) {
    let sent = contents(0, 700_001);
    groups[root].send(Region::from_vec(sent.clone()), PATIENCE).unwrap();
    for (rank, group) in groups.iter().enumerate() {
        if rank != root {
            let message = group.receive(PATIENCE).unwrap().unwrap();
            let received = message.into_region(PATIENCE).unwrap().try_into_vec().unwrap();
            assert!(received == sent, "at member {rank}");
        }
    }
}

#[test]
fn all_members_take_what_the_root_chooses() {
    let world = World::start(7);
    for (number, root, bytes) in [(1, 0, 8 << 20), (2, 3, 100 << 10), (3, 6, 1 << 30)] {
        // Hints of others are of no effect.
        let hinted = |rank| {
            let length = if rank == root { bytes } else { 1_u64 << (10 + rank) };
            open(number)(rank).root(root).message_bytes(length)
        };
        let groups = world.join_to_receive(hinted);
        let choice = among(hinted(root), &world.addresses).choose(&usual());
        assert_eq!(taken(&groups), vec![(choice.algorithm, choice.block_bytes); 7]);
        for group in &groups {
            let settings = group.settings();
            assert_eq!(settings.schedule.algorithm(), Some(choice.algorithm));
            assert_eq!(settings.block_bytes, Some(choice.block_bytes));
            assert_eq!(settings.window, Some(Window::for_group(choice.block_bytes, 7)));
        }
        send(&groups, root as usize);
        close(groups);
    }
    world.close();
}

#[test]
fn explicit_settings_of_the_root_reach_members_that_leave_them_open() {
    let world = World::start(5);
    let schedule = Schedule::new(Algorithm::Sequential, 5, 2).unwrap();
    let settings = |rank| match rank {
        2 => open(1)(rank).schedule(schedule.clone()).block_bytes(5_000),
        4 => open(1)(rank).root(2).schedule(Algorithm::Sequential),
        1 => open(1)(rank).root(2).block_bytes(5_000),
        _ => open(1)(rank).root(2),
    };
    let groups = world.join_to_receive(settings);
    assert_eq!(taken(&groups), [(Algorithm::Sequential, 5_000); 5]);
    send(&groups, 2);
    close(groups);
    world.close();
}

/// Without shared connections questions go on connections of their own.
#[test]
fn members_agree_without_shared_connections() {
    let world = World::start_with(6, |settings| settings.protection = Some(Protection::None));
    let groups = world.join_to_receive(|rank| open(1)(rank).root(5).message_bytes(3 << 20));
    assert!(taken(&groups).windows(2).all(|pair| pair[0] == pair[1]));
    send(&groups, 5);
    close(groups);
    world.close();
}

#[test]
fn members_agree_where_callers_make_progress() {
    let world = World::start_with(4, |settings| settings.progress = Progress::Caller);
    for number in 1..4 {
        let groups = world.join_to_receive(open(number));
        assert!(taken(&groups).windows(2).all(|pair| pair[0] == pair[1]));
        close(groups);
    }
    world.close();
}

#[test]
fn a_number_can_be_used_again_at_once_with_another_choice() {
    let world = World::start(4);
    for round in 0..20 {
        let bytes = if round % 2 == 0 { 16 << 10 } else { 1 << 30 };
        let hinted = |rank| open(1)(rank).message_bytes(bytes);
        let groups = world.join_to_receive(hinted);
        let choice = among(hinted(0), &world.addresses).choose(&usual());
        assert_eq!(taken(&groups), vec![(choice.algorithm, choice.block_bytes); 4]);
        close(groups);
    }
    world.close();
}

/// The other members learn that the root has closed a group before their applications do anything. Those that learn it first ask
/// members that have not ended it about the next one.
#[test]
fn a_receiver_uses_a_number_again_as_soon_as_its_group_is_closed() {
    let world = World::start(8);
    let run = |rank: u32| {
        for round in 0..20 {
            let bytes = if round % 2 == 0 { 16 << 10 } else { 1 << 30 };
            let settings = among(open(1)(rank), &world.addresses).message_bytes(bytes);
            let choice = among(open(1)(0), &world.addresses).message_bytes(bytes).choose(&usual());
            let group = world_group(&world, rank, settings).unwrap();
            assert_eq!(group.block_bytes(), choice.block_bytes, "round {round}");
            match rank {
                0 => group.close(PATIENCE).unwrap(),
                _ => assert!(group.receive(PATIENCE).unwrap().is_none()),
            }
        }
    };
    thread::scope(|scope| (0..8).for_each(|rank| drop(scope.spawn(move || run(rank)))));
    world.close();
}

/// Members need not begin at the same time: a member that comes when the root is ready is answered as well.
#[test]
fn members_that_come_later_are_answered() {
    let world = World::start(4);
    let chain = |rank| {
        let settings = among(open(1)(rank), &world.addresses);
        if rank == 0 { settings.schedule(Algorithm::Chain) } else { settings }
    };
    thread::scope(|scope| {
        let first = [0, 1, 2].map(|rank: u32| {
            let (world, chain) = (&world, &chain);
            scope.spawn(move || world_group(world, rank, chain(rank)))
        });
        thread::sleep(Duration::from_millis(300));
        let last = world_group(&world, 3, chain(3));
        let mut groups: Vec<Group> =
            first.into_iter().map(|member| member.join().unwrap().unwrap()).collect();
        groups.push(last.unwrap());
        assert!(taken(&groups).iter().all(|(algorithm, _)| *algorithm == Algorithm::Chain));
        close(groups);
    });
    world.close();
}

fn world_group(world: &World, rank: u32, settings: GroupSettings) -> Result<Group, Error> {
    world.contexts[rank as usize].create_group(settings)
}

/// The errors of a group that is not created.
fn refused(world: &World, settings: impl Fn(u32) -> GroupSettings + Sync) -> Vec<String> {
    let settings = &settings;
    thread::scope(|scope| {
        let joining: Vec<_> = (0..)
            .zip(&world.contexts)
            .map(|(rank, context)| {
                let settings = among(settings(rank), &world.addresses);
                scope.spawn(move || context.create_group(settings))
            })
            .collect();
        let results = joining.into_iter().map(|thread| thread.join().unwrap());
        results.map(|result| result.err().map_or_else(String::new, |e| e.to_string())).collect()
    })
}

#[test]
fn members_that_believe_in_other_roots_name_the_difference() {
    let world = World::start(2);
    let errors = refused(&world, |rank| open(1)(rank).root(1 - rank));
    assert!(errors.iter().any(|error| error.contains("root: ")), "{errors:?}");
    let errors = refused(&world, |rank| open(2)(rank).root(rank));
    assert!(errors.iter().any(|error| error.contains("root: ")), "{errors:?}");
    world.close();
}

#[test]
fn what_a_member_does_not_take_is_said_with_the_remedy() {
    let world = World::start_with(3, |settings| {
        settings.connect_timeout = Duration::from_secs(5);
    });
    let racks = || vec![0, 0, 1];
    let settings = |rank| match rank {
        0 => open(1)(rank)
            .schedule(Scheduling::InRacks(Algorithm::RacksChain, racks()))
            .block_bytes(32 << 20),
        1 => open(1)(rank).schedule(Scheduling::AutoInRacks(racks())),
        _ => open(1)(rank).block_bytes(32 << 20),
    };
    let errors = refused(&world, settings);
    assert!(errors[1].contains("without block_bytes at this member, use 1 to"), "{errors:?}");
    assert!(errors[2].contains("give the same racks at all members"), "{errors:?}");
    world.close();
}

#[test]
fn a_block_size_of_a_members_own_is_compared() {
    let world = World::start(2);
    let errors = refused(&world, |rank| open(1)(rank).block_bytes(1_000 + u64::from(rank)));
    assert!(errors.iter().all(|error| error.contains("block size: ")), "{errors:?}");
    world.close();
}

#[test]
fn a_root_that_does_not_come_is_missed_by_the_deadline() {
    let world = World::start_with(2, |settings| {
        settings.connect_timeout = Duration::from_millis(300);
    });
    let settings = among(open(1)(1), &world.addresses);
    let error = world.contexts[1].create_group(settings).unwrap_err().to_string();
    // In other words where connections are not shared.
    assert!(error.contains("member 0"), "{error}");
    world.close();
}

#[test]
fn what_is_wrong_here_is_an_error_before_anybody_is_asked() {
    let world = World::start(2);
    let create = |settings: GroupSettings| {
        world.contexts[1].create_group(among(settings, &world.addresses)).unwrap_err()
    };
    let error = create(open(1)(1).block_bytes(0));
    assert!(matches!(error, Error::Setting { name: "block_bytes", .. }), "{error}");
    let joined = world.join(group(2, Algorithm::Chain, 2, 0));
    let error = create(open(2)(1));
    assert!(matches!(error, Error::NumberInUse(2)), "{error}");
    close_all(&joined).into_iter().for_each(|closed| closed.unwrap());
    world.close();
}

/// One member is all of a group.
#[test]
fn a_group_of_one_asks_nobody() {
    let context = Context::start(usual()).unwrap();
    let settings = GroupSettings::new(1, vec![context.address()], 0);
    let choice = settings.choose(&usual());
    let group = context.create_group(settings).unwrap();
    assert_eq!(group.block_bytes(), choice.block_bytes);
    group.close(PATIENCE).unwrap();
    context.close(PATIENCE).unwrap();
}
