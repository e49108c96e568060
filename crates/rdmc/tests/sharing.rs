//! Groups on the connections that their contexts share. That these are few is tested in `leaks`.

use std::{
    io::Read,
    net::SocketAddr,
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use rdmc::{
    Algorithm, Context, ContextSettings, Error, Fabric, FailureKind, Group, GroupSettings,
    Progress, Protection, Region, Secret,
};

use crate::common::{
    self, Event, PATIENCE, Recorder, World, among, close_all, contents, context_settings, group,
};

fn chain(number: u64, members: u32) -> impl Fn(u32) -> GroupSettings + Sync {
    group(number, Algorithm::Chain, members, 0)
}

/// Sends a message in a group of these contexts and closes it.
fn use_group(world: &World, number: u64) {
    let groups = world.join(chain(number, world.contexts.len() as u32));
    let message = contents(number, 30_000);
    groups[0].0.try_send(Region::from_vec(message.clone())).unwrap();
    close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    for (_, events) in &groups {
        let complete = events.iter().find_map(|event| match event {
            Event::Complete(0, contents) => Some(contents),
            _ => None,
        });
        assert!(complete == Some(message.clone()), "group {number}");
    }
}

/// With every kind of contexts: such as share connections, and such as do not.
#[test]
fn contexts_of_all_kinds_meet() {
    let kinds = [Protection::None, Protection::Encrypt];
    for (streams, protection) in [1, 3].into_iter().flat_map(|s| kinds.map(|kind| (s, kind))) {
        let world = World::start_with(3, |settings| {
            settings.streams = streams;
            settings.protection = Some(protection);
        });
        thread::scope(|scope| {
            for numbers in [1..6, 10..16] {
                let world = &world;
                scope.spawn(move || numbers.for_each(|number| use_group(world, number)));
            }
        });
        world.close();
    }
}

/// Each member starts its next context as soon as its last one has ended, while the others may still be in the one before.
#[test]
fn contexts_follow_each_other_at_the_same_addresses() {
    let secret = Secret::random().unwrap();
    let start = |address: SocketAddr| {
        let mut settings = common::context_settings(&secret);
        settings.listen = address;
        Context::start(settings).unwrap()
    };
    let first = [(); 3].map(|()| start(common::context_settings(&secret).listen));
    let addresses = first.each_ref().map(Context::address);
    first.into_iter().for_each(|context| context.close(PATIENCE).unwrap());
    thread::scope(|scope| {
        for rank in 0..3 {
            let (start, addresses) = (&start, &addresses);
            scope.spawn(move || {
                for round in 0..30 {
                    let context = start(addresses[rank as usize]);
                    let settings = among(chain(1, 3)(rank), addresses);
                    let group = context.create_group(settings);
                    let group = group.unwrap_or_else(|error| panic!("{rank}, {round}: {error}"));
                    group.close(PATIENCE).unwrap();
                    context.close(PATIENCE).unwrap();
                }
            });
        }
    });
}

/// One makes progress by itself, the other while its application waits.
#[test]
fn a_context_that_its_caller_drives_shares_connections() {
    let secret = Secret::random().unwrap();
    let start = |progress| {
        let mut settings = context_settings(&secret);
        settings.progress = progress;
        Context::start(settings).unwrap()
    };
    for kinds in [[Progress::Caller, Progress::Thread], [Progress::Caller, Progress::Caller]] {
        let contexts = kinds.map(start);
        let addresses: Vec<SocketAddr> = contexts.iter().map(Context::address).collect();
        for number in 1..6 {
            let groups = thread::scope(|scope| {
                let join = |rank: usize| {
                    let settings = among(chain(number, 2)(rank as u32), &addresses);
                    contexts[rank].create_group(settings).unwrap()
                };
                let other = scope.spawn(move || join(1));
                [join(0), other.join().unwrap()]
            });
            thread::scope(|scope| {
                scope.spawn(|| {
                    groups[0].try_send(Region::from_vec(contents(number, 50_000))).unwrap();
                    groups[0].close(PATIENCE).unwrap();
                });
                let mut message = groups[1].receive(PATIENCE).unwrap().expect("a message");
                let mut received = Vec::new();
                message.read_to_end(&mut received).unwrap();
                assert!(received == contents(number, 50_000));
                groups[1].close(PATIENCE).unwrap();
            });
        }
        contexts.into_iter().for_each(|context| context.close(PATIENCE).unwrap());
    }
}

/// A group that one member creates late delays no other on the same connection, in whatever order they are asked for.
#[test]
fn a_group_that_is_created_late_delays_no_other() {
    let world = World::start(2);
    use_group(&world, 1);
    let (contexts, addresses) = (&world.contexts, &world.addresses);
    let join = |number: u64, rank: u32| {
        contexts[rank as usize].create_group(among(chain(number, 2)(rank), addresses))
    };
    thread::scope(|scope| {
        // Of each pair one member is here at once; each member asks for one of them.
        let early = [(2, 1), (3, 0)].map(|(number, rank)| scope.spawn(move || join(number, rank)));
        thread::sleep(Duration::from_millis(50));
        (4..8).for_each(|number| use_group(&world, number));
        assert!(early.iter().all(|thread| !thread.is_finished()));
        let late = [(2, 0), (3, 1)].map(|(number, rank)| scope.spawn(move || join(number, rank)));
        let groups: Vec<Group> =
            early.into_iter().chain(late).map(|it| it.join().unwrap().unwrap()).collect();
        let closing: Vec<_> =
            groups.into_iter().map(|it| scope.spawn(move || it.close(PATIENCE))).collect();
        closing.into_iter().for_each(|closed| closed.join().unwrap().unwrap());
    });
    world.close();
}

/// What one group has come to does not concern others on the same connection.
#[test]
fn groups_fail_and_are_refused_one_by_one() {
    let world = World::start(3);
    let stays = world.join(chain(1, 3));
    let different = |rank: u32| chain(2, 2)(rank).block_bytes(u64::from(rank + 1) * 500);
    thread::scope(|scope| {
        let join = |rank: u32| {
            let settings = among(different(rank), &world.addresses[..2]);
            world.contexts[rank as usize].create_group(settings).map(drop).unwrap_err().to_string()
        };
        let both = [0, 1].map(|rank| scope.spawn(move || join(rank)));
        for error in both.map(|thread| thread.join().unwrap()) {
            assert!(error.contains("block size"), "{error}");
            // "Here" in the text is the member that has compared, which is the same in both errors.
            assert!(error.contains("500 here, 1000 there (seen from member 0)"), "{error}");
        }
    });
    let aborted = world.join(chain(3, 3));
    aborted[2].0.abort("enough");
    for (_, events) in &aborted {
        let failed = events.iter().find_map(|event| match event {
            Event::Failed(failure, _) => Some(failure),
            _ => None,
        });
        assert_eq!(failed.expect("a failure").member, Some(2));
    }
    drop(world.join(chain(4, 3)).remove(1));
    let message = contents(7, 20_000);
    stays[0].0.try_send(Region::from_vec(message.clone())).unwrap();
    close_all(&stays).into_iter().for_each(|closed| closed.unwrap());
    for (_, events) in &stays {
        assert!(events.iter().any(|it| matches!(it, Event::Complete(0, got) if got == message)));
    }
    use_group(&world, 2);
    world.close();
}

/// A member that gives up waiting is not in the way when it, or its neighbour, tries again.
#[test]
fn a_creation_that_timed_out_can_be_repeated() {
    let world = World::start_with(2, |settings| settings.connect_timeout = Duration::from_secs(1));
    use_group(&world, 1);
    for (late, number) in [(0, 2), (1, 3)] {
        let settings = among(chain(number, 2)(1 - late), &world.addresses);
        let error = world.contexts[1 - late as usize].create_group(settings).map(drop).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. } | Error::Member { .. }), "{error}");
        assert!(error.to_string().contains("group"), "{error}");
        // What it has withdrawn may still be on its way to the neighbour, which would accept it. Requests of another group come
        // behind that.
        use_group(&world, 10 + number);
        use_group(&world, number);
    }
    world.close();
}

