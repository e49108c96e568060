//! Racks whose switches are bridges: all of it one subnet.

use std::{
    thread,
    time::{Duration, Instant},
};

use agent::{Clock, ManualClock};
use control::{
    Claim, ErrorKind,
    proto::{Count, GroupReport},
};
use endpoint::{Endpoint, Peer};
use mcrdma::plan::{Device, Topology};
use roce::rc::{Kind, RequesterConfig, Work};

use testing_switch::flow::{self, Flow};

use crate::world::{self, World, claim};

const STALE_AFTER: Duration = Duration::from_secs(60);
/// Subtracted from a time: shortly before it.
const MOMENT: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// With leases that do not expire.
fn racks() -> World {
    racks_with_clock().0
}

/// Returns also the clock of all agents.
fn racks_with_clock() -> (World, ManualClock) {
    let (topology, clock) = (Topology::racks(2, 2, Device::Copies), ManualClock::new());
    (World::bridged(topology, STALE_AFTER, Clock::Manual(clock.clone())), clock)
}

fn groups(world: &World, switch: &str) -> Vec<GroupReport> {
    world.ask(world.find("a1"), switch, async |agent| agent.groups().await.unwrap())
}

/// With their counters.
fn counted_groups(world: &World, switch: &str) -> Vec<GroupReport> {
    world.ask(world.find("a1"), switch, async |agent| agent.counted_groups().await.unwrap())
}

fn counted(counts: &[Count], name: &str) -> u64 {
    counts.iter().find(|count| count.name == name).unwrap().count
}

/// A counter of a group.
fn group_count(group: &GroupReport, name: &str) -> u64 {
    counted(&group.counters.as_ref().unwrap().counts, name)
}

/// The members of each copy.
fn copies(group: &GroupReport) -> Vec<Vec<&str>> {
    group.copies.iter().map(|copy| copy.members.iter().map(String::as_str).collect()).collect()
}

/// Polls a condition, with a timeout.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn agents_part_groups_as_late_as_possible_and_forget_them() {
    if !world::is_possible() {
        return;
    }
    let mut world = racks();
    let names: [(&[&str], &str); 3] = [
        (&["a1", "a2", "b1", "b2"], "tor-a"),
        (&["b1", "a1", "a2"], "tor-b"),
        (&["a2", "b1"], "tor-a"),
    ];
    let (mut flows, mut claims) = (Vec::new(), Vec::new());
    for (number, (names, switch)) in (0..).zip(names) {
        let (group, queue_pairs) = world.connect(number, names);
        claims.push((world.insert(&group, switch).unwrap(), queue_pairs[0].0, switch));
        flows.push(Flow::new(number.into(), queue_pairs));
    }
    let at = |switch| groups(&world, switch);
    let [tor_a, tor_b, spine] = ["tor-a", "tor-b", "spine"].map(at);
    assert_eq!((tor_a.len(), tor_b.len(), spine.len()), (3, 2, 2), "{tor_a:?} {tor_b:?} {spine:?}");
    assert_eq!(copies(&tor_a[0]), [vec!["10.4.0.4"], vec!["10.4.0.6", "10.4.0.7"]], "{tor_a:?}");
    assert!(tor_a[0].is_first && !tor_b[0].is_first);
    assert_eq!(copies(&tor_b[0]), [["10.4.0.6"], ["10.4.0.7"]]);
    assert_eq!(copies(&spine[0]), [["10.4.0.6", "10.4.0.7"]], "it only passes there");
    flow::run(&mut flows, &mut world.endpoints);

    let counts =
        world.ask(world.find("a1"), "spine", async |agent| agent.counters().await.unwrap());
    let copied = counts.iter().find(|count| count.name == "copies").unwrap();
    assert_eq!(copied.count, 0, "no paths diverge at the spine");
    let first = &groups(&world, "tor-a")[0];
    assert_eq!(first.counters, None, "only if they are asked for");
    let passed = counted_groups(&world, "spine");
    assert!(passed.iter().all(|group| group.counters.is_none()), "it has no entry of them");
    for (switch, merged) in [("tor-a", 2), ("tor-b", 1)] {
        let all = counted_groups(&world, switch);
        assert_eq!(all.iter().filter(|group| group.is_first).count(), merged);
        for group in all {
            let [requests, copies, bytes] =
                ["requests", "copies", "request_bytes"].map(|name| group_count(&group, name));
            assert!(requests >= flow::MESSAGES, "{switch} {group:?}");
            assert_eq!(copies, requests * group.copies.len() as u64, "{switch} {group:?}");
            assert!(bytes >= requests * 44, "headers alone have so many: {group:?}");
            let members = &group.counters.as_ref().unwrap().members;
            assert_eq!(members.len(), group.members.len());
            for member in members {
                let acks = ["acks_forwarded", "acks_suppressed"];
                let acks: u64 = acks.iter().map(|name| counted(&member.counts, name)).sum();
                assert!(acks > 0, "{switch} {group:?}");
            }
        }
    }
    assert!(
        first.members.iter().all(|member| u64::from(member.msn) == flow::MESSAGES),
        "{first:?}"
    );
    for (claim, sender, switch) in claims {
        let again = claim.clone();
        assert!(world.ask(sender, switch, async move |agent| agent.remove(&again).await.unwrap()));
        assert!(!world.ask(sender, switch, async move |agent| agent.remove(&claim).await.unwrap()));
    }
    for switch in ["tor-a", "tor-b", "spine"] {
        assert_eq!(groups(&world, switch), [], "{switch}");
    }
}

