//! Next hops on snapshots made by hand.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use mcrdma::Port;
use proptest::prelude::*;
use roce::Mac;
use routes::{
    Hop, Link, LinkKind, Neighbour, NextHop, NoHop, Prefix, Route, Snapshot, Station, Target,
};

const BRIDGE: Port = 1;
const UPLINK: Port = 9;

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

fn station(address: &str) -> Station {
    Station { address: ip(address), mac: None }
}

fn ports<const N: usize>(ports: [Port; N]) -> BTreeSet<Port> {
    ports.into()
}

fn hop(port: Port, gateway: Option<&str>, last: u8) -> Hop {
    Hop { port, gateway: gateway.map(ip), mac: mac(last) }
}

fn link(name: &str) -> Link {
    Link { name: name.to_owned(), is_up: true, master: None, kind: LinkKind::Other }
}

/// Links by their indices, all up.
fn links(count: Port) -> Snapshot {
    let mut snapshot = Snapshot::default();
    (1..=count).for_each(|index| snapshot.insert_link(index, link(&format!("p{index}"))));
    snapshot
}

/// A bridge, its ports 2 to 4, and two links beside it.
fn bridge() -> Snapshot {
    let mut snapshot = links(UPLINK);
    snapshot.insert_link(BRIDGE, Link { kind: LinkKind::Bridge, ..link("br0") });
    for port in 2..=4 {
        let name = format!("p{port}");
        snapshot.insert_link(port, Link { master: Some(BRIDGE), ..link(&name) });
    }
    snapshot
}

fn prefix(text: &str) -> Prefix {
    let (address, bits) = text.split_once('/').unwrap();
    Prefix::new(ip(address), bits.parse().unwrap())
}

fn via(interface: Port, gateway: Option<&str>) -> NextHop {
    NextHop { interface, gateway: gateway.map(ip) }
}

fn add(snapshot: &mut Snapshot, to: &str, metric: u32, hops: &[NextHop]) {
    let target = Target::Hops(hops.to_vec());
    snapshot.insert_route(prefix(to), Route { metric, target });
}

fn know(snapshot: &mut Snapshot, interface: Port, address: &str, last: u8) {
    snapshot.insert_neighbour(Neighbour { address: ip(address), interface }, mac(last));
}

/// Two uplinks at 5 and 6, with a route to each of two racks, and to both.
fn router() -> Snapshot {
    let mut snapshot = links(UPLINK);
    add(&mut snapshot, "10.1.0.0/16", 0, &[via(5, Some("10.0.5.1"))]);
    add(&mut snapshot, "10.2.0.0/16", 0, &[via(5, Some("10.0.5.1")), via(6, Some("10.0.6.1"))]);
    add(&mut snapshot, "10.3.0.0/24", 0, &[via(7, None)]);
    know(&mut snapshot, 5, "10.0.5.1", 51);
    know(&mut snapshot, 6, "10.0.6.1", 61);
    know(&mut snapshot, 7, "10.3.0.4", 74);
    snapshot
}

#[test]
fn a_bridge_needs_no_routes() {
    let mut snapshot = bridge();
    snapshot.insert_station(BRIDGE, 3, mac(30));
    let to = Station { address: ip("10.0.0.3"), mac: Some(mac(30)) };
    assert_eq!(snapshot.hops(&ports([2, 3]), to), Ok([hop(3, None, 30)].into()));
}

#[test]
fn stations_that_no_bridge_has_learnt_are_reported() {
    let mut snapshot = bridge();
    let to = Station { address: ip("10.0.0.3"), mac: Some(mac(30)) };
    let error = snapshot.hops(&ports([2, 3]), to).unwrap_err();
    let routes = Box::new(NoHop::NoRoute { address: to.address });
    assert_eq!(error, NoHop::Station { address: to.address, mac: mac(30), routes });
    assert!(error.to_string().contains("02:00:00:00:00:1e (10.0.0.3)"), "{error}");
    assert_eq!(error.to_ask(), None);
    // A default route by another interface does not help.
    add(&mut snapshot, "0.0.0.0/0", 0, &[via(UPLINK, Some("192.0.2.1"))]);
    let error = snapshot.hops(&ports([2, 3]), to).unwrap_err();
    assert!(matches!(&error, NoHop::Station { .. }), "{error}");
    assert!(error.to_string().contains("p9"), "{error}");
    // At a port that is down it cannot be reached, even by a static entry.
    snapshot.insert_station(BRIDGE, 3, mac(30));
    let down = Link { is_up: false, master: Some(BRIDGE), ..link("p3") };
    snapshot.insert_link(3, down);
    assert!(matches!(snapshot.hops(&ports([2, 3]), to), Err(NoHop::Station { .. })));
}

