//! Where paths diverge: known topologies, and generated ones.

use std::collections::{BTreeMap, BTreeSet};

use mcrdma::plan::{
    Device, NoTree, Node, Topology, Totals, Tree, chain_loads, fanout_loads, plan, tree_loads,
};
use proptest::prelude::*;

fn nodes(topology: &Topology, names: &[&str]) -> Vec<Node> {
    names.iter().map(|name| topology.find(name).unwrap()).collect()
}

/// For each switch that copies, each copy's next nodes and members.
fn forks(topology: &Topology, sender: &str, members: &[&str]) -> Vec<(String, Vec<String>)> {
    let tree = plan(topology, topology.find(sender).unwrap(), &nodes(topology, members)).unwrap();
    let names = |nodes: &[Node]| {
        nodes.iter().map(|&node| topology.name(node)).collect::<Vec<_>>().join("|")
    };
    let named = |fork: &mcrdma::plan::Fork| {
        let ways = fork.branches.iter();
        let ways = ways.map(|way| format!("{}: {}", names(&way.next), names(&way.members)));
        (topology.name(fork.switch).to_owned(), ways.collect())
    };
    tree.forks.iter().map(named).collect()
}

fn fork(switch: &str, ways: &[&str]) -> (String, Vec<String>) {
    (switch.to_owned(), ways.iter().map(|&way| way.to_owned()).collect())
}

#[test]
fn paths_fork_as_late_as_possible() {
    let all_copy = Topology::racks(4, 2, Device::Copies);
    // One copy up, which the spine parts; rack d's switch parts it again.
    assert_eq!(
        forks(&all_copy, "a1", &["b1", "d1", "d2"]),
        [
            fork("tor-a", &["spine: b1|d1|d2"]),
            fork("spine", &["tor-b: b1", "tor-d: d1|d2"]),
            fork("tor-d", &["d1: d1", "d2: d2"]),
        ]
    );
    // The paper's figure 4: one neighbour, one in another rack.
    assert_eq!(forks(&all_copy, "a1", &["d1", "a2"]), [fork("tor-a", &["spine: d1", "a2: a2"])]);
}

#[test]
fn copies_through_a_plain_switch_are_made_before_it() {
    let plain = Topology::racks(4, 2, Device::Plain);
    assert_eq!(
        forks(&plain, "a1", &["b1", "d1", "d2"]),
        [fork("tor-a", &["spine: b1", "spine: d1|d2"]), fork("tor-d", &["d1: d1", "d2: d2"]),]
    );
}

#[test]
fn a_single_member_is_rewritten_by_the_first_switch() {
    let topology = Topology::racks(2, 2, Device::Copies);
    assert_eq!(forks(&topology, "a1", &["b2"]), [fork("tor-a", &["spine: b2"])]);
    assert_eq!(forks(&topology, "a1", &["a2"]), [fork("tor-a", &["a2: a2"])]);
}

#[test]
fn equal_paths_stay_together_where_their_sets_are_the_same() {
    let fat = Topology::fat_tree(4, 2, Device::Copies);
    let [both, core] = ["aggregation-0-0|aggregation-0-1", "aggregation-3-0"];
    let forks = forks(&fat, "h0", &["h4", "h12", "h14"]);
    assert_eq!(forks[0], fork("edge-0-0", &[&format!("{both}: h4|h12|h14")]));
    // Each of the two aggregation switches, then each of the cores, needs an entry.
    let at =
        |name: &str| forks.iter().find(|(switch, _)| switch == name).map(|(_, ways)| &ways[..]);
    assert_eq!(at("aggregation-0-0"), None, "nobody parts there");
    assert_eq!(at("core-0").unwrap(), ["aggregation-1-0: h4", &format!("{core}: h12|h14")]);
    assert_eq!(at(core).unwrap(), ["edge-3-0: h12", "edge-3-1: h14"]);
    assert_eq!(forks.len(), 1 + 4 + 2);
}