/// Otherwise every host with a certificate could redirect other hosts' packets.
#[test]
fn what_the_sender_takes_for_its_peer_is_a_members() {
    if !world::is_possible() {
        return;
    }
    let mut world = racks();
    let (group, queue_pairs) = world.connect(0, &["a1", "b1", "b2"]);
    let gateway = "10.4.9.9".parse().unwrap();
    let mac_of_b2 = group.members[1].mac.unwrap();
    for forged in [
        mcrdma::plan::Group { virtual_address: gateway, ..group.clone() },
        mcrdma::plan::Group { virtual_mac: mac_of_b2, ..group.clone() },
    ] {
        let error = world.insert(&forged, "tor-a").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied, "{error}");
        let named = forged.virtual_address.to_string();
        assert!(
            error.message.contains(&named) && error.message.contains("switch tor-a"),
            "{error}"
        );
    }
    assert_eq!(groups(&world, "tor-a"), []);
    world.insert(&group, "tor-a").unwrap();
    flow::run(&mut [Flow::new(0, queue_pairs)], &mut world.endpoints);
}

#[test]
fn one_host_cannot_take_all_groups() {
    if !world::is_possible() {
        return;
    }
    let mut world = racks();
    let (group, _) = world.connect(0, &["a1", "a2", "b1"]);
    let (other, _) = world.connect(1, &["a2", "b1", "b2"]);
    let number = |number: u32| {
        let mut next = group.clone();
        (next.key.id, next.sender_qpn) = (0x90_0000 + number, 0x1000 + number);
        next.instance = number.into();
        next
    };
    let most = world::GROUPS_PER_HOST_MAX as u32;
    for group in (0..most).map(number) {
        world.insert(&group, "tor-a").unwrap();
    }
    let error = world.insert(&number(most), "tor-a").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limit, "{error}");
    assert!(error.message.contains("10.4.0.3") && error.message.contains("8 groups"), "{error}");
    world.insert(&number(0), "tor-a").unwrap();
    world.insert(&other, "tor-a").unwrap();
    // Also when an agent has found them in the kernel.
    let tor_a = world.find("tor-a");
    world.stop_agent(tor_a);
    world.start_agent(tor_a);
    assert_eq!(world.insert(&number(most), "tor-a").unwrap_err().kind, ErrorKind::Limit);
    world.insert(&number(1), "tor-a").unwrap();
    assert_eq!(groups(&world, "tor-a").len(), most as usize + 1);
}