#[test]
fn a_router_without_a_bridge_reports_a_missing_route() {
    let to = Station { address: ip("10.9.0.1"), mac: Some(mac(1)) };
    assert_eq!(
        router().hops(&ports([5, 6]), to),
        Err(NoHop::NoRoute { address: to.address }),
        "no bridge could have learnt it"
    );
}

#[test]
fn several_ports_are_refused() {
    let mut snapshot = bridge();
    snapshot.insert_station(BRIDGE, 2, mac(30));
    snapshot.insert_station(BRIDGE, 3, mac(30));
    let to = Station { address: ip("10.0.0.3"), mac: Some(mac(30)) };
    let error = snapshot.hops(&ports([2, 3]), to).unwrap_err();
    assert_eq!(error, NoHop::SeveralPorts { mac: mac(30), ports: "p2, p3".to_owned() });
    // Those that are not ours do not count.
    assert_eq!(snapshot.hops(&ports([3, 4]), to), Ok([hop(3, None, 30)].into()));
}

#[test]
fn a_router_sends_to_gateways_and_hosts() {
    let (snapshot, ports) = (router(), ports([5, 6, 7]));
    let hops = |to| snapshot.hops(&ports, station(to));
    assert_eq!(hops("10.1.7.7"), Ok([hop(5, Some("10.0.5.1"), 51)].into()));
    assert_eq!(hops("10.3.0.4"), Ok([hop(7, None, 74)].into()));
    assert_eq!(
        hops("10.2.0.1"),
        Ok([hop(5, Some("10.0.5.1"), 51), hop(6, Some("10.0.6.1"), 61)].into())
    );
}

#[test]
fn a_bridge_as_lan_of_a_router() {
    let mut snapshot = bridge();
    add(&mut snapshot, "10.0.0.0/24", 0, &[via(BRIDGE, None)]);
    let (ports, to) = (ports([2, 3]), station("10.0.0.3"));
    let neighbour = Neighbour { address: to.address, interface: BRIDGE };
    let error = snapshot.hops(&ports, to).unwrap_err();
    assert_eq!(error, NoHop::Neighbour { neighbour, interface: "br0".to_owned() });
    assert_eq!(error.to_ask(), Some(neighbour));
    know(&mut snapshot, BRIDGE, "10.0.0.3", 30);
    let error = snapshot.hops(&ports, to).unwrap_err();
    assert_eq!(error, NoHop::NotLearnt { bridge: "br0".to_owned(), mac: mac(30), neighbour });
    assert_eq!(error.to_ask(), Some(neighbour));
    snapshot.insert_station(BRIDGE, 3, mac(30));
    assert_eq!(snapshot.hops(&ports, to), Ok([hop(3, None, 30)].into()));
    // Port 4 is the bridge's, and not ours.
    know(&mut snapshot, BRIDGE, "10.0.0.4", 40);
    snapshot.insert_station(BRIDGE, 4, mac(40));
    let address = ip("10.0.0.4");
    assert_eq!(
        snapshot.hops(&ports, station("10.0.0.4")),
        Err(NoHop::NotAPort { address, interface: "p4".to_owned() })
    );
}

#[test]
fn a_macvlan_over_a_bridge_is_the_bridge() {
    let mut snapshot = bridge();
    let kind = LinkKind::MacVlan { over: BRIDGE };
    snapshot.insert_link(8, Link { kind, ..link("mac0") });
    add(&mut snapshot, "10.0.0.0/24", 0, &[via(8, None)]);
    know(&mut snapshot, 8, "10.0.0.3", 30);
    snapshot.insert_station(BRIDGE, 3, mac(30));
    let hops = snapshot.hops(&ports([2, 3]), station("10.0.0.3"));
    assert_eq!(hops, Ok([hop(3, None, 30)].into()));
}

