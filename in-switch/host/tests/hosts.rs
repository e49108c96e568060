//! Daemons at hosts, with an agent at their switch: groups of applications, and their events when something
//! ends. Needs root.

#[path = "hosts/flow.rs"]
mod flow;
#[allow(dead_code, reason = "what its own command line does")]
#[path = "../examples/replicate.rs"]
mod replicate;
#[path = "hosts/world.rs"]
mod world;

use std::time::{Duration, Instant};

use agent::Liveness;
use control::{
    ErrorKind,
    host::client::{Group, GroupEvent, Host, Listener, ListenerEvent},
    proto::GroupReport,
};
use flow::{Connected, Flow, Receiver, new_group};
use world::{SLOWER, STALE_AFTER, World, address, daemon, is_possible, runtime};

const PATIENCE: Duration = Duration::from_secs(40);
/// Subtracted from a time: shortly before it.
const MOMENT: Duration = Duration::from_millis(1);

/// Waits with a timeout.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it has come in time")
}

async fn listening(world: &World, hosts: &[usize]) -> Vec<Receiver> {
    let mut all = Vec::new();
    for &host in hosts {
        all.push(Receiver::new(world, host, "weights").await);
    }
    all
}

/// A group of host 0's with all others.
async fn group_of_all(world: &mut World) -> (Connected, Vec<Receiver>) {
    let mut receivers = listening(world, &[1, 2, 3]).await;
    let group = flow::connect(world, 0, &mut receivers).await.unwrap();
    (group, receivers)
}

/// The second application is gone: it takes its queue pair along, so that packets are no longer acknowledged. Its connection
/// lasts until the value is dropped.
fn lose_second(world: &mut World, receivers: &mut Vec<Receiver>) -> Receiver {
    let dead = receivers.remove(1);
    world.endpoints[dead.host].remove(dead.qpn);
    dead
}