/// Starts contexts of these timeouts; returns them with their addresses.
fn contexts_of(protection: Protection, timeouts: &[Duration]) -> (Vec<Context>, Vec<SocketAddr>) {
    let secret = Secret::random().unwrap();
    let start = |&timeout: &Duration| {
        let settings = context_settings(&secret).protection(protection);
        Context::start(settings.connect_timeout(timeout)).unwrap()
    };
    let contexts: Vec<Context> = timeouts.iter().map(start).collect();
    let addresses = contexts.iter().map(Context::address).collect();
    (contexts, addresses)
}

/// Of two neighbours, one has little patience and tries again and again, while both wait for members that come late: the group
/// is created at all of them, and works.
fn one_member_tries_again(protection: Protection, impatient: u32) {
    const SHORT: Duration = Duration::from_secs(2);
    let timeouts = [0, 1, 2, 3].map(|rank| if rank == impatient { SHORT } else { PATIENCE });
    let (contexts, addresses) = contexts_of(protection, &timeouts);
    // A square: 0 and 1 are neighbours; 2 is the other one of 0, and 3 of 1.
    let square = group(7, Algorithm::BinomialPipeline, 4, 0);
    let create = |rank: u32| contexts[rank as usize].create_group(among(square(rank), &addresses));
    let (tried, has_tried) = channel();
    let create_again = || {
        loop {
            let created = create(impatient);
            let _ = tried.send(());
            match created {
                Ok(group) => return group,
                Err(Error::Timeout { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    let groups = thread::scope(|scope| {
        let early = [0, 1].map(|rank| {
            let (create, create_again) = (&create, &create_again);
            scope.spawn(move || match rank == impatient {
                true => create_again(),
                false => create(rank).unwrap(),
            })
        });
        has_tried.recv_timeout(PATIENCE).unwrap();
        let late = [2, 3].map(|rank| scope.spawn(move || create(rank).unwrap()));
        let all: Vec<Group> = early.into_iter().chain(late).map(|it| it.join().unwrap()).collect();
        all
    });
    let message = contents(7, 20_000);
    groups[0].try_send(Region::from_vec(message.clone())).unwrap();
    let closing: Vec<_> = thread::scope(|scope| {
        let closing = groups.iter().map(|group| scope.spawn(|| group.close(PATIENCE)));
        closing.collect::<Vec<_>>().into_iter().map(|it| it.join().unwrap()).collect()
    });
    closing.into_iter().for_each(|closed| closed.unwrap());
    contexts.into_iter().for_each(|context| context.close(PATIENCE).unwrap());
}

#[test]
fn a_member_that_tries_again_does_not_harm_its_neighbours() {
    for protection in [Protection::None, Protection::Encrypt] {
        one_member_tries_again(protection, 1);
    }
}

/// The member that had accepted gives up: the one that had asked is notified, and asks again.
#[test]
fn a_member_that_had_accepted_may_try_again() {
    if common::fabric() == Fabric::Tcp {
        one_member_tries_again(Protection::Encrypt, 0);
    }
}

/// An option that the system does not have is refused where the context starts.
#[test]
fn an_option_that_the_system_lacks_is_refused_at_once() {
    let mut settings = context_settings(&Secret::random().unwrap());
    settings.tcp = settings.tcp.congestion(Some("nosuch".into()));
    let error = Context::start(settings).map(drop).unwrap_err().to_string();
    assert!(error.contains("TCP_CONGESTION"), "{error}");
}

/// A context that ends takes its connections with it; the one that follows at its address is connected to again.
#[test]
fn a_context_that_starts_again_is_connected_to_again() {
    if common::fabric() != Fabric::Tcp {
        return;
    }
    for survivor in [0, 1] {
        let secret = Secret::random().unwrap();
        let start = |listen: Option<SocketAddr>| {
            let mut settings: ContextSettings = context_settings(&secret);
            settings.listen = listen.unwrap_or(settings.listen);
            Context::start(settings)
        };
        let mut contexts = vec![start(None).unwrap(), start(None).unwrap()];
        let addresses: Vec<SocketAddr> = contexts.iter().map(Context::address).collect();
        for number in 1..4 {
            let world = World { contexts, addresses: addresses.clone() };
            let open = world.join(chain(number + 10, 2));
            use_group(&world, number);
            let mut left = world.contexts;
            let stays = left.remove(survivor);
            drop(left);
            // The group that is still open fails.
            let deadline = Instant::now() + PATIENCE;
            let failed = open[survivor].1.iter().find_map(|event| match event {
                Event::Failed(failure, _) => Some(failure),
                _ => None,
            });
            assert_eq!(failed.expect("a failure").kind, FailureKind::Application);
            let again = loop {
                match start(Some(addresses[1 - survivor])) {
                    Ok(context) => break context,
                    Err(error) => assert!(Instant::now() < deadline, "{error}"),
                }
            };
            contexts = if survivor == 0 { vec![stays, again] } else { vec![again, stays] };
        }
    }
}

/// Groups that many threads create at the same time, with every member as root of some.
#[test]
fn many_threads_create_groups_at_once() {
    let world = World::start(4);
    let (contexts, addresses) = (&world.contexts, &world.addresses);
    thread::scope(|scope| {
        for (rank, context) in (0..).zip(contexts) {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for number in (0..10).map(|it| 1 + thread * 10 + it) {
                        let settings =
                            group(number, Algorithm::BinomialPipeline, 4, number as u32 % 4)(rank);
                        let (sender, events) = channel();
                        let group = context
                            .create_group_with(among(settings, addresses), Recorder(sender))
                            .unwrap();
                        if rank == number as u32 % 4 {
                            group.try_send(Region::from_vec(contents(number, 10_000))).unwrap();
                        }
                        group.close(PATIENCE).unwrap();
                        let wanted = contents(number, 10_000);
                        assert!(
                            events
                                .iter()
                                .any(|it| matches!(it, Event::Complete(0, got) if got == wanted))
                        );
                    }
                });
            }
        }
    });
    world.close();
}