#[test]
fn loads_are_those_of_the_paper() {
    let topology = Topology::racks(4, 2, Device::Plain);
    let (sender, members) = (topology.find("a1").unwrap(), nodes(&topology, &["d1", "a2"]));
    let uplink = (sender, topology.find("tor-a").unwrap());
    let tree = plan(&topology, sender, &members).unwrap();
    // "Sender bandwidth halved for two receivers"; a chain sends on what it received instead.
    assert_eq!(tree_loads(&topology, &tree)[&uplink], 1.0);
    assert_eq!(fanout_loads(&topology, sender, &members)[&uplink], 2.0);
    let chain = chain_loads(&topology, sender, &members);
    assert_eq!(chain[&uplink], 1.0);
    assert!(chain.values().sum::<f64>() > tree_loads(&topology, &tree).values().sum());
}

#[test]
fn unsupported_groups_are_refused_with_the_reason() {
    let mut topology = Topology::racks(2, 2, Device::Copies);
    let lonely = topology.add("lonely", Device::Host);
    let plain = topology.add("plain", Device::Plain);
    let behind_plain = topology.add("p1", Device::Host);
    topology.link(plain, behind_plain);
    topology.link(plain, topology.find("spine").unwrap());
    let [a1, b1, tor] = ["a1", "b1", "tor-b"].map(|name| topology.find(name).unwrap());
    let refused = |sender, members: &[Node]| plan(&topology, sender, members).unwrap_err();
    assert_eq!(refused(a1, &[]), NoTree::Members { count: 0, given: 0 });
    assert_eq!(refused(a1, &[b1, b1]), NoTree::Members { count: 1, given: 2 });
    assert_eq!(refused(a1, &[b1, a1]), NoTree::Members { count: 1, given: 2 });
    assert_eq!(refused(a1, &[tor]), NoTree::NotAHost { name: "tor-b".into() });
    let unreachable = refused(a1, &[b1, lonely]).to_string();
    assert_eq!(unreachable, "there is no path from a1 to lonely");
    let first = refused(behind_plain, &[a1]).to_string();
    assert!(first.starts_with("p1 has to be behind one switch that can copy, and is behind plain"));
}

/// Layers of two switches, each linked to both of the next: one path in 2^`layers` for a host behind
/// all of them.
fn layers(layers: usize) -> Topology {
    let mut topology = Topology::new();
    let first = topology.add("first", Device::Copies);
    let mut below = vec![first];
    for layer in 0..layers {
        let names = ["left", "right"].map(|side| format!("{side}-{layer}"));
        let above = names.map(|name| topology.add(name, Device::Copies));
        for (&lower, &upper) in below.iter().flat_map(|l| above.iter().map(move |u| (l, u))) {
            topology.link(lower, upper);
        }
        below = above.to_vec();
    }
    let last = topology.add("last", Device::Copies);
    below.iter().for_each(|&switch| topology.link(switch, last));
    for (name, switch) in [("s", first), ("x", last), ("y", last)] {
        let host = topology.add(name, Device::Host);
        topology.link(host, switch);
    }
    topology
}

#[test]
fn equal_paths_are_not_counted_one_by_one() {
    let topology = layers(200);
    let (sender, members) = (topology.find("s").unwrap(), nodes(&topology, &["x", "y"]));
    let tree = plan(&topology, sender, &members).unwrap();
    assert_eq!(tree.forks.len(), 2, "the first merges, the last copies");
    let totals = |loads| Totals::new(&loads, sender);
    let once = totals(tree_loads(&topology, &tree));
    assert_eq!(once, Totals { uplink: 1.0, busiest: 1.0, all: 204.0 });
    let twice = totals(fanout_loads(&topology, sender, &members));
    assert_eq!(twice, Totals { uplink: 2.0, busiest: 2.0, all: 2.0 * 203.0 });
    let chain = totals(chain_loads(&topology, sender, &members));
    assert_eq!(chain, Totals { uplink: 1.0, busiest: 1.0, all: 203.0 + 2.0 });
}