/// Agents configure each group's ingress ports.
#[test]
fn packets_in_the_senders_name_from_another_port_are_not_copied() {
    if !world::is_possible() {
        return;
    }
    let mut world = racks();
    let (group, queue_pairs) = world.connect(0, &["a1", "b1", "b2"]);
    world.insert(&group, "tor-a").unwrap();
    let (a1, a2) = (world.find("a1"), world.find("a2"));
    let (link, sender) = (world.links(a2).remove(0), world.address(a1));
    let mut forger = world.networks[a2].run(move || {
        // Received by this host alone.
        std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1").unwrap();
        lab::ip("link set lo up").unwrap();
        lab::ip(&format!("addr add {sender}/32 dev lo")).unwrap();
        Endpoint::open(&link, sender).unwrap()
    });
    let peer = Peer { address: group.virtual_address, qpn: group.key.id, next_hop: None };
    let psn_first = group.psn_first.get();
    let qpn = forger.queue_pair(peer, RequesterConfig::default(), psn_first, 0);
    let work = Work { id: 0, kind: Kind::Send, bytes: 5, immediate: None };
    forger.send(qpn, work, b"false").unwrap();
    let counted = |name: &str| {
        let counts = world.ask(a1, "tor-a", async |agent| agent.counters().await.unwrap());
        counts.iter().find(|count| count.name == name).unwrap().count
    };
    until("the switch counts it", || {
        forger.progress(Duration::from_millis(5)).unwrap();
        counted("requests_misplaced") > 0
    });
    assert_eq!((counted("requests"), counted("copies")), (0, 0));
    drop(forger);
    flow::run(&mut [Flow::new(0, queue_pairs)], &mut world.endpoints);
}

#[test]
fn agents_say_what_they_would_do_and_what_they_are() {
    if !world::is_possible() {
        return;
    }
    let mut world = racks();
    let (group, _) = world.connect(0, &["a1", "a2", "b1", "b2"]);
    let a1 = world.find("a1");
    let members = group.members.clone();
    let plan =
        world.ask(a1, "tor-a", async move |agent| agent.plan(group.key.sender, &members).await);
    let plan = plan.unwrap();
    let names: Vec<&str> = plan.iter().map(|switch| switch.name.as_str()).collect();
    assert_eq!(names, ["tor-a", "spine", "tor-b"]);
    let counts: Vec<usize> = plan.iter().map(|switch| switch.copies.len()).collect();
    assert_eq!(counts, [2, 0, 2], "{plan:?}");
    assert_eq!(groups(&world, "tor-a"), [], "nothing has changed");
    let show = world.ask(a1, "tor-a", async |agent| agent.show().await.unwrap());
    assert_eq!((show.name.as_str(), show.plane.as_str(), show.ports.len()), ("tor-a", "kernel", 3));
    let agents: Vec<_> = show.ports.iter().flat_map(|port| &port.agents).collect();
    assert_eq!(agents, ["10.4.1.1:4790"], "the spine is behind one of the ports");
}

#[test]
fn who_may_not_ask_and_what_makes_no_sense_is_refused() {
    if !world::is_possible() {
        return;
    }
    let mut world = racks();
    let (group, _) = world.connect(0, &["a1", "a2", "b1"]);
    let (a1, a2) = (world.find("a1"), world.find("a2"));
    let insert = |host, files, switch, group: &mcrdma::plan::Group, instance| {
        let group =
            world.signed_for(&mcrdma::plan::Group { instance, ..group.clone() }, world::AGREED_FOR);
        let claim = claim(&group);
        let timeout = Duration::from_secs(20);
        let ask = async move |agent: control::Agent| agent.insert(&group, &claim, timeout).await;
        world.ask_as(host, files, switch, ask).unwrap_err()
    };
    let issue = |node| world.authority.issue(&world.address(node).to_string());
    let error = insert(a2, issue(a2), "tor-a", &group, 1);
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    assert!(
        error.message.contains("switch tor-a") && error.message.contains("10.4.0.3"),
        "{error}"
    );
    let another = testing::Authority::new("another");
    let error = insert(a1, another.issue("10.4.0.3"), "tor-a", &group, 1);
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");

    let error = insert(a1, issue(a1), "tor-b", &group, 1);
    assert_eq!(error.kind, ErrorKind::NoTree, "{error}");
    assert!(error.message.contains("not the first switch of 10.4.0.3"), "{error}");
    let mut silent = group.clone();
    (silent.members[1].address, silent.members[1].mac) = ("10.4.0.99".parse().unwrap(), None);
    let error = insert(a1, issue(a1), "tor-a", &silent, 1);
    assert_eq!(error.kind, ErrorKind::NoTree, "{error}");
    assert!(error.message.contains("10.4.0.99"), "{error}");

    world.insert(&group, "tor-a").unwrap();
    let error = insert(a1, issue(a1), "tor-a", &group, 77);
    assert_eq!(error.kind, ErrorKind::Taken, "{error}");
    let mut same_queue_pair = group.clone();
    same_queue_pair.key.id += 1;
    let error = insert(a1, issue(a1), "tor-a", &same_queue_pair, 78);
    assert_eq!(error.kind, ErrorKind::Taken, "{error}");
    let unknown = claim(&same_queue_pair);
    let kept = world.ask(a1, "tor-a", async move |agent| agent.keep(&unknown).await);
    assert_eq!(kept.unwrap_err().kind, ErrorKind::Unknown);
    assert_eq!((groups(&world, "tor-a").len(), groups(&world, "tor-b").len()), (1, 0));
}

