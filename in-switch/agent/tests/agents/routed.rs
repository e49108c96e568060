//! Switches that route: racks behind two spines, with equal-cost routes.

use std::{
    net::{IpAddr, Ipv4Addr},
    thread,
    time::{Duration, Instant},
};

use agent::{Clock, ManualClock};
use control::proto::GroupReport;

use mcrdma::plan::{Device, Group, Node, Topology};

use testing_switch::flow::{self, Flow};

use crate::world::{self, Settings, World, link};

const PATIENCE: Duration = Duration::from_secs(60);
const SPINES: [&str; 2] = ["spine-0", "spine-1"];
/// Each with its hosts.
const RACKS: [(&str, [&str; 2]); 2] = [("tor-a", ["a1", "a2"]), ("tor-b", ["b1", "b2"])];

fn topology() -> Topology {
    let mut topology = Topology::new();
    let spines = SPINES.map(|name| topology.add(name, Device::Copies));
    for (tor, hosts) in RACKS {
        let tor = topology.add(tor, Device::Copies);
        spines.iter().for_each(|&spine| topology.link(tor, spine));
        for host in hosts {
            let host = topology.add(host, Device::Host);
            topology.link(host, tor);
        }
    }
    topology
}

/// Of the link between a rack's switch and a spine: this end's address.
fn between(rack: usize, spine: usize, is_spine: bool) -> Ipv4Addr {
    Ipv4Addr::new(10, 8, (rack * 2 + spine) as u8, if is_spine { 2 } else { 1 })
}

fn addresses(topology: &Topology) -> Vec<IpAddr> {
    let mut addresses = vec![IpAddr::from([0; 4]); topology.len()];
    let mut set =
        |name: &str, address: [u8; 4]| addresses[topology.find(name).unwrap()] = address.into();
    for (index, spine) in (0..).zip(SPINES) {
        set(spine, [10, 9, 0, index + 1]);
    }
    for (rack, (tor, hosts)) in (1..).zip(RACKS) {
        set(tor, [10, rack, 0, 1]);
        (10..).zip(hosts).for_each(|(index, host)| set(host, [10, rack, 0, index]));
    }
    addresses
}