/// c1 and c2 are behind p and q, d1 and d2 behind q and r: q could be given either pair's copies.
#[test]
fn copies_for_different_members_do_not_meet() {
    let mut topology = Topology::new();
    let [first, p, q, r, c, d] =
        ["first", "p", "q", "r", "c", "d"].map(|name| topology.add(name, Device::Copies));
    for (a, b) in [(first, p), (first, q), (first, r), (p, c), (q, c), (q, d), (r, d)] {
        topology.link(a, b);
    }
    for (name, switches) in
        [("s", &[first][..]), ("c1", &[c]), ("c2", &[c]), ("d1", &[d]), ("c3", &[p, q])]
    {
        let host = topology.add(name, Device::Host);
        switches.iter().for_each(|&switch| topology.link(host, switch));
    }
    let d2 = topology.add("d2", Device::Host);
    topology.link(d2, d);
    let tree =
        |names: &[&str]| plan(&topology, topology.find("s").unwrap(), &nodes(&topology, names));
    // No switch between copies: q forwards each pair's copies unchanged.
    assert!(tree(&["c1", "c2", "d1", "d2"]).is_ok());
    // Here q parts c3 from c1, and would part the copies for d1 and d2, too.
    let error = tree(&["c1", "c3", "d1", "d2"]).unwrap_err();
    assert_eq!(error, NoTree::Meet { switch: "q".into() });
    // A single member's copy is rewritten before, and may pass.
    assert!(tree(&["c1", "c3", "d1"]).is_ok());
}

#[test]
fn hosts_with_two_links_forward_nothing() {
    let mut topology = Topology::new();
    let [first, middle, last] =
        ["first", "middle", "last"].map(|name| topology.add(name, Device::Copies));
    let [s, both, x] = ["s", "both", "x"].map(|name| topology.add(name, Device::Host));
    for (a, b) in
        [(first, middle), (middle, last), (s, first), (both, first), (both, last), (x, last)]
    {
        topology.link(a, b);
    }
    let expected = [fork("first", &["both: both", "middle: x"])];
    assert_eq!(forks(&topology, "s", &["both", "x"]), expected);
    assert_eq!(fanout_loads(&topology, s, &[x])[&(middle, last)], 1.0);
}

/// Racks and spines in any number, spines plain or not, any group of their hosts.
fn groups() -> impl Strategy<Value = (Topology, Node, Vec<Node>)> {
    let fat = (1_usize..4, 1_usize..4, any::<bool>()).prop_map(|(half, hosts, copies)| {
        let device = if copies { Device::Copies } else { Device::Plain };
        Topology::fat_tree(2 * half, hosts, device)
    });
    let racks = (1_usize..6, 1_usize..6, any::<bool>()).prop_map(|(racks, hosts, copies)| {
        Topology::racks(racks, hosts, if copies { Device::Copies } else { Device::Plain })
    });
    prop_oneof![fat, racks]
        .prop_flat_map(|topology| {
            let hosts: Vec<Node> =
                (0..topology.len()).filter(|&node| topology.device(node) == Device::Host).collect();
            let most = hosts.len().min(17);
            let chosen = prop::sample::subsequence(hosts, most.min(2)..=most).prop_shuffle();
            (Just(topology), chosen)
        })
        .prop_filter_map("a group has a sender and a member", |(topology, mut chosen)| {
            let sender = chosen.pop()?;
            (!chosen.is_empty()).then_some((topology, sender, chosen))
        })
}

/// Any switches, any of which may copy, and hosts with a link or two.
fn meshes() -> impl Strategy<Value = (Topology, Node, Vec<Node>)> {
    let links = |most: usize| prop::collection::vec((0..most, 0..most), 0..3 * most);
    (2_usize..9, 2_usize..9)
        .prop_flat_map(move |(switches, hosts)| {
            let copies = prop::collection::vec(prop::bool::weighted(0.7), switches);
            let homes = prop::collection::vec((0..switches, 0..switches), hosts);
            (copies, links(switches), homes)
        })
        .prop_map(|(copies, links, homes)| {
            let mut topology = Topology::new();
            for (index, copies) in copies.into_iter().enumerate() {
                let device = if copies { Device::Copies } else { Device::Plain };
                topology.add(format!("switch-{index}"), device);
            }
            links.into_iter().for_each(|(a, b)| topology.link(a, b));
            let mut hosts = Vec::new();
            for (index, (home, other)) in homes.into_iter().enumerate() {
                let host = topology.add(format!("h{index}"), Device::Host);
                topology.link(host, home);
                // The first sends: it is behind one switch.
                if index % 2 == 1 {
                    topology.link(host, other);
                }
                hosts.push(host);
            }
            (topology, hosts[0], hosts[1..].to_vec())
        })
}

