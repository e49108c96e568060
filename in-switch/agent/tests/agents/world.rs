//! A network of namespaces: hosts with queue pairs in userspace, and switches in the kernel, each with
//! its agent.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use agent::{AgentSettings, Clock, Liveness, Plane};
use control::{Agent, Claim, ControlError, delegation};
use data_plane::{Groups, KernelPlane};
use endpoint::{Endpoint, Peer};
use lab::Network;
use mcrdma::{
    GroupKey, Region,
    plan::{Device, Group, Member, Node, Topology},
};
use roce::{Mac, Serial, rc::RequesterConfig};
use session::certificates::{CertificateFiles, Certificates};
use testing::{Authority, Issued};
use testing_switch::{
    flow::{self, Flow},
    recording::Recording,
};
use tokio::sync::oneshot;

pub const PORT: u16 = 4790;
/// Small, so that a test can exceed it.
pub const GROUPS_PER_HOST_MAX: usize = 8;
/// How long members agree.
pub const AGREED_FOR: Duration = Duration::from_secs(24 * 3600);
pub const INSERT_TIMEOUT: Duration = Duration::from_secs(20);

/// A process that another test is starting has the descriptors of this one, with a former agent's
/// listener among them, until it runs its own program.
fn listen(address: SocketAddr) -> TcpListener {
    let deadline = Instant::now() + INSERT_TIMEOUT;
    loop {
        match agent::listen(address) {
            Err(error) if Instant::now() < deadline && error.message.contains("in use") => {
                std::thread::sleep(Duration::from_millis(10));
            }
            listener => return listener.unwrap(),
        }
    }
}

pub fn link(from: Node, to: Node) -> String {
    format!("l{from}-{to}")
}

/// Settings of a switch's agent, besides those that follow from the topology.
#[derive(Clone)]
pub struct Settings {
    pub next: Vec<String>,
    pub trusted: Vec<String>,
    pub stale_after: Duration,
}

/// A running agent.
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), ControlError>>,
}

/// Everything that there is.
pub struct World {
    pub topology: Topology,
    pub authority: Authority,
    pub networks: Vec<Network>,
    pub endpoints: BTreeMap<Node, Endpoint>,
    agents: BTreeMap<Node, Running>,
    settings: BTreeMap<Node, Settings>,
    /// Data planes of switches that are not in the kernel.
    recordings: BTreeMap<Node, Recording>,
    /// Of all agents.
    clock: Clock,
    /// By node: what it is reached by.
    addresses: Vec<IpAddr>,
    gateways: BTreeMap<Node, IpAddr>,
}

/// Whether this machine can run these tests; prints why not.
pub fn is_possible() -> bool {
    let possible = KernelPlane::check();
    if let Err(error) = &possible {
        println!("SKIPPED: needs root (network namespaces, eBPF): {error}");
    }
    possible.is_ok()
}

impl World {
    /// Namespaces and links, all of which are down and without addresses.
    pub fn wired(topology: Topology, addresses: Vec<IpAddr>, clock: Clock) -> Self {
        lab::enter_own_network().unwrap();
        let networks: Vec<Network> = (0..topology.len()).map(|_| Network::new().unwrap()).collect();
        for (from, to) in topology.links().filter(|(from, to)| from < to) {
            let [near, far] = [link(from, to), link(to, from)];
            lab::ip(&format!("link add {near} type veth peer name {far}")).unwrap();
            lab::ip(&format!("link set {near} netns {}", networks[from].thread())).unwrap();
            lab::ip(&format!("link set {far} netns {}", networks[to].thread())).unwrap();
        }
        Self {
            topology,
            authority: Authority::new("network"),
            networks,
            endpoints: BTreeMap::new(),
            agents: BTreeMap::new(),
            settings: BTreeMap::new(),
            recordings: BTreeMap::new(),
            clock,
            addresses,
            gateways: BTreeMap::new(),
        }
    }

    /// All in one subnet; switches are bridges with addresses.
    pub fn bridged(topology: Topology, stale_after: Duration, clock: Clock) -> Self {
        let address = |node| match topology.device(node) {
            Device::Host => Ipv4Addr::new(10, 4, 0, node as u8 + 1).into(),
            _ => Ipv4Addr::new(10, 4, 1, node as u8 + 1).into(),
        };
        let addresses = (0..topology.len()).map(address).collect();
        let mut world = Self::wired(topology, addresses, clock);
        for node in 0..world.topology.len() {
            let links = world.links(node);
            let address = format!("{}/16", world.address(node));
            if world.topology.device(node) == Device::Host {
                world.open_host(node, &address, None);
            } else {
                world.networks[node].run(move || {
                    lab::ip("link add name bridge0 type bridge mcast_snooping 0").unwrap();
                    lab::ip(&format!("addr add {address} dev bridge0")).unwrap();
                    lab::quiet("bridge0", 4200).unwrap();
                    for link in links {
                        lab::ip(&format!("link set {link} master bridge0")).unwrap();
                        lab::quiet(&link, 4200).unwrap();
                    }
                });
            }
        }
        for node in world.switches() {
            let next = |&next: &Node| {
                let agent = SocketAddr::new(world.address(next), PORT);
                (world.topology.device(next) == Device::Copies)
                    .then(|| format!("{}={agent}", link(node, next)))
            };
            let next = world.topology.neighbours(node).iter().filter_map(next).collect();
            let trusted =
                world.switches().into_iter().map(|node| world.topology.name(node).to_owned());
            let settings = Settings { next, trusted: trusted.collect(), stale_after };
            world.settings.insert(node, settings);
            world.start_agent(node);
        }
        world
    }