/// A switch that routes: commands for `ip`, and links that are up.
fn open_router(world: &World, node: Node, bridged: Vec<String>, words: Vec<String>) {
    let links = world.links(node);
    world.networks[node].run(move || {
        for (key, value) in
            [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/default/rp_filter", "0")]
        {
            std::fs::write(format!("/proc/sys/net/ipv4/{key}"), value).unwrap();
        }
        lab::ip("link set lo up").unwrap();
        lab::ip("link add name bridge0 type bridge mcast_snooping 0").unwrap();
        lab::quiet("bridge0", 4200).unwrap();
        for link in &links {
            if bridged.contains(link) {
                lab::ip(&format!("link set {link} master bridge0")).unwrap();
            }
            lab::quiet(link, 4200).unwrap();
        }
        words.iter().for_each(|words| lab::ip(words).unwrap());
    });
}

fn routed() -> World {
    let topology = topology();
    let addresses = addresses(&topology);
    let mut world = World::wired(topology, addresses, Clock::Manual(ManualClock::new()));
    let find = |world: &World, name: &str| world.find(name);
    for (rack, (tor, hosts)) in RACKS.into_iter().enumerate() {
        let tor = find(&world, tor);
        let ports = hosts.map(|host| link(tor, find(&world, host)));
        let other = format!("10.{}.0.0/24", 2 - rack);
        let mut words = vec![format!("addr add {}/24 dev bridge0", world.address(tor))];
        let mut to_other = format!("route add {other} src {}", world.address(tor));
        let mut next = Vec::new();
        for (index, spine) in SPINES.into_iter().enumerate() {
            let (spine, far) = (find(&world, spine), between(rack, index, true));
            let near = between(rack, index, false);
            words.push(format!("addr add {near}/30 dev {}", link(tor, spine)));
            words.push(format!("route add {}/32 via {far}", world.address(spine)));
            to_other += &format!(" nexthop via {far}");
            next.push(format!("{}={}:4790", link(tor, spine), world.address(spine)));
        }
        words.push(to_other);
        open_router(&world, tor, ports.to_vec(), words);
        world.configure(tor, settings(next));
        for host in hosts {
            let (host, gateway) = (find(&world, host), world.address(tor));
            let address = format!("{}/24", world.address(host));
            world.open_host(host, &address, Some(gateway));
        }
    }
    for (index, spine) in SPINES.into_iter().enumerate() {
        let spine = find(&world, spine);
        let mut words = vec![format!("addr add {}/32 dev lo", world.address(spine))];
        let mut next = Vec::new();
        for (rack, (tor, _)) in RACKS.into_iter().enumerate() {
            let tor = find(&world, tor);
            words.push(format!(
                "addr add {}/30 dev {}",
                between(rack, index, true),
                link(spine, tor)
            ));
            words.push(format!(
                "route add 10.{}.0.0/24 via {}",
                rack + 1,
                between(rack, index, false)
            ));
            next.push(format!("{}={}:4790", link(spine, tor), world.address(tor)));
        }
        open_router(&world, spine, Vec::new(), words);
        world.configure(spine, settings(next));
    }
    world.switches().into_iter().for_each(|node| world.start_agent(node));
    world
}

fn settings(next: Vec<String>) -> Settings {
    let trusted = ["tor-a", "tor-b", "spine-0", "spine-1"].map(str::to_owned).into();
    Settings { next, trusted, stale_after: Duration::from_secs(60) }
}

fn group_at(world: &World, switch: &str) -> Option<GroupReport> {
    let groups = world.ask(world.find("b1"), switch, async |agent| agent.groups().await.unwrap());
    groups.into_iter().next()
}

#[test]
fn groups_take_equal_routes_and_follow_them_when_they_change() {
    if !world::is_possible() {
        return;
    }
    let mut world = routed();
    let (group, flow) = world.connect_writing(0, &["a1", "b1", "b2", "a2"]);
    world.insert(&group, "tor-a").unwrap();
    let at_first = group_at(&world, "tor-a").unwrap();
    let up = uplinks(&world);
    assert_eq!(at_first.copies[0].ports, up, "either of two is as good");
    assert_eq!(at_first.copies[0].agents.len(), 2);
    let below = group_at(&world, "tor-b").unwrap();
    assert_eq!(below.callers, SPINES, "both ask, since either may get the packets");
    assert_eq!(below.copies.len(), 2);
    run_while_a_spine_fails(&mut world, &group, flow);
}

/// Of the sender's switch.
fn uplinks(world: &World) -> [String; 2] {
    SPINES.map(|spine| link(world.find("tor-a"), world.find(spine)))
}

/// The spine that has the packets (groups take turns by their identifiers) goes while messages are in
/// flight; all arrive at all members.
fn run_while_a_spine_fails(world: &mut World, group: &Group, flow: Flow) {
    let (used, mut flows) = (group.key.id as usize % 2, [flow]);
    while flows[0].done < flow::MESSAGES / 3 {
        flow::turn(&mut flows, &mut world.endpoints);
    }
    let other = [uplinks(world)[1 - used].clone()];
    for tor in ["tor-a", "tor-b"].map(|name| world.find(name)) {
        let link = link(tor, world.find(SPINES[used]));
        world.networks[tor].run(move || lab::ip(&format!("link set {link} down")).unwrap());
    }
    assert!(!flows[0].is_over(), "it fails under load");
    let deadline = Instant::now() + PATIENCE;
    let goes_there = |group: GroupReport| group.copies.first().is_some_and(|c| c.ports == other);
    while !goes_there(group_at(world, "tor-a").unwrap()) {
        assert!(Instant::now() < deadline, "{:?}", group_at(world, "tor-a"));
        flow::turn(&mut flows, &mut world.endpoints);
        thread::sleep(Duration::from_millis(20));
    }
    flow::run(&mut flows, &mut world.endpoints);
    let now = group_at(world, "tor-a").unwrap();
    assert!(now.members.iter().all(|member| u64::from(member.msn) == flow::MESSAGES), "{now:?}");
}

/// Only the racks' switches copy: downstream agents are configured by prefix.
#[test]
fn plain_spines_only_forward() {
    if !world::is_possible() {
        return;
    }
    let mut world = routed();
    for (tor, next) in
        [("tor-a", "10.2.0.0/24=10.2.0.1:4790"), ("tor-b", "10.1.0.0/24=10.1.0.1:4790")]
    {
        let tor = world.find(tor);
        world.stop_agent(tor);
        world.configure(tor, settings(vec![next.to_owned()]));
        world.start_agent(tor);
    }
    for spine in SPINES {
        let spine = world.find(spine);
        world.stop_agent(spine);
    }
    let (group, flow) = world.connect_writing(0, &["a1", "b1", "b2", "a2"]);
    world.insert(&group, "tor-a").unwrap();
    assert_eq!(group_at(&world, "tor-b").unwrap().callers, ["tor-a"]);
    let [to_other, to_own] = &group_at(&world, "tor-a").unwrap().copies[..] else {
        panic!("two copies")
    };
    assert_eq!((to_other.members.len(), to_other.is_rewritten), (2, false));
    assert_eq!(to_other.ports, uplinks(&world), "either of two is as good");
    assert!(to_own.is_rewritten);
    run_while_a_spine_fails(&mut world, &group, flow);
}
