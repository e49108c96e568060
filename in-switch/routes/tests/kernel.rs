//! Snapshots of the kernel's state that was made with iproute2. Needs root.

use std::{net::UdpSocket, time::Duration};

use routes::{Carriers, Neighbour, NoHop, RoutesError, Station};

use crate::common::{Host, Switch, address, batch, bridge, hop, index, ip, mac, own, skipped};

/// A router with two uplinks and one host.
fn router() -> (Switch, Host) {
    let mut switch = Switch::enter();
    let far = Host::new();
    far.join("up1", 11, &["10.0.1.2/24", "2001:db8:1::2/64"]);
    far.join("up2", 12, &["10.0.2.2/24", "2001:db8:2::2/64"]);
    far.join("direct", 13, &["10.0.3.2/24"]);
    for (port, addresses) in [
        ("up1", ["10.0.1.1/24", "2001:db8:1::1/64"]),
        ("up2", ["10.0.2.1/24", "2001:db8:2::1/64"]),
        ("direct", ["10.0.3.1/24", "2001:db8:3::1/64"]),
    ] {
        addresses.iter().for_each(|address| own(port, address));
    }
    for (port, neighbour, last) in [
        ("up1", "10.0.1.2", 11),
        ("up1", "2001:db8:1::2", 11),
        ("up2", "10.0.2.2", 12),
        ("up2", "2001:db8:2::2", 12),
        ("direct", "10.0.3.2", 13),
    ] {
        ip(&format!("neigh replace {neighbour} lladdr {} dev {port} nud permanent", mac(last)));
    }
    switch.set_ports(&["up1", "up2", "direct"]);
    (switch, far)
}

/// A bridge with two ports that are the switch's and one that is not, and hosts there.
fn bridged() -> (Switch, [Host; 3]) {
    let mut switch = Switch::enter();
    ip("link add br0 type bridge mcast_snooping 0");
    ip("link set br0 up");
    let hosts = [Host::new(), Host::new(), Host::new()];
    hosts[0].join("p1", 21, &["10.1.0.11/16", "2001:db8:9::11/64", "10.2.0.11/16"]);
    hosts[1].join("p2", 22, &["10.1.0.12/16", "2001:db8:9::12/64"]);
    hosts[2].join("p3", 23, &["10.1.0.13/16"]);
    for port in ["p1", "p2", "p3"] {
        ip(&format!("link set {port} master br0"));
    }
    switch.set_ports(&["p1", "p2"]);
    (switch, hosts)
}

#[test]
fn carriers_are_followed() {
    if skipped() {
        return;
    }
    let (_switch, _far) = router();
    let ports = ["up1", "up2", "direct"].map(index);
    let mut carriers = Carriers::open().unwrap();
    assert!(ports.iter().all(|port| carriers.up().unwrap().contains(port)));
    ip("link set up2 down");
    let now = ports.map(|port| carriers.up().unwrap().contains(&port));
    assert_eq!(now, [true, false, true]);
    ip("link del direct");
    let now = ports.map(|port| carriers.up().unwrap().contains(&port));
    assert_eq!(now, [true, false, false]);
}