#[test]
fn groups_outlive_a_restart_of_the_agent() {
    if !world::is_possible() {
        return;
    }
    let mut world = racks();
    let (group, queue_pairs) = world.connect(0, &["a1", "a2", "b1", "b2"]);
    let claim = world.insert(&group, "tor-a").unwrap();
    let mut flows = [Flow::new(0, queue_pairs)];
    let (tor_a, tor_b, a1) = (world.find("tor-a"), world.find("tor-b"), world.find("a1"));
    for (part, switch) in [(1, tor_a), (2, tor_b)] {
        while flows[0].done < part * flow::MESSAGES / 3 {
            flow::turn(&mut flows, &mut world.endpoints);
        }
        let count = |world: &World| {
            let name = if switch == tor_a { "tor-a" } else { "tor-b" };
            group_count(&counted_groups(world, name)[0], "requests")
        };
        let before = count(&world);
        world.stop_agent(switch);
        let done = flows[0].done;
        while flows[0].done < done + 4 {
            flow::turn(&mut flows, &mut world.endpoints);
        }
        world.start_agent(switch);
        assert!(count(&world) >= before + 4, "what was counted is kept, also without an agent");
    }
    let orphan = &groups(&world, "tor-a")[0];
    assert!(
        orphan.callers.is_empty() && orphan.trouble.contains("no caller has inserted"),
        "{orphan:?}"
    );
    let kept = claim.clone();
    let kept = world.ask(a1, "tor-a", async move |agent| agent.keep(&kept).await);
    assert_eq!(kept.unwrap_err().kind, ErrorKind::Unknown);
    world.insert(&group, "tor-a").unwrap();
    assert_eq!(groups(&world, "tor-a")[0].callers, ["sender"]);
    flow::run(&mut flows, &mut world.endpoints);
    let kept = world.ask(a1, "tor-a", async move |agent| agent.keep(&claim).await.unwrap());
    assert_eq!((kept.trouble, kept.members.len()), (None, 3));
}

#[test]
fn a_group_goes_on_without_a_member_that_has_died() {
    if !world::is_possible() {
        return;
    }
    let mut world = racks();
    let (group, queue_pairs) = world.connect(0, &["a1", "b1", "b2", "a2"]);
    let claim = world.insert(&group, "tor-a").unwrap();
    let (a1, b1, dead) = (world.find("a1"), world.find("b1"), queue_pairs[1]);
    let mut flows = [Flow::new(0, queue_pairs)];
    while flows[0].done < flow::MESSAGES / 2 {
        flow::turn(&mut flows, &mut world.endpoints);
    }
    // It is also the member whose addresses the virtual peer has.
    assert_eq!(dead.0, b1);
    assert!(world.endpoints.get_mut(&b1).unwrap().remove(dead.1));
    flows[0].lose(1);
    let address = world.address(b1);
    let (again, member) = (claim.clone(), address);
    let removed =
        world.ask(a1, "tor-a", async move |agent| agent.remove_member(&again, member).await);
    assert!(removed.unwrap());
    flow::run(&mut flows, &mut world.endpoints);
    assert_eq!(copies(&groups(&world, "tor-a")[0]), [["10.4.0.7"], ["10.4.0.4"]]);
    assert_eq!(groups(&world, "tor-b"), [], "one member downstream needs no entry");
    let again = claim.clone();
    assert!(
        !world.ask(a1, "tor-a", async move |agent| agent
            .remove_member(&again, address)
            .await
            .unwrap())
    );
}