#[test]
fn interfaces_that_are_no_ports_are_named() {
    let snapshot = router();
    let address = ip("10.2.0.1");
    // One of two equal ways is enough.
    let error = snapshot.hops(&ports([5, 7]), station("10.2.0.1")).unwrap_err();
    assert_eq!(error, NoHop::NotAPort { address, interface: "p6".to_owned() });
    // A bridge without any of the ports is nothing else.
    let mut snapshot = bridge();
    add(&mut snapshot, "10.0.0.0/24", 0, &[via(BRIDGE, None)]);
    let error = snapshot.hops(&ports([5]), station("10.0.0.3")).unwrap_err();
    assert!(matches!(&error, NoHop::NotAPort { interface, .. } if interface == "br0"), "{error}");
}

#[test]
fn the_longest_prefix_and_the_lowest_metric_count() {
    let mut snapshot = router();
    add(&mut snapshot, "0.0.0.0/0", 0, &[via(6, Some("10.0.6.1"))]);
    add(&mut snapshot, "10.1.4.0/24", 20, &[via(5, Some("10.0.5.1"))]);
    add(&mut snapshot, "10.1.4.0/24", 10, &[via(6, Some("10.0.6.1"))]);
    add(&mut snapshot, "10.1.4.9/32", 90, &[via(5, Some("10.0.5.1"))]);
    let by = |to| {
        let hops = snapshot.hops(&ports([5, 6, 7]), station(to)).unwrap();
        hops.into_iter().map(|hop| hop.port).collect::<Vec<_>>()
    };
    assert_eq!(by("192.0.2.7"), [6]);
    assert_eq!(by("10.1.5.1"), [5]);
    assert_eq!(by("10.1.4.1"), [6]);
    assert_eq!(by("10.1.4.9"), [5]);
}

#[test]
fn links_that_are_down_are_left_out() {
    let mut snapshot = router();
    snapshot.insert_link(6, Link { is_up: false, ..link("p6") });
    let ports = ports([5, 6, 7]);
    let by_five = Ok(BTreeSet::from([hop(5, Some("10.0.5.1"), 51)]));
    assert_eq!(snapshot.hops(&ports, station("10.2.0.1")), by_five);
    // A route without links that are up is replaced by the next: by metric, or by prefix.
    add(&mut snapshot, "10.4.0.0/24", 0, &[via(6, Some("10.0.6.1"))]);
    add(&mut snapshot, "10.4.0.0/24", 7, &[via(5, Some("10.0.5.1"))]);
    assert_eq!(snapshot.hops(&ports, station("10.4.0.1")), by_five);
    add(&mut snapshot, "10.1.6.0/24", 0, &[via(6, Some("10.0.6.1"))]);
    assert_eq!(snapshot.hops(&ports, station("10.1.6.1")), by_five);
    // A link that is gone is no better.
    add(&mut snapshot, "10.1.7.0/24", 0, &[via(77, None)]);
    assert_eq!(snapshot.hops(&ports, station("10.1.7.1")), by_five);
    snapshot.insert_link(5, Link { is_up: false, ..link("p5") });
    let error = snapshot.hops(&ports, station("10.1.7.1")).unwrap_err();
    assert_eq!(error, NoHop::NoRoute { address: ip("10.1.7.1") });
}

#[test]
fn unreachable_and_unknown_routes_are_errors() {
    let mut snapshot = router();
    let nowhere = Route { metric: 5, target: Target::Nowhere };
    snapshot.insert_route(prefix("10.1.6.0/24"), nowhere);
    let why = "it is strange";
    let unknown = Route { metric: 0, target: Target::Unknown { why } };
    snapshot.insert_route(prefix("10.1.7.0/24"), unknown);
    let hops = |to| snapshot.hops(&ports([5]), station(to)).unwrap_err();
    assert_eq!(hops("10.1.6.1"), NoHop::NoRoute { address: ip("10.1.6.1") });
    assert_eq!(hops("10.1.7.1"), NoHop::Route { address: ip("10.1.7.1"), why });
}