async fn ended(listener: &mut Listener) -> String {
    loop {
        match soon(listener.next()).await.unwrap() {
            ListenerEvent::Ended { reason, .. } => return reason,
            ListenerEvent::Ready { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn failed(group: &mut Group) -> (usize, String, bool) {
    loop {
        match soon(group.next()).await.unwrap() {
            GroupEvent::MemberFailed { member, reason, continues } => {
                return (member, reason, continues);
            }
            GroupEvent::Trouble(_) => {}
            GroupEvent::Ended(why) => panic!("{why}"),
        }
    }
}

/// Advances the agent's clock, and waits until it has done what is due.
fn advance(world: &World, by: Duration) {
    assert!(world.clock.advance(by, PATIENCE), "the agent does not complete its periodic tasks");
}

/// Waits until the sender's daemon has renewed the only group, by the agent's present time.
async fn until_renewed(world: &World) {
    let deadline = Instant::now() + PATIENCE;
    let is_renewed = |group: &GroupReport| !group.callers.is_empty() && group.since_renewal_ms == 0;
    while !world.groups().first().is_some_and(is_renewed) {
        assert!(Instant::now() < deadline, "{:?}", world.groups());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn wait_for_groups(world: &World, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while world.groups().len() != count {
        assert!(Instant::now() < deadline, "{:?}", world.groups());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_group_replicates_and_is_closed() {
    if !is_possible() {
        return;
    }
    let mut world = World::new();
    runtime().block_on(async {
        let (group, mut receivers) = group_of_all(&mut world).await;
        let made = group.group.created().clone();
        assert!((0x80_0000..=0xff_ffff).contains(&made.id), "{made:?}");
        assert_eq!(made.members, [address(1), address(2), address(3)]);
        assert_eq!(made.virtual_address, address(1));
        Flow::new(1, 40).run(&mut world, &group, &receivers).await;
        assert!(world.resolved() > 0, "the first member has lent its addresses");
        let known = world.host(0).groups().await.unwrap().groups;
        assert_eq!(known[0].key.as_ref().unwrap().id, made.id);
        assert_eq!(known[0].members[1].daemon, daemon(2));
        let services = world.host(1).groups().await.unwrap().services;
        assert_eq!((&*services[0].name, services[0].offers), ("weights", 1));
        let copies = &world.groups()[0].copies;
        assert_eq!(copies.len(), 3);
        group.group.close().await.unwrap();
        assert!(world.groups().is_empty());
        assert!(world.host(0).groups().await.unwrap().groups.is_empty());
        for receiver in &mut receivers {
            let why = ended(&mut receiver.listener).await;
            assert_eq!(why, "the sending application has closed it");
        }
    });
}

#[test]
fn two_groups_of_one_sender_at_once() {
    if !is_possible() {
        return;
    }
    let mut world = World::new();
    runtime().block_on(async {
        let mut one = listening(&world, &[1, 2]).await;
        let mut two = listening(&world, &[3]).await;
        two.push(Receiver::new(&world, 1, "others").await);
        let first = flow::connect(&mut world, 0, &mut one).await.unwrap();
        let second = flow::connect(&mut world, 0, &mut two).await.unwrap();
        assert_ne!(first.group.created().id, second.group.created().id);
        assert_eq!(world.groups().len(), 2);
        let (mut to_one, mut to_two) = (Flow::new(1, 30), Flow::new(2, 30));
        let deadline = Instant::now() + PATIENCE;
        while !(to_one.is_over() && to_two.is_over()) {
            assert!(Instant::now() < deadline, "{to_one:?} {to_two:?}");
            to_one.post(&mut world, &first, &one);
            to_two.post(&mut world, &second, &two);
            for (host, event) in flow::progress(&mut world).await {
                let is_ones = to_one.take(&world, host, &event, &first, &one);
                assert!(
                    is_ones || to_two.take(&world, host, &event, &second, &two),
                    "{host}: {event:?}"
                );
            }
        }
        first.group.close().await.unwrap();
        assert_eq!(world.groups().len(), 1);
    });
}

#[test]
fn a_group_goes_on_without_an_application_that_dies() {
    if !is_possible() {
        return;
    }
    let mut world = World::new();
    runtime().block_on(async {
        let (mut group, mut receivers) = group_of_all(&mut world).await;
        Flow::new(1, 20).run(&mut world, &group, &receivers).await;
        let dead = lose_second(&mut world, &mut receivers);
        let mut flow = Flow::new(2, 20);
        flow.post(&mut world, &group, &receivers);
        drop(dead);
        let (member, reason, continues) = failed(&mut group.group).await;
        assert_eq!((member, &*reason, continues), (1, "its application has ended", true));
        flow.run(&mut world, &group, &receivers).await;
        // One leaves on its own, and one is removed: it was the last.
        let gone = receivers.remove(0);
        soon(gone.listener.leave(gone.offer, "enough")).await.unwrap();
        let (member, reason, continues) = failed(&mut group.group).await;
        assert_eq!((member, &*reason, continues), (0, "its application has left: enough", true));
        Flow::new(3, 20).run(&mut world, &group, &receivers).await;
        group.group.remove_member(2).await.unwrap();
        let (member, _, continues) = failed(&mut group.group).await;
        assert_eq!((member, continues), (2, false));
        let GroupEvent::Ended(why) = soon(group.group.next()).await.unwrap() else { panic!() };
        assert!(why.contains(&daemon(3)), "{why}");
        let why = ended(&mut receivers[0].listener).await;
        assert_eq!(why, "the sending application has removed it");
        assert!(world.groups().is_empty());
    });
}

#[test]
fn a_port_without_a_carrier_is_noticed() {
    if !is_possible() {
        return;
    }
    let mut world = World::in_real_time();
    runtime().block_on(async {
        let (mut group, mut receivers) = group_of_all(&mut world).await;
        world.cut(3);
        let dead = receivers.pop().unwrap();
        // Nothing has been sent that it could have acknowledged.
        let (member, reason, continues) = failed(&mut group.group).await;
        assert_eq!((member, continues), (2, true));
        assert!(reason.contains("switch switch: the port to it has had no carrier"), "{reason}");
        drop(dead);
        Flow::new(1, 10).run(&mut world, &group, &receivers).await;
    });
}

#[test]
fn a_host_that_is_cut_off_is_noticed() {
    if !is_possible() {
        return;
    }
    let mut world = World::new();
    runtime().block_on(async {
        let (mut group, mut receivers) = group_of_all(&mut world).await;
        world.cut(3);
        let dead = receivers.pop().unwrap();
        // The agent's clock stands still: only its connection tells.
        let (member, reason, continues) = failed(&mut group.group).await;
        assert_eq!((member, continues), (2, true));
        assert!(reason.contains("its host or its daemon is gone"), "{reason}");
        drop(dead);
        Flow::new(1, 10).run(&mut world, &group, &receivers).await;
    });
}

/// Its link stays up, and the connection to its daemon is noticed to be gone much later.
#[test]
fn a_dead_host_is_removed_before_an_adapter_gives_up() {
    if !is_possible() {
        return;
    }
    let mut world = World::in_real_time();
    runtime().block_on(async {
        let mut receivers = listening(&world, &[1, 2, 3]).await;
        let made = flow::connect_as(&mut world, 0, &mut receivers, flow::adapter()).await;
        let mut group = made.unwrap();
        Flow::new(1, 20).run(&mut world, &group, &receivers).await;
        world.silence(2);
        let dead = receivers.remove(1);
        // Were it removed too late, the sender's queue pair would have failed.
        Flow::new(2, 20).run_without(&mut world, Some(2), &group, &receivers).await;
        let (member, reason, continues) = failed(&mut group.group).await;
        assert_eq!((member, continues), (1, true));
        for expected in ["switch switch", "not acknowledged", &*daemon(2), "not answered"] {
            assert!(reason.contains(expected), "{reason}");
        }
        drop(dead);
    });
}

/// There is no other member to compare with: the packets that the switch has got from the sender tell.
#[test]
fn hosts_of_an_only_member_or_of_all_that_die_are_noticed() {
    if !is_possible() {
        return;
    }
    for hosts in [&[2][..], &[1, 3]] {
        let mut world = World::in_real_time();
        runtime().block_on(async {
            let mut receivers = listening(&world, hosts).await;
            let made = flow::connect_as(&mut world, 0, &mut receivers, flow::adapter()).await;
            let mut group = made.unwrap();
            Flow::new(1, 20).run(&mut world, &group, &receivers).await;
            hosts.iter().for_each(|&host| world.silence(host));
            let mut flow = Flow::new(2, 20);
            flow.post(&mut world, &group, &receivers);
            // The sender's endpoint sends and retransmits; the members' stand still.
            for left in (0..hosts.len()).rev() {
                let failed = failed(&mut group.group);
                let (_, reason, continues) = flow::sending(&mut world.endpoints[0], failed).await;
                assert_eq!(continues, left > 0);
                for expected in ["switch switch", "not acknowledged what was sent", "not answered"]
                {
                    assert!(reason.contains(expected), "{reason}");
                }
            }
            let GroupEvent::Ended(why) = soon(group.group.next()).await.unwrap() else { panic!() };
            assert!(why.contains("not acknowledged what was sent"), "{why}");
        });
    }
}

#[test]
fn a_slow_member_stays_also_an_only_one() {
    if !is_possible() {
        return;
    }
    for hosts in [&[1, 2, 3][..], &[2]] {
        let mut world = World::in_real_time();
        runtime().block_on(async {
            let mut receivers = listening(&world, hosts).await;
            let mut group = flow::connect(&mut world, 0, &mut receivers).await.unwrap();
            let mut flow = Flow::new(1, 20);
            flow.post(&mut world, &group, &receivers);
            // Time enough to be suspected and asked several times.
            let slow_until = Instant::now() + (Liveness::default().silent_after * SLOWER) * 4;
            while Instant::now() < slow_until {
                for event in flow::progress_without(&mut world, Some(2)).await {
                    assert!(flow.take(&world, event.0, &event.1, &group, &receivers), "{event:?}");
                }
            }
            assert!(!flow.is_over());
            flow.run(&mut world, &group, &receivers).await;
            group.group.remove_member(0).await.unwrap();
            let (member, reason, _) = failed(&mut group.group).await;
            let expected = (0, "the sending application has removed it");
            assert_eq!((member, &*reason), expected, "the first");
        });
    }
}

#[test]
fn groups_outlive_a_restart_of_the_agent() {
    if !is_possible() {
        return;
    }
    let mut world = World::new();
    runtime().block_on(async {
        let (group, receivers) = group_of_all(&mut world).await;
        Flow::new(1, 20).run(&mut world, &group, &receivers).await;
        world.end_agent();
        Flow::new(2, 20).run(&mut world, &group, &receivers).await;
        world.start_agent();
        Flow::new(3, 20).run(&mut world, &group, &receivers).await;
        until_renewed(&world).await;
        // Its lease would have expired in the second turn if it had not been renewed after the first.
        for _ in 0..3 {
            advance(&world, STALE_AFTER - MOMENT);
            assert_eq!(world.groups().len(), 1);
            until_renewed(&world).await;
        }
        Flow::new(4, 20).run(&mut world, &group, &receivers).await;
    });
}

/// What it has signed is of no use to it any more, nor needed.
#[test]
fn members_come_back_with_a_daemon_that_was_killed() {
    if !is_possible() {
        return;
    }
    let mut world = World::new();
    runtime().block_on(async {
        let (mut group, mut receivers) = group_of_all(&mut world).await;
        Flow::new(1, 20).run(&mut world, &group, &receivers).await;
        world.kill_daemon(2);
        let (member, reason, continues) = failed(&mut group.group).await;
        assert!((member, continues) == (1, true) && reason.contains("gone"), "{reason}");
        let _dead = lose_second(&mut world, &mut receivers);
        Flow::new(2, 20).run(&mut world, &group, &receivers).await;
        drop(group);
        for receiver in &mut receivers {
            ended(&mut receiver.listener).await;
        }
        world.start_daemon(2);
        receivers.insert(1, Receiver::new(&world, 2, "weights").await);
        let group = flow::connect(&mut world, 0, &mut receivers).await.unwrap();
        Flow::new(3, 20).run(&mut world, &group, &receivers).await;
    });
}

#[test]
fn groups_end_with_their_sender() {
    if !is_possible() {
        return;
    }
    let mut world = World::new();
    runtime().block_on(async {
        // Its application is killed.
        let (group, mut receivers) = group_of_all(&mut world).await;
        drop(group);
        for receiver in &mut receivers {
            let why = ended(&mut receiver.listener).await;
            assert_eq!(why, "the sending application has ended");
        }
        wait_for_groups(&world, 0);
        // Its daemon ends.
        let mut group = flow::connect(&mut world, 0, &mut receivers).await.unwrap();
        world.end_daemon(0);
        assert!(world.groups().is_empty());
        let GroupEvent::Ended(why) = soon(group.group.next()).await.unwrap() else { panic!() };
        assert_eq!(why, "the daemon of the sender's host shuts down");
        for receiver in &mut receivers {
            assert_eq!(ended(&mut receiver.listener).await, why);
        }
        // Its daemon is killed: the group's lease expires.
        world.start_daemon(0);
        let mut group = flow::connect(&mut world, 0, &mut receivers).await.unwrap();
        world.kill_daemon(0);
        let error = soon(group.group.next()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        for receiver in &mut receivers {
            let why = ended(&mut receiver.listener).await;
            assert_eq!(
                why,
                "the daemon of the sender's host has closed the connection, or is gone"
            );
        }
        advance(&world, STALE_AFTER - MOMENT);
        assert_eq!(world.groups().len(), 1);
        // The daemon's last renewal may still be under way.
        let deadline = Instant::now() + PATIENCE;
        while !world.groups().is_empty() {
            assert!(Instant::now() < deadline, "{:?}", world.groups());
            advance(&world, STALE_AFTER / 6);
        }
    });
}

/// Offers a listener of host 1 another group, which it refuses: events of groups before have come then.
async fn refuse_next(host: &Host, listener: &mut Listener) {
    const SENDER_QPN: u32 = 0x78;
    let group = new_group(0, SENDER_QPN, &[(1, "weights")]);
    let (made, ()) = tokio::join!(soon(host.create(&group)), async {
        loop {
            match soon(listener.next()).await.unwrap() {
                ListenerEvent::Offer { offer, terms } if terms.sender_qpn == SENDER_QPN => {
                    break listener.refuse(offer, "it is the last").await.unwrap();
                }
                ListenerEvent::Offer { .. } | ListenerEvent::Ended { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    });
    let error = made.unwrap_err();
    assert!(error.message.contains("it is the last"), "{error}");
}

#[test]
fn who_cannot_be_a_member_is_named() {
    if !is_possible() {
        return;
    }
    let mut world = World::new();
    runtime().block_on(async {
        let mut receivers = listening(&world, &[1, 2]).await;
        let taken = world.host(1).listen("weights").await.unwrap_err();
        assert_eq!(taken.kind, ErrorKind::Taken);
        // One refuses: the other is notified that the group was not created.
        let (first, second) = receivers.split_at_mut(1);
        let (first, second) = (&mut first[0], &mut second[0]);
        let group = new_group(0, 0x77, &[(1, "weights"), (2, "weights")]);
        let host = world.host(0);
        let (made, ()) = tokio::join!(host.create(&group), async {
            first.accept(&mut world.endpoints[1]).await;
            let (offer, terms) = second.offered().await;
            assert_eq!(terms.application_data, b"data");
            second.listener.refuse(offer, "no room").await.unwrap();
        });
        let error = made.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied);
        for expected in [&*daemon(2), "weights", "no room"] {
            assert!(error.message.contains(expected), "{error}");
        }
        let why = ended(&mut first.listener).await;
        assert!(why.contains("not made") && why.contains("no room"), "{why}");
        // No listener; another sender's address; no daemon.
        let missing = new_group(0, 0x77, &[(1, "weights"), (2, "other")]);
        let foreign = new_group(3, 0x77, &[(1, "weights")]);
        world.kill_daemon(3);
        let absent = new_group(0, 0x77, &[(3, "weights")]);
        for (group, kind, expected) in [
            (missing, ErrorKind::Unknown, "no application listens as \"other\""),
            (foreign, ErrorKind::Denied, "not for the sender's address 10.5.0.4"),
            (absent, ErrorKind::Unavailable, "cannot be reached"),
        ] {
            let error = soon(host.create(&group)).await.unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.message.contains(expected), "{error}");
        }
        // The offers that came meanwhile have ended, and nothing is left.
        assert!(world.groups().is_empty() && host.groups().await.unwrap().groups.is_empty());
        let services = world.host(1).groups().await.unwrap().services;
        assert_eq!(services[0].offers, 0);
        // The same application can be in a group that works.
        refuse_next(&host, &mut receivers[0].listener).await;
        let group = flow::connect(&mut world, 0, &mut receivers).await.unwrap();
        Flow::new(5, 10).run(&mut world, &group, &receivers).await;
    });
}

/// What the example does.
#[test]
fn files_are_replicated() {
    if !is_possible() {
        return;
    }
    let mut world = World::new();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let contents: Vec<u8> = (0..3_000_001_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    std::fs::write(path("object"), &contents).unwrap();
    let mut own = std::mem::take(&mut world.endpoints).into_iter().zip((0..).map(address));
    let (endpoint, own_address) = own.next().unwrap();
    runtime().block_on(async {
        let receivers = (1..).zip(own).map(|(host, (endpoint, address))| {
            let (daemon, directory) = (world.host(host), path(&host.to_string()));
            std::fs::create_dir(&directory).unwrap();
            async move { replicate::receive(&daemon, endpoint, address, &directory).await.unwrap() }
        });
        let [one, two, three] = receivers.collect::<Vec<_>>().try_into().ok().unwrap();
        let send = async {
            while world.host(3).groups().await.unwrap().services.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let daemons = [1, 2, 3].map(daemon).to_vec();
            let (host, object) = (world.host(0), path("object"));
            replicate::send(&host, endpoint, own_address, &object, daemons).await.unwrap()
        };
        let (paths, sent) =
            soon(async { tokio::join!(async { tokio::join!(one, two, three) }, send) }).await;
        assert_eq!(sent, (3, Vec::new()));
        for copy in [paths.0, paths.1, paths.2] {
            assert!(std::fs::read(&copy).unwrap() == contents, "{}", copy.display());
        }
    });
}