#[test]
fn routes_are_followed_as_they_are() {
    if skipped() {
        return;
    }
    let (mut switch, _far) = router();
    ip("route add 10.9.0.0/16 via 10.0.1.2");
    ip("route add 10.9.1.0/24 via 10.0.2.2 metric 5");
    ip("route add 10.9.1.0/24 via 10.0.1.2 metric 9");
    ip("route add default via 10.0.2.2");
    ip("route add blackhole 10.9.2.0/24");
    ip("route add unreachable 10.9.3.0/24");
    ip("route add 10.9.4.0/24 via 10.0.2.2 table 100");
    ip("route add 10.9.5.0/24 via inet6 2001:db8:2::2 dev up2");
    ip("route add 10.9.6.0/24 via 10.0.2.2 tos 0x10");
    ip("-6 route add 2001:db8:90::/48 via 2001:db8:1::2");
    ip("-6 route add 2001:db8:90:1::/64 via 2001:db8:2::2");
    ip("-6 route add blackhole 2001:db8:91::/48");
    let one = hop("up1", "10.0.1.2", mac(11));
    let two = hop("up2", "10.0.2.2", mac(12));
    for (to, wanted) in [
        ("10.9.9.9", one),
        ("10.9.1.1", two),
        ("192.0.2.1", two),
        ("10.9.4.1", one),
        ("10.9.5.1", hop("up2", "2001:db8:2::2", mac(12))),
        ("10.9.6.1", one),
        ("10.0.3.2", hop("direct", "-", mac(13))),
        ("2001:db8:90::5", hop("up1", "2001:db8:1::2", mac(11))),
        ("2001:db8:90:1::5", hop("up2", "2001:db8:2::2", mac(12))),
    ] {
        assert_eq!(switch.hops(to), Ok([wanted].into()), "{to}");
    }
    for to in ["10.9.2.1", "10.9.3.1", "2001:db8:91::5", "2001:db8:92::5"] {
        assert_eq!(switch.hops(to), Err(NoHop::NoRoute { address: address(to) }));
    }
    let error = switch.hops("10.0.3.99").unwrap_err();
    let interface = index("direct");
    let absent = Neighbour { address: address("10.0.3.99"), interface };
    assert_eq!(error.to_ask(), Some(absent));
    switch.set_ports(&["up1", "direct"]);
    let interface = "up2".to_owned();
    let error = NoHop::NotAPort { address: address("10.9.1.1"), interface };
    assert_eq!(switch.hops("10.9.1.1"), Err(error));
}

#[test]
fn equal_ways_are_all_found() {
    if skipped() {
        return;
    }
    let (mut switch, far) = router();
    ip("route add 10.9.0.0/16 nexthop via 10.0.1.2 nexthop via 10.0.2.2 weight 3");
    ip("-6 route add 2001:db8:90::/48 nexthop via 2001:db8:1::2 nexthop via 2001:db8:2::2");
    ip("-6 route add 2001:db8:91::/48 via 2001:db8:1::2 metric 7");
    ip("-6 route append 2001:db8:91::/48 via 2001:db8:2::2 metric 7");
    ip("nexthop add id 1 via 10.0.1.2 dev up1");
    ip("nexthop add id 2 via 10.0.2.2 dev up2");
    ip("nexthop add id 3 group 1/2");
    ip("route add 10.8.0.0/16 nhid 3");
    ip("route add 10.7.0.0/16 nhid 2");
    let ipv4 = [hop("up1", "10.0.1.2", mac(11)), hop("up2", "10.0.2.2", mac(12))];
    let ipv6 = [hop("up1", "2001:db8:1::2", mac(11)), hop("up2", "2001:db8:2::2", mac(12))];
    for to in ["10.9.0.1", "10.8.0.1"] {
        assert_eq!(switch.hops(to), Ok(ipv4.into()), "{to}");
    }
    for to in ["2001:db8:90::1", "2001:db8:91::1"] {
        assert_eq!(switch.hops(to), Ok(ipv6.into()), "{to}");
    }
    assert_eq!(switch.hops("10.7.0.1"), Ok([ipv4[1]].into()));
    // Next-hop objects that are not expanded cannot be followed.
    std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").unwrap();
    let error = switch.hops("10.8.0.1").unwrap_err();
    assert!(matches!(error, NoHop::Route { .. }), "{error}");
    std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "1").unwrap();
    // The other end of a link goes down: its carrier, that is.
    far.run(|| ip("link set up2-far down"));
    for to in ["10.9.0.1", "10.8.0.1"] {
        switch.wait_for(Station { address: address(to), mac: None }, &Ok([ipv4[0]].into()));
    }
    let to = Station { address: address("2001:db8:90::1"), mac: None };
    switch.wait_for(to, &Ok([ipv6[0]].into()));
    assert_eq!(switch.hops("10.7.0.1"), Err(NoHop::NoRoute { address: address("10.7.0.1") }));
}