#[test]
fn ipv6_routes_of_one_metric_are_equal_ways() {
    let mut snapshot = links(UPLINK);
    add(&mut snapshot, "2001:db8:1::/48", 1024, &[via(5, Some("fe80::1"))]);
    add(&mut snapshot, "2001:db8:1::/48", 1024, &[via(6, Some("fe80::1"))]);
    add(&mut snapshot, "2001:db8:1::/48", 2048, &[via(7, Some("fe80::1"))]);
    for interface in 5..=7 {
        know(&mut snapshot, interface, "fe80::1", 10 * interface as u8);
    }
    assert_eq!(
        snapshot.hops(&ports([5, 6, 7]), station("2001:db8:1::9")),
        Ok([hop(5, Some("fe80::1"), 50), hop(6, Some("fe80::1"), 60)].into())
    );
    // IPv4 takes the first of such routes.
    add(&mut snapshot, "10.0.0.0/8", 0, &[via(6, Some("fe80::1"))]);
    add(&mut snapshot, "10.0.0.0/8", 0, &[via(5, Some("fe80::1"))]);
    assert_eq!(
        snapshot.hops(&ports([5, 6, 7]), station("10.0.0.1")),
        Ok([hop(6, Some("fe80::1"), 60)].into()),
        "an IPv4 route may have an IPv6 gateway"
    );
}

#[test]
fn errors_say_what_to_do() {
    let mut snapshot = router();
    let to = Station { address: ip("10.3.0.5"), mac: None };
    let error = snapshot.hops(&ports([7]), to).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the Ethernet address of 10.3.0.5 on p7 is not known; ask for it, and see whether \
         10.3.0.5 is up"
    );
    know(&mut snapshot, 7, "10.3.0.5", 75);
    let error = snapshot.hops(&ports([5]), to).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the route to 10.3.0.5 is through p7, which is not a port of the switch; add it to them"
    );
}

/// Whether an address is in a prefix, bit by bit.
fn is_in(address: Ipv4Addr, network: Ipv4Addr, bits: u8) -> bool {
    let bit = |address: Ipv4Addr, at: u8| address.to_bits() >> (31 - at) & 1;
    (0..bits).all(|at| bit(address, at) == bit(network, at))
}

/// Few different addresses, so that prefixes overlap.
fn near() -> impl Strategy<Value = Ipv4Addr> {
    let part = || prop_oneof![Just(0_u8), Just(1), Just(128), Just(255), any::<u8>()];
    [part(), part(), part(), part()].prop_map(Ipv4Addr::from)
}

proptest! {
    #[test]
    fn the_longest_prefix_is_what_trying_all_finds(
        routes in prop::collection::vec((near(), 0..=32_u8, 0..3_u32), 0..40),
        others in prop::collection::vec(near(), 10),
        to_ipv6 in any::<bool>(),
    ) {
// Each route has an interface of its own, with all neighbours resolved.
        let as_address = |address: Ipv4Addr| match to_ipv6 {
            true => Ipv6Addr::from_bits(u128::from(address.to_bits()) << 96 | 7).into(),
            false => IpAddr::from(address),
        };
        let mut snapshot = links(routes.len() as Port);
        let targets: Vec<Ipv4Addr> =
            others.into_iter().chain(routes.iter().map(|(network, ..)| *network)).collect();
        for (&(network, bits, metric), interface) in routes.iter().zip(1..) {
            let hops = vec![NextHop { interface, gateway: None }];
            let route = Route { metric, target: Target::Hops(hops) };
            snapshot.insert_route(Prefix::new(as_address(network), bits), route);
            for &to in &targets {
                let neighbour = Neighbour { address: as_address(to), interface };
                snapshot.insert_neighbour(neighbour, mac(interface as u8));
            }
        }
        let ports: BTreeSet<Port> = (1..=routes.len() as Port).collect();
        for to in targets {
            let matching = || (1..).zip(&routes)
                .filter(|(_, (network, bits, _))| is_in(to, *network, *bits));
            let best = matching().map(|(_, (_, bits, metric))| (255 - bits, metric)).min();
            let equal = matching()
                .filter(|(_, (_, bits, metric))| Some((255 - bits, metric)) == best)
                .map(|(interface, _)| interface)
                .take(if to_ipv6 { usize::MAX } else { 1 });
            let address = as_address(to);
            let hops = snapshot.hops(&ports, Station { address, mac: None });
            match best {
                None => prop_assert_eq!(hops, Err(NoHop::NoRoute { address })),
                Some(_) => {
                    let found = hops.unwrap().into_iter().map(|hop| hop.port);
                    prop_assert_eq!(found.collect::<Vec<_>>(), equal.collect::<Vec<Port>>());
                }
            }
        }
    }
}
