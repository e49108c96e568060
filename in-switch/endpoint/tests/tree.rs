//! A tree of two levels of switches in the kernel, each in a network namespace of its own: concurrent groups
//! whose paths diverge early, late and not at all, beside other traffic. Needs root.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use data_plane::{DataPlane, KernelPlane};
use endpoint::{Endpoint, Faults, Peer};
use lab::Network;
use mcrdma::{
    Counter, GroupKey, Region,
    plan::{Device, Group, Member, Node, Topology, entries, plan},
};
use roce::{
    Mac, Serial,
    rc::{RateConfig, RequesterConfig},
};
use testing_switch::flow::{BYTES, Flow, OPEN, VIRTUAL_START, run, turn};

/// How long the last packets may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn ip(words: &str) {
    lab::ip(words).unwrap();
}

fn quiet(link: &str) {
    lab::quiet(link, 4200).unwrap();
}

fn link(from: Node, to: Node) -> String {
    format!("l{from}-{to}")
}

fn address(node: Node) -> IpAddr {
    Ipv4Addr::new(10, 4, 0, node as u8 + 1).into()
}

/// Hosts and switches.
struct World {
    topology: Topology,
    /// Kept, so that the namespaces exist.
    networks: Vec<Network>,
    planes: BTreeMap<Node, KernelPlane>,
    endpoints: BTreeMap<Node, Endpoint>,
}

impl Drop for World {
    fn drop(&mut self) {
        while let Some((_, plane)) = self.planes.pop_first() {
            let _ = plane.unpin();
        }
    }
}

impl World {
    fn new(topology: Topology) -> Self {
        lab::enter_own_network().unwrap();
        let networks: Vec<Network> = (0..topology.len()).map(|_| Network::new().unwrap()).collect();
        for (from, to) in topology.links().filter(|(from, to)| from < to) {
            let [near, far] = [link(from, to), link(to, from)];
            ip(&format!("link add {near} type veth peer name {far}"));
            ip(&format!("link set {near} netns {}", networks[from].thread()));
            ip(&format!("link set {far} netns {}", networks[to].thread()));
        }
        let (mut planes, mut endpoints) = (BTreeMap::new(), BTreeMap::new());
        for (node, network) in networks.iter().enumerate() {
            let links: Vec<String> =
                topology.neighbours(node).iter().map(|&next| link(node, next)).collect();
            if topology.device(node) == Device::Host {
                endpoints.insert(node, network.run(move || open_host(node, &links[0])));
            } else {
                planes.insert(node, network.run(move || open_switch(node, &links)));
            }
        }
        Self { topology, networks, planes, endpoints }
    }

    fn find(&self, name: &str) -> Node {
        self.topology.find(name).unwrap()
    }

    /// Connects a group and installs it in its switches. Returns the queue pairs, the sender's first.
    fn group(&mut self, number: u32, names: &[&str], rate: Option<RateConfig>) -> Flow {
        let nodes: Vec<Node> = names.iter().map(|name| self.find(name)).collect();
        let (sender, members) = (nodes[0], &nodes[1..]);
        let psn_first = 0xff_fff0 + number;
        let virtual_address = Ipv4Addr::new(10, 4, 9, number as u8).into();
        let key = GroupKey { sender: address(sender), id: 0x80_0000 + number };
        let config = RequesterConfig {
            timeout_ns: 50_000_000,
            retries: 200,
            rate,
            ..RequesterConfig::default()
        };
        let endpoint = self.endpoints.get_mut(&sender).unwrap();
        let peer = Peer { address: virtual_address, qpn: key.id, next_hop: None };
        let sender_qpn = endpoint.queue_pair(peer, config, psn_first, 0);
        let mut group = Group {
            key,
            sender_mac: None,
            sender_qpn,
            psn_first: Serial::new(psn_first),
            virtual_address,
            virtual_mac: Mac([2, 4, 0, 0, 9, number as u8]),
            instance: 0,
            all_notifications: false,
            members: Vec::new(),
        };
        let (mut queue_pairs, mut memories) = (vec![(sender, sender_qpn)], Vec::new());
        for &node in members {
            let psn_offset = node as u32 * 0x3_3333;
            let endpoint = self.endpoints.get_mut(&node).unwrap();
            let memory = endpoint.register(OPEN as usize * BYTES);
            memories.push(memory.key);
            let peer = Peer { address: key.sender, qpn: sender_qpn, next_hop: None };
            let first = (psn_first + psn_offset) % (1 << 24);
            let qpn = endpoint.queue_pair(peer, config, 0, first);
            let region = Region {
                start: VIRTUAL_START,
                bytes: OPEN * BYTES as u64,
                member_start: memory.start,
                member_key: memory.key,
            };
            let address = address(node);
            group.members.push(Member {
                address,
                mac: None,
                qpn,
                psn_offset,
                regions: vec![region],
                delegation: Vec::new(),
            });
            queue_pairs.push((node, qpn));
        }
        self.insert(&group, sender, members);
        Flow::new(number.into(), queue_pairs).writing(memories)
    }

    fn insert(&mut self, group: &Group, sender: Node, members: &[Node]) {
        let tree = plan(&self.topology, sender, members).unwrap();
        let (networks, endpoints) = (&self.networks, &self.endpoints);
        let hop = |switch: Node, next: &[Node], member: &Member| {
            let port = link(switch, next[0]);
            let node = members.iter().find(|&&node| address(node) == member.address).unwrap();
            let port = networks[switch].run(move || KernelPlane::port_number(&port).unwrap());
            (port, endpoints[node].mac())
        };
        for entry in entries(&tree, group, members, hop) {
            let plane = self.planes.get_mut(&entry.switch).unwrap();
            plane.insert(group.key, &entry.replication, entry.merging.as_ref()).unwrap();
        }
    }