#[test]
fn stations_learnt_by_a_bridge_are_found() {
    if skipped() {
        return;
    }
    let (mut switch, hosts) = bridged();
    let to = |last| Station { address: address("192.0.2.1"), mac: Some(mac(last)) };
    // A static entry counts, the bridge's own address does not.
    bridge(&format!("fdb add {} dev p1 master static", mac(91)));
    bridge(&format!("fdb add {} dev p2 master local", mac(92)));
    assert_eq!(switch.hops_to(to(91)), Ok([hop("p1", "-", mac(91))].into()));
    assert!(matches!(switch.hops_to(to(92)), Err(NoHop::Station { .. })));
    // Learnt entries: no host has an address of the bridge, nor the bridge one of theirs.
    for (host, last, port) in [(&hosts[0], 21, "p1"), (&hosts[1], 22, "p2")] {
        host.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            // It resolves an address that no host has.
            let _ = socket.send_to(b"hello", "10.1.0.99:9");
        });
        switch.wait_for(to(last), &Ok([hop(port, "-", mac(last))].into()));
    }
    let error = switch.hops_to(to(93)).unwrap_err();
    assert!(error.to_string().contains("no bridge has learnt 02:00:00:00:00:5d"), "{error}");
    // A host that moves, and one that is cut off.
    bridge(&format!("fdb replace {} dev p2 master static", mac(91)));
    assert_eq!(switch.hops_to(to(91)), Ok([hop("p2", "-", mac(91))].into()));
    hosts[1].run(|| ip("link set p2-far down"));
    for last in [91, 22] {
        let Station { address, .. } = to(last);
        let routes = Box::new(NoHop::NoRoute { address });
        switch.wait_for(to(last), &Err(NoHop::Station { address, mac: mac(last), routes }));
    }
}

#[test]
fn a_lookup_resolves_hosts_behind_a_bridge() {
    if skipped() {
        return;
    }
    let (mut switch, _hosts) = bridged();
    own("br0", "10.1.0.1/16");
    own("br0", "2001:db8:9::1/64");
    ip("link add mac0 link br0 type macvlan mode bridge");
    ip("link set mac0 up");
    own("mac0", "10.2.0.1/16");
    for (host, interface, port, last) in [
        ("10.1.0.12", "br0", "p2", 22),
        ("2001:db8:9::11", "br0", "p1", 21),
        ("2001:db8:9::12", "br0", "p2", 22),
        ("10.2.0.11", "mac0", "p1", 21),
    ] {
        let neighbour = Neighbour { address: address(host), interface: index(interface) };
        assert_eq!(switch.hops(host).unwrap_err().to_ask(), Some(neighbour));
        switch.kernel.ask(neighbour).unwrap();
        let to = Station { address: neighbour.address, mac: None };
        switch.wait_for(to, &Ok([hop(port, "-", mac(last))].into()));
        // Resolving a known neighbour again succeeds.
        switch.kernel.ask(neighbour).unwrap();
    }
    // At the third port, which is not the switch's.
    let other = Station { address: address("10.1.0.13"), mac: None };
    switch.kernel.ask(Neighbour { address: other.address, interface: index("br0") }).unwrap();
    let interface = "p3".to_owned();
    switch.wait_for(other, &Err(NoHop::NotAPort { address: other.address, interface }));
    // A resolved neighbour whose station the bridge no longer has.
    bridge(&format!("fdb del {} dev p2 master", mac(22)));
    let error = switch.hops("10.1.0.12").unwrap_err();
    assert!(matches!(&error, NoHop::NotLearnt { bridge, .. } if bridge == "br0"), "{error}");
    let neighbour = error.to_ask().unwrap();
    switch.kernel.ask(neighbour).unwrap();
    let to = Station { address: neighbour.address, mac: None };
    switch.wait_for(to, &Ok([hop("p2", "-", mac(22))].into()));
}