    /// Gives a host its address, and opens it.
    pub fn open_host(&mut self, node: Node, address: &str, gateway: Option<IpAddr>) {
        let (link, address, own) =
            (self.links(node).remove(0), address.to_owned(), self.address(node));
        self.gateways.extend(gateway.map(|gateway| (node, gateway)));
        let open = move || {
            lab::ip(&format!("addr add {address} dev {link}")).unwrap();
            lab::quiet(&link, 4200).unwrap();
            if let Some(gateway) = gateway {
                lab::ip(&format!("route add default via {gateway}")).unwrap();
            }
            Endpoint::open(&link, own).unwrap()
        };
        let endpoint = self.networks[node].run(open);
        self.endpoints.insert(node, endpoint);
    }

    pub fn links(&self, node: Node) -> Vec<String> {
        self.topology.neighbours(node).iter().map(|&next| link(node, next)).collect()
    }

    pub fn switches(&self) -> Vec<Node> {
        let copies = |&node: &Node| self.topology.device(node) == Device::Copies;
        (0..self.topology.len()).filter(copies).collect()
    }

    pub fn find(&self, name: &str) -> Node {
        self.topology.find(name).unwrap()
    }

    pub fn address(&self, node: Node) -> IpAddr {
        self.addresses[node]
    }

    pub fn configure(&mut self, node: Node, settings: Settings) {
        self.settings.insert(node, settings);
    }

    /// Agents of this switch that start later have this data plane.
    pub fn record(&mut self, node: Node, plane: Recording) {
        self.recordings.insert(node, plane);
    }

    fn directory(node: Node) -> PathBuf {
        format!(
            "/sys/fs/bpf/rdmc-test-control-{node}-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        )
        .replace(['(', ')'], "")
        .into()
    }

    /// Starts the agent of a switch, with the groups that a former one has left.
    pub fn start_agent(&mut self, node: Node) {
        let name = self.topology.name(node).to_owned();
        let (address, links, settings) =
            (self.address(node), self.links(node), self.settings[&node].clone());
        let files = self.authority.issue(&format!("{address},{name}"));
        let (directory, clock) = (Self::directory(node), self.clock.clone());
        let recording = self.recordings.get(&node).cloned();
        let (stop, stopped) = oneshot::channel();
        let thread = self.networks[node].run(move || {
            let listener = listen(SocketAddr::new(address, PORT));
            let certificates = certificates(files);
            let mut groups = match recording {
                Some(plane) => Groups::in_plane(Box::new(plane)).unwrap(),
                None => Groups::in_kernel(&directory).unwrap(),
            };
            if let Some(kernel) = groups.kernel() {
                links.iter().for_each(|link| kernel.attach(link).unwrap());
            }
            let port = |link: String| {
                let number = KernelPlane::port_number(&link).unwrap();
                (link, number)
            };
            let settings = AgentSettings {
                name,
                ports: links.into_iter().map(port).collect(),
                next: settings.next.iter().map(|next| next.parse().unwrap()).collect(),
                trusted: settings.trusted,
                stale_after: settings.stale_after,
                groups_per_host_max: GROUPS_PER_HOST_MAX,
                liveness: Liveness::default(),
            };
            std::thread::spawn(move || {
                runtime().block_on(async {
                    let plane = Plane::Kernel(Box::new(groups));
                    let prepared = agent::prepare(settings, plane, &certificates, clock).unwrap();
                    let stop = async { drop(stopped.await) };
                    agent::serve(prepared, listener, &certificates, stop).await
                })
            })
        });
        self.agents.insert(node, Running { stop, thread });
    }

    /// Ends the agent of a switch; what is in its kernel stays.
    pub fn stop_agent(&mut self, node: Node) {
        let Some(Running { stop, thread }) = self.agents.remove(&node) else { return };
        stop.send(()).unwrap();
        thread.join().unwrap().unwrap();
    }

    /// Asks the agent of a switch, as a host with this certificate.
    pub fn ask_as<T: Send + 'static>(
        &self,
        host: Node,
        files: Issued,
        switch: &str,
        ask: impl AsyncFnOnce(Agent) -> T + Send + 'static,
    ) -> T {
        let address = SocketAddr::new(self.address(self.find(switch)), PORT).to_string();
        self.networks[host].run(move || {
            let certificates = certificates(files);
            runtime().block_on(async { ask(Agent::new(&address, &certificates).unwrap()).await })
        })
    }

