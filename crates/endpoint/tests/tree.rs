//! A tree of two levels of switches in the kernel, each in a network namespace of its own: groups that
//! part early, late and not at all, all at once, beside other traffic. Needs root.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use endpoint::{Endpoint, Event, Peer};
use mcrdma::{
    Counter, GroupKey, Mac, Region,
    endpoint::{Kind, RequesterConfig, Status, Work},
    plan::{Device, Group, Member, Node, Topology, plan},
};
use roce::Serial;
use switch::KernelPlane;

const PATIENCE: Duration = Duration::from_secs(120);
const MESSAGES: u64 = 60;
const BYTES: usize = 30_000;
const VIRTUAL_START: u64 = 0x9000;

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace: a thread that lives in it and does what it is told.
struct Network {
    thread: i32,
    tell: mpsc::Sender<Job>,
}

impl Network {
    fn new() -> Self {
        let (tell, told) = mpsc::channel::<Job>();
        let (tell_thread, thread) = mpsc::channel();
        thread::spawn(move || {
            own_network();
            tell_thread.send(rustix::thread::gettid().as_raw_pid()).unwrap();
            told.into_iter().for_each(|job| job());
        });
        Self { thread: thread.recv().unwrap(), tell }
    }

    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        self.tell.send(Box::new(move || tell.send(job()).unwrap())).unwrap();
        told.recv().expect("the job has ended well")
    }
}

fn own_network() {
    lab::enter_own_network().unwrap();
}

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

/// Everything that there is.
struct World {
    topology: Topology,
    /// Kept, so that they stay.
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
        own_network();
        let networks: Vec<Network> = (0..topology.len()).map(|_| Network::new()).collect();
        for (from, to) in topology.links().filter(|(from, to)| from < to) {
            let [near, far] = [link(from, to), link(to, from)];
            ip(&format!("link add {near} type veth peer name {far}"));
            ip(&format!("link set {near} netns {}", networks[from].thread));
            ip(&format!("link set {far} netns {}", networks[to].thread));
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

    /// Connects a group and tells its switches. Answers the queue pairs, the sender's first.
    fn group(&mut self, number: u32, names: &[&str]) -> Vec<(Node, u32)> {
        let nodes: Vec<Node> = names.iter().map(|name| self.find(name)).collect();
        let (sender, members) = (nodes[0], &nodes[1..]);
        let psn_first = 0xff_fff0 + number;
        let virtual_address = Ipv4Addr::new(10, 4, 9, number as u8).into();
        let key = GroupKey { sender: address(sender), id: 0x80_0000 + number };
        let config = RequesterConfig { timeout_ns: 50_000_000, ..RequesterConfig::default() };
        let endpoint = self.endpoints.get_mut(&sender).unwrap();
        let peer = Peer { address: virtual_address, qpn: key.id, next_hop: None };
        let sender_qpn = endpoint.queue_pair(peer, config, psn_first, 0);
        let mut group = Group {
            key,
            sender_qpn,
            psn_first: Serial::new(psn_first),
            virtual_address,
            virtual_mac: Mac([2, 4, 0, 0, 9, number as u8]),
            all_notifications: false,
            members: Vec::new(),
        };
        let mut queue_pairs = vec![(sender, sender_qpn)];
        for &node in members {
            let psn_offset = node as u32 * 0x3_3333;
            let endpoint = self.endpoints.get_mut(&node).unwrap();
            let memory = endpoint.register(BYTES);
            let peer = Peer { address: key.sender, qpn: sender_qpn, next_hop: None };
            let first = (psn_first + psn_offset) % (1 << 24);
            let qpn = endpoint.queue_pair(peer, config, 0, first);
            let region = Region {
                start: VIRTUAL_START,
                bytes: BYTES as u64,
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
            });
            queue_pairs.push((node, qpn));
        }
        self.tell(&group, sender, members);
        queue_pairs
    }

    fn tell(&mut self, group: &Group, sender: Node, members: &[Node]) {
        let tree = plan(&self.topology, sender, members).unwrap();
        let (networks, endpoints) = (&self.networks, &self.endpoints);
        let hop = |switch: Node, next: &[Node], member: &Member| {
            let port = link(switch, next[0]);
            let node = members.iter().find(|&&node| address(node) == member.address).unwrap();
            let port = networks[switch].run(move || KernelPlane::port_number(&port).unwrap());
            (port, endpoints[node].mac())
        };
        for entry in tree.entries(group, members, hop) {
            let plane = self.planes.get_mut(&entry.switch).unwrap();
            plane.insert(group.key, &entry.replication, entry.merging.as_ref()).unwrap();
        }
    }