/// Advances the clock of all agents, and waits until they have done what is due.
fn advance(clock: &ManualClock, by: Duration) {
    assert!(clock.advance(by, PATIENCE), "agents do not complete their periodic tasks");
}

const SWITCHES: [&str; 3] = ["tor-a", "spine", "tor-b"];

/// Numbers of groups at all switches.
fn counts(world: &World) -> [usize; 3] {
    SWITCHES.map(|switch| groups(world, switch).len())
}

fn keep(world: &World, claim: &Claim) {
    let claim = claim.clone();
    world.ask(world.find("a1"), "tor-a", async move |agent| agent.keep(&claim).await.unwrap());
}

#[test]
fn expired_leases_remove_groups_from_all_switches() {
    if !world::is_possible() {
        return;
    }
    let (mut world, clock) = racks_with_clock();
    let (kept, _) = world.connect(0, &["a1", "b1", "b2"]);
    let (left, _) = world.connect(1, &["a1", "b1", "b2"]);
    let claim = world.insert(&kept, "tor-a").unwrap();
    world.insert(&left, "tor-a").unwrap();
    // The last sweep before the leases expire, and the first after it.
    for by in [STALE_AFTER / 2, STALE_AFTER / 2 - MOMENT] {
        advance(&clock, by);
        assert_eq!(counts(&world), [2; 3]);
        keep(&world, &claim);
    }
    advance(&clock, STALE_AFTER / 6);
    assert_eq!(groups(&world, "tor-a").len(), 1);
    // A removal that does not reach another switch in time leaves the group there until its lease expires.
    until("the group is forgotten", || {
        advance(&clock, STALE_AFTER / 4);
        keep(&world, &claim);
        counts(&world) == [1; 3]
    });
    // A restarted agent removes groups that no caller inserts.
    let tor_a = world.find("tor-a");
    world.stop_agent(tor_a);
    world.start_agent(tor_a);
    // Its answer shows that its timers have started.
    assert_eq!(groups(&world, "tor-a").len(), 1);
    for by in [STALE_AFTER / 2, STALE_AFTER / 2 - MOMENT] {
        advance(&clock, by);
        assert_eq!(groups(&world, "tor-a").len(), 1);
    }
    advance(&clock, STALE_AFTER / 6);
    assert_eq!(groups(&world, "tor-a"), []);
    until("what an agent has left is forgotten", || {
        advance(&clock, STALE_AFTER / 4);
        counts(&world) == [0; 3]
    });
}

#[test]
fn a_downstream_agent_that_does_not_answer_is_reported_when_its_lease_has_expired() {
    if !world::is_possible() {
        return;
    }
    let (mut world, clock) = racks_with_clock();
    let (group, _) = world.connect(0, &["a1", "b1", "b2"]);
    let claim = world.insert(&group, "tor-a").unwrap();
    let (a1, tor_b) = (world.find("a1"), world.find("tor-b"));
    let trouble = |world: &World| {
        let claim = claim.clone();
        let kept = world.ask(a1, "tor-a", async move |agent| agent.keep(&claim).await.unwrap());
        kept.trouble
    };
    world.stop_agent(tor_b);
    // The first renewal without an answer is at the first advance.
    for by in [STALE_AFTER / 4, STALE_AFTER / 2, STALE_AFTER / 2 - MOMENT] {
        advance(&clock, by);
        assert_eq!(trouble(&world), None);
    }
    // The spine notices it at its next renewal, and tor-a at one of its own after that.
    until("it is reported", || {
        advance(&clock, STALE_AFTER / 4);
        trouble(&world).is_some_and(|trouble| trouble.contains("10.4.1.5"))
    });
    world.start_agent(tor_b);
    until("the group is inserted again", || {
        advance(&clock, STALE_AFTER / 4);
        trouble(&world).is_none()
    });
    assert_eq!(groups(&world, "tor-b")[0].callers, ["spine"]);
}

#[test]
fn leases_expire_by_the_machines_clock() {
    if !world::is_possible() {
        return;
    }
    let topology = Topology::racks(2, 2, Device::Copies);
    let mut world = World::bridged(topology, Duration::from_millis(300), Clock::Machine);
    let (group, _) = world.connect(0, &["a1", "a2"]);
    world.insert(&group, "tor-a").unwrap();
    until("the group is forgotten", || groups(&world, "tor-a").is_empty());
}