    /// Asks the agent of a switch, as a host.
    pub fn ask<T: Send + 'static>(
        &self,
        host: Node,
        switch: &str,
        ask: impl AsyncFnOnce(Agent) -> T + Send + 'static,
    ) -> T {
        let files = self.authority.issue(&self.address(host).to_string());
        self.ask_as(host, files, switch, ask)
    }

    /// Connects the queue pairs of a group that is not installed yet. Returns them, the sender's first.
    pub fn connect(&mut self, number: u32, names: &[&str]) -> (Group, Vec<(Node, u32)>) {
        let nodes: Vec<Node> = names.iter().map(|name| self.find(name)).collect();
        let (sender, members) = (nodes[0], &nodes[1..]);
        let psn_first = 0xff_fff0 + number;
        let (virtual_address, virtual_mac) = (self.address(members[0]), self.mac(members[0]));
        let key = GroupKey { sender: self.address(sender), id: 0x80_0000 + number };
        let sender_qpn = self.queue_pair(sender, virtual_address, key.id, psn_first, 0);
        let mut queue_pairs = vec![(sender, sender_qpn)];
        let mut group = Group {
            key,
            sender_mac: Some(self.mac(sender)),
            sender_qpn,
            psn_first: Serial::new(psn_first),
            virtual_address,
            virtual_mac,
            instance: key.id.into(),
            all_notifications: false,
            members: Vec::new(),
        };
        for &node in members {
            let qpn = self.queue_pair(node, key.sender, sender_qpn, 0, psn_first);
            let (address, mac) = (self.address(node), Some(self.mac(node)));
            let member = Member {
                address,
                mac,
                qpn,
                psn_offset: 0,
                regions: Vec::new(),
                delegation: Vec::new(),
            };
            group.members.push(member);
            queue_pairs.push((node, qpn));
        }
        (group, queue_pairs)
    }

    /// The same, with a flow of SENDs and WRITEs to memory of the members'.
    pub fn connect_writing(&mut self, number: u32, names: &[&str]) -> (Group, Flow) {
        let (mut group, queue_pairs) = self.connect(number, names);
        let (bytes, mut keys) = (flow::OPEN * flow::BYTES as u64, Vec::new());
        for (member, (node, _)) in group.members.iter_mut().zip(&queue_pairs[1..]) {
            let memory = self.endpoints.get_mut(node).unwrap().register(bytes as usize);
            let (start, member_start, member_key) = (flow::VIRTUAL_START, memory.start, memory.key);
            member.regions = vec![Region { start, bytes, member_start, member_key }];
            keys.push(memory.key);
        }
        (group, Flow::new(number.into(), queue_pairs).writing(keys))
    }

    fn queue_pair(&mut self, node: Node, peer: IpAddr, qpn: u32, send: u32, receive: u32) -> u32 {
        let config = RequesterConfig {
            timeout_ns: 50_000_000,
            retries: 2_000,
            ..RequesterConfig::default()
        };
        let next_hop = self.gateways.get(&node).copied();
        let endpoint = self.endpoints.get_mut(&node).unwrap();
        endpoint.queue_pair(Peer { address: peer, qpn, next_hop }, config, send, receive)
    }

    fn mac(&self, node: Node) -> Mac {
        self.endpoints[&node].mac()
    }

    /// The same group, to which all members agree for this long.
    pub fn signed_for(&self, group: &Group, lasts: Duration) -> Group {
        let mut group = group.clone();
        let proposal = group.proposal();
        for member in &mut group.members {
            let host = certificates(self.authority.issue(&member.address.to_string()));
            member.delegation = delegation::delegate(&host, &proposal, member, lasts).unwrap();
        }
        group
    }

    /// Inserts a group, to which all members agree, at the sender's first switch.
    pub fn insert(&self, group: &Group, switch: &str) -> Result<Claim, ControlError> {
        self.insert_signed(&self.signed_for(group, AGREED_FOR), switch)
    }

    /// Inserts a group as it is.
    pub fn insert_signed(&self, group: &Group, switch: &str) -> Result<Claim, ControlError> {
        let sender = self.addresses.iter().position(|known| *known == group.key.sender).unwrap();
        let claim = claim(group);
        let (group, inserted) = (group.clone(), claim.clone());
        let inserted = self.ask(sender, switch, async move |agent| {
            agent.insert(&group, &inserted, INSERT_TIMEOUT).await
        });
        inserted.map(|_| claim)
    }
}

/// Of the group's sender.
pub fn claim(group: &Group) -> Claim {
    Claim { key: group.key, caller: "sender".to_owned(), instance: group.instance }
}

impl Drop for World {
    fn drop(&mut self) {
        for node in self.switches() {
            self.stop_agent(node);
            let directory = Self::directory(node);
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// What these files hold.
pub fn certificates(issued: Issued) -> Certificates {
    let files = issued.into_files(|certificate, key, authorities| CertificateFiles {
        certificate,
        key,
        authorities,
    });
    Certificates::read(&files, &[]).unwrap()
}