proptest! {
    /// Whatever equal paths a copy takes, each member gets one and no other host does; no link carries
    /// a message twice but those of plain switches.
    #[test]
    fn every_member_gets_exactly_one_copy((topology, sender, members) in groups(), choices in any::<u64>()) {
        let tree = plan(&topology, sender, &members).unwrap();
        for ((from, to), count) in crossings(&topology, &tree, &members, choices)? {
            let is_plain = [from, to].map(|node| topology.device(node)).contains(&Device::Plain);
            prop_assert!(count == 1 || is_plain, "{} times from {from} to {to}", count);
        }
        let sum: f64 = tree_loads(&topology, &tree).values().sum();
        let fanout: f64 = fanout_loads(&topology, sender, &members).values().sum();
        prop_assert!(sum <= fanout + 1e-9);
    }

    /// In any network: each member gets one copy, or the group is refused.
    #[test]
    fn every_member_gets_exactly_one_copy_or_the_plan_is_refused((topology, sender, members) in meshes(), choices in any::<u64>()) {
        let Ok(tree) = plan(&topology, sender, &members) else { return Ok(()) };
        crossings(&topology, &tree, &members, choices)?;
        let loads = tree_loads(&topology, &tree);
        for &member in &members {
            let arriving = loads.iter().filter(|((_, to), _)| *to == member);
            let sum: f64 = arriving.map(|(_, load)| load).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{sum} to {member}");
        }
    }
}

/// Follows copies along a choice of equal paths: each member gets one. Returns how often links were
/// crossed.
fn crossings(
    topology: &Topology,
    tree: &Tree,
    members: &[Node],
    mut choices: u64,
) -> Result<BTreeMap<(Node, Node), usize>, TestCaseError> {
    let mut received = BTreeMap::new();
    let mut crossed = BTreeMap::<(Node, Node), usize>::new();
    let mut ahead = vec![(tree.sender, tree.first, members.to_vec(), false)];
    while let Some((from, at, together, is_single)) = ahead.pop() {
        *crossed.entry((from, at)).or_default() += 1;
        if topology.device(at) == Device::Host {
            prop_assert_eq!(&together[..], [at]);
            *received.entry(at).or_insert(0) += 1;
            continue;
        }
        let fork = tree.forks.iter().find(|fork| fork.switch == at && !is_single);
        let ways = match fork {
            Some(fork) => {
                let parted: BTreeSet<Node> =
                    fork.branches.iter().flat_map(|way| way.members.clone()).collect();
                prop_assert_eq!(&parted, &together.iter().copied().collect());
                prop_assert!(topology.device(at) == Device::Copies);
                fork.branches.clone()
            }
            // Towards the one that it is addressed to.
            None => {
                let next = towards(topology, at, together[0]);
                vec![mcrdma::plan::Way { next, members: together.clone() }]
            }
        };
        for way in ways {
            choices = choices.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let next = way.next[(choices >> 33) as usize % way.next.len()];
            let is_single = way.members.len() == 1;
            ahead.push((at, next, way.members, is_single));
        }
    }
    prop_assert_eq!(received, members.iter().map(|&member| (member, 1)).collect());
    Ok(crossed)
}

/// Neighbours that are nearer to a host.
fn towards(topology: &Topology, at: Node, host: Node) -> Vec<Node> {
    // A group of one has the shortest paths in its first fork.
    let distance = |from: Node| -> usize {
        let mut seen = BTreeSet::from([from]);
        let mut layer = vec![from];
        let mut hops = 0;
        while !layer.contains(&host) {
            let next = layer.iter().flat_map(|&node| topology.neighbours(node));
            let is_way = |node: &Node| *node == host || topology.device(*node) != Device::Host;
            layer = next.filter(is_way).filter(|&node| seen.insert(node)).collect();
            hops += 1;
        }
        hops
    };
    let here = distance(at);
    let is_nearer = |&node: &Node| {
        (node == host || topology.device(node) != Device::Host) && distance(node) < here
    };
    topology.neighbours(at).into_iter().filter(is_nearer).collect()
}