#[test]
fn a_lookup_resolves_hosts_on_a_link() {
    if skipped() {
        return;
    }
    let (mut switch, far) = router();
    far.run(|| own("direct-far", "2001:db8:3::77/64"));
    let to = Station { address: address("2001:db8:3::77"), mac: None };
    let neighbour = switch.hops_to(to).unwrap_err().to_ask().unwrap();
    switch.kernel.ask(neighbour).unwrap();
    switch.wait_for(to, &Ok([hop("direct", "-", mac(13))].into()));
    // Without an answer there is no error.
    let absent = Neighbour { address: address("10.0.3.99"), interface: index("direct") };
    switch.kernel.ask(absent).unwrap();
    assert_eq!(switch.hops("10.0.3.99").unwrap_err().to_ask(), Some(absent));
    let error = switch.kernel.ask(Neighbour { interface: 9999, ..absent }).unwrap_err();
    assert!(error.to_string().contains("cannot ask for a neighbour"), "{error}");
}

#[test]
fn only_changes_are_reported() {
    if skipped() {
        return;
    }
    let (mut switch, _hosts) = bridged();
    let mut notified = |what: &str, change: &dyn Fn()| {
        // Until there are no notifications for a while.
        let before = switch.settle();
        change();
        assert!(switch.kernel.changed(Duration::from_secs(5)).unwrap(), "{what}");
        assert_ne!(switch.kernel.snapshot().unwrap(), before, "{what}");
    };
    notified("an address", &|| own("br0", "10.1.0.1/16"));
    notified("a route", &|| ip("route add 10.9.0.0/16 via 10.1.0.11"));
    notified("an IPv6 route", &|| ip("-6 route add 2001:db8:90::/48 dev br0"));
    notified("a neighbour", &|| {
        ip(&format!("neigh replace 10.1.0.11 lladdr {} dev br0 nud permanent", mac(21)));
    });
    notified("a station", &|| bridge(&format!("fdb add {} dev p1 master static", mac(91))));
    notified("a station that goes", &|| bridge(&format!("fdb del {} dev p1 master", mac(91))));
    notified("a link that goes down", &|| ip("link set p1 down"));
    notified("a route that goes", &|| ip("route del 10.9.0.0/16"));
}

/// Lost notifications, in this thread's network.
fn lost() -> u64 {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let drops = |line: &str| line.split_whitespace().nth(8)?.parse::<u64>().ok();
    sockets.lines().skip(1).filter_map(drops).sum()
}

#[test]
fn an_overrun_of_changes_is_reported_as_a_change() {
    if skipped() {
        return;
    }
    let (mut switch, _far) = router();
    let route = |number: u32, word: &str| {
        let [.., high, low] = number.to_be_bytes();
        format!("route {word} 10.{}.{high}.{low}/32 via 10.0.1.2\n", 100 + (number >> 16))
    };
    let lines = |word: &str| (0..30_000).map(|number| route(number, word)).collect::<String>();
    assert!(batch(&lines("add")).wait().unwrap().success());
    assert!(lost() > 0, "too few to be lost");
    assert!(switch.kernel.changed(Duration::from_secs(5)).unwrap());
    let _ = switch.settle();
    let one = [hop("up1", "10.0.1.2", mac(11))];
    for to in ["10.100.0.0", "10.100.117.47"] {
        assert_eq!(switch.hops(to), Ok(one.into()), "{to}");
    }
    // While they are deleted, snapshots keep all other routes.
    let mut going = batch(&lines("del"));
    let mut seen = 0;
    while going.try_wait().unwrap().is_none() {
        match switch.kernel.snapshot() {
            Ok(snapshot) => {
                let to = Station { address: address("10.0.3.2"), mac: None };
                let hops = snapshot.hops(&[index("direct")].into(), to);
                assert_eq!(hops, Ok([hop("direct", "-", mac(13))].into()));
                seen += 1;
            }
            Err(RoutesError::Restless { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    println!("{seen} snapshots while routes went");
    assert!(matches!(switch.hops("10.100.0.0"), Err(NoHop::NoRoute { .. })));
}