    /// What a switch has counted.
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
    let directory = format!("/sys/fs/bpf/rdmc-test-tree-{node}-{}", std::process::id());
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

/// Messages of one sender, and who gets them.
struct Flow {
    /// The sender first.
    queue_pairs: Vec<(Node, u32)>,
    salt: u64,
    posted: u64,
    done: u64,
    /// By receiver.
    arrived: Vec<u64>,
}

fn contents(salt: u64, index: u64) -> Vec<u8> {
    (0..BYTES as u64).map(|at| (at * 7 + index * 13 + salt * 101) as u8).collect()
}

impl Flow {
    fn new(salt: u64, queue_pairs: Vec<(Node, u32)>) -> Self {
        let arrived = vec![0; queue_pairs.len() - 1];
        Self { queue_pairs, salt, posted: 0, done: 0, arrived }
    }

    fn post(&mut self, endpoints: &mut BTreeMap<Node, Endpoint>) {
        while self.posted < MESSAGES && self.posted < self.done + 4 {
            let bytes = contents(self.salt, self.posted);
            for &(node, qpn) in &self.queue_pairs[1..] {
                let endpoint = endpoints.get_mut(&node).unwrap();
                endpoint.receive(qpn, self.posted, vec![0; BYTES]).unwrap();
            }
            let (node, qpn) = self.queue_pairs[0];
            let work = Work {
                id: self.posted,
                kind: Kind::Send,
                bytes: bytes.len() as u32,
                immediate: Some(self.salt as u32),
            };
            endpoints.get_mut(&node).unwrap().send(qpn, work, bytes.into()).unwrap();
            self.posted += 1;
        }
    }

    /// Whether the event was one of this flow's.
    fn take(&mut self, node: Node, event: &Event) -> bool {
        let is_at = |qpn: u32| self.queue_pairs.iter().position(|pair| *pair == (node, qpn));
        match event {
            Event::Sent { qpn, id, status } => {
                if is_at(*qpn) != Some(0) {
                    return false;
                }
                assert_eq!((*id, *status), (self.done, Status::Done));
                self.done += 1;
            }
            Event::Arrived { qpn, arrival, memory } => {
                let Some(place) = is_at(*qpn) else { return false };
                let index = self.arrived[place - 1];
                assert_eq!(arrival.immediate, Some(self.salt as u32));
                assert!(*memory == contents(self.salt, index), "message {index} at {node}");
                self.arrived[place - 1] += 1;
            }
        }
        true
    }

    fn is_over(&self) -> bool {
        self.done == MESSAGES && self.arrived.iter().all(|arrived| *arrived == MESSAGES)
    }
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
    let mut flows: Vec<Flow> = (0..)
        .zip(groups)
        .map(|(number, names)| Flow::new(number.into(), world.group(number, names)))
        .collect();
    // Beside them a connection that is nobody's group.
    let (from, to) = (world.find("b2"), world.find("a1"));
    let config = RequesterConfig::default();
    let nobody = Peer { address: address(from), qpn: 0, next_hop: None };
    let probe = world.endpoints.get_mut(&to).unwrap().queue_pair(nobody, config, 0, 0);
    world.endpoints.get_mut(&to).unwrap().remove(probe);
    // Numbers count up: the next of each is known before it is made.
    let to_qpn = probe + 1;
    let peer = Peer { address: address(to), qpn: to_qpn, next_hop: None };
    let from_qpn = world.endpoints.get_mut(&from).unwrap().queue_pair(peer, config, 5, 6);
    let peer = Peer { address: address(from), qpn: from_qpn, next_hop: None };
    let qpn = world.endpoints.get_mut(&to).unwrap().queue_pair(peer, config, 6, 5);
    assert_eq!(qpn, to_qpn);
    flows.push(Flow::new(9, vec![(from, from_qpn), (to, to_qpn)]));

    let deadline = Instant::now() + PATIENCE;
    while !flows.iter().all(Flow::is_over) {
        assert!(
            Instant::now() < deadline,
            "{:?}",
            flows.iter().map(|f| f.done).collect::<Vec<_>>()
        );
        flows.iter_mut().for_each(|flow| flow.post(&mut world.endpoints));
        for (&node, endpoint) in &mut world.endpoints {
            endpoint.progress(Duration::ZERO).unwrap();
            while let Some(event) = endpoint.completed() {
                assert!(flows.iter_mut().any(|flow| flow.take(node, &event)), "{event:?}");
            }
        }
    }
    // a1's two groups and a2's one pass tor-a: two copies of the first (a2, spine), two of the last, and
    // one of a2's. The spine copies nothing: each group goes one way there.
    let packets = |name, counter| world.counted(name, counter);
    assert_eq!(packets("spine", Counter::Copy), 0);
    // tor-a also copies what comes down for a1 and a2, tor-b what comes down for b1 and b2.
    let at_tors = ["tor-a", "tor-b"].map(|name| packets(name, Counter::Copy));
    println!("copies at tor-a and tor-b: {at_tors:?}");
    assert!(at_tors.iter().all(|copies| *copies > 0));
    for name in ["tor-a", "tor-b", "spine"] {
        assert_eq!(packets(name, Counter::CopyFailed) + packets(name, Counter::Damaged), 0);
    }
    assert!(packets("tor-a", Counter::AckTold) > 0 && packets("tor-b", Counter::AckTold) > 0);
    assert_eq!(packets("spine", Counter::AckTold), 0, "answers are merged at the first switch");
}