    /// A switch's counter.
    fn counted(&self, name: &str, counter: Counter) -> u64 {
        self.planes[&self.find(name)].counters().unwrap().counted(counter)
    }
}

fn open_host(node: Node, link: &str) -> Endpoint {
    ip(&format!("addr add {}/16 dev {link}", address(node)));
    quiet(link);
    Endpoint::open(link, address(node)).unwrap()
}

fn open_switch(node: Node, links: &[String]) -> KernelPlane {
    // Of this switch's own thread, as tests run side by side.
    let thread = rustix::thread::gettid().as_raw_pid();
    let directory = format!("/sys/fs/bpf/rdmc-test-tree-{node}-{thread}");
    let mut plane = KernelPlane::open(directory.as_ref()).unwrap();
    ip("link add name bridge0 type bridge mcast_snooping 0");
    quiet("bridge0");
    for link in links {
        ip(&format!("link set {link} master bridge0"));
        quiet(link);
        plane.attach(link).unwrap();
    }
    plane
}

#[test]
fn groups_of_all_shapes_share_a_tree_of_switches() {
    if let Err(error) = KernelPlane::check() {
        println!("SKIPPED: needs root (network namespaces, eBPF): {error}");
        return;
    }
    let mut world = World::new(Topology::racks(2, 2, Device::Copies));
    let groups: [&[&str]; 4] =
        [&["a1", "a2", "b1", "b2"], &["b1", "a1", "a2"], &["a2", "b1"], &["a1", "b2", "a2"]];
    let mut flows: Vec<Flow> =
        (0..).zip(groups).map(|(number, names)| world.group(number, names, None)).collect();
    // Beside them a unicast connection.
    let (from, to) = (world.find("b2"), world.find("a1"));
    let config = RequesterConfig::default();
    let to_qpn = world.endpoints[&to].draw_number();
    let peer = Peer { address: address(to), qpn: to_qpn, next_hop: None };
    let from_qpn = world.endpoints.get_mut(&from).unwrap().queue_pair(peer, config, 5, 6);
    let peer = Peer { address: address(from), qpn: from_qpn, next_hop: None };
    world.endpoints.get_mut(&to).unwrap().connect(to_qpn, peer, config, 6, 5);
    flows.push(Flow::new(9, vec![(from, from_qpn), (to, to_qpn)]));

    run(&mut flows, &mut world.endpoints);
    // a1's two groups and a2's one pass tor-a: two copies of the first (a2, spine), two of the last, and
    // one of a2's. The spine copies nothing: each group goes one way there.
    let packets = |name, counter| world.counted(name, counter);
    assert_eq!(packets("spine", Counter::Copy), 0);
    // tor-a also copies what comes down for a1 and a2, tor-b what comes down for b1 and b2.
    let at_tors = ["tor-a", "tor-b"].map(|name| packets(name, Counter::Copy));
    println!("copies at tor-a and tor-b: {at_tors:?}");
    assert!(at_tors.iter().all(|copies| *copies > 0));
    for name in ["tor-a", "tor-b", "spine"] {
        assert_eq!(packets(name, Counter::CopyFailed) + packets(name, Counter::IcrcError), 0);
    }
    assert!(
        packets("tor-a", Counter::AckForwarded) > 0 && packets("tor-b", Counter::AckForwarded) > 0
    );
    assert_eq!(
        packets("spine", Counter::AckForwarded),
        0,
        "answers are merged at the first switch"
    );
}

/// Packets of two members are marked (ECN), these members send CNPs, the switch forwards as many as the most
/// congested one has sent, and the sender slows down (DCQCN).
#[test]
fn a_congested_member_slows_its_group_down() {
    if let Err(error) = KernelPlane::check() {
        println!("SKIPPED: needs root (network namespaces, eBPF): {error}");
        return;
    }
    let mut world = World::new(Topology::racks(1, 3, Device::Plain));
    let line = 1e9;
    let mut flows = [world.group(0, &["a1", "a2", "a3"], Some(RateConfig::of_link(line)))];
    for (name, mark) in [("a2", 0.02), ("a3", 0.2)] {
        let member = world.find(name);
        let faults = Faults { mark, seed: member as u64, ..Faults::default() };
        world.endpoints.get_mut(&member).unwrap().inject(faults);
    }
    let (sender, qpn) = flows[0].queue_pairs[0];
    let mut slowest = line;
    while !flows[0].is_over() {
        turn(&mut flows, &mut world.endpoints);
        slowest = slowest.min(world.endpoints[&sender].rate_bits_per_s(qpn).unwrap());
    }
    // The last CNPs may still be on their way to the sender.
    let deadline = Instant::now() + PATIENCE;
    let (forwarded, counts) = loop {
        let forwarded = world.counted("tor-a", Counter::CnpForwarded);
        let counts = world.endpoints[&sender].counts();
        if counts.notifications_received == forwarded || Instant::now() > deadline {
            break (forwarded, counts);
        }
        turn(&mut flows, &mut world.endpoints);
    };
    let suppressed = world.counted("tor-a", Counter::CnpSuppressed);
    println!("{forwarded} CNPs forwarded, {suppressed} suppressed: {counts:?}");
    assert!(forwarded > 0 && suppressed > 0);
    assert_eq!(counts.notifications_received, forwarded);
    // The first CNP halves it.
    assert!(slowest <= line / 2.0, "{slowest}");
}
