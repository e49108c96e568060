//! One simulation: what there is, how it is connected, and its clock.

use mcrdma::{
    GroupKey, Tables,
    plan::{self, Device, Group, Member, Node, Topology},
};
use roce::{
    Mac, Serial,
    rc::{Requester, Responder},
};

use crate::{
    Config, NoGroup, PS_PER_NS,
    cpu::Cpu,
    event::{Event, Events},
    nic::{Card, Incoming, Outgoing},
    packet::{Packet, address, mixed, virtual_address},
    port::Port,
    random::Random,
    slab::Slab,
    switching::{Held, Memory},
};

/// A sending queue pair, with the queue pairs that it sends to.
pub type Pair = usize;

/// What has happened that whoever drives a simulation may want to react to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A message has ended, and the sender's program knows.
    Completed {
        /// Where it was posted.
        pair: Pair,
        /// The caller's name for it.
        token: u64,
        /// All receivers have it.
        is_done: bool,
    },
    /// A message has come, and the receiver's program knows.
    Arrived {
        /// Where it was posted.
        pair: Pair,
        /// Which of the receivers, from 0 on.
        member: usize,
        /// The caller's name for it.
        token: u64,
    },
    /// The time of [`Network::at`] has come.
    Timer {
        /// The caller's name for it.
        token: u64,
    },
}

/// What a link has carried in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounts {
    /// Packets, those that were lost included.
    pub packets: u64,
    /// Their bytes, with all headers, preamble and gap.
    pub bytes: u64,
    /// Their payload.
    pub payload_bytes: u64,
    /// Packets that were lost on it.
    pub lost: u64,
    /// How often its sender was stopped.
    pub pauses: u64,
}

/// What a pair's members have received in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PairCounts {
    /// By the member that has least, in bytes of payload.
    pub bytes: u64,
    /// Packets that were sent more than once.
    pub repeated: u64,
    /// Congestion notifications that came to the sender.
    pub notifications: u64,
}

/// Packets that switches dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drops {
    /// For want of memory.
    pub no_room: u64,
    /// For want of a way.
    pub no_way: u64,
}

/// A simulated network.
pub struct Network {
    pub(crate) topology: Topology,
    pub(crate) config: Config,
    pub(crate) now_ps: u64,
    pub(crate) events: Events,
    pub(crate) ports: Vec<Port>,
    /// By node: its ports.
    ports_of: Vec<Vec<usize>>,
    /// By node and target: ports that lead nearer to it.
    routes: Vec<Vec<Vec<usize>>>,
    pub(crate) cards: Vec<Card>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) tables: Vec<Tables>,
    pub(crate) memories: Vec<Memory>,
    pub(crate) packets: Slab<Packet>,
    pub(crate) held: Slab<Held>,
    pub(crate) outgoing: Vec<Outgoing>,
    pub(crate) incoming: Vec<Incoming>,
    pub(crate) random: Random,
    pub(crate) drops: Drops,
    groups: usize,
}

/// Numbers of sending queue pairs begin here, those of receiving ones and of groups further on.
pub(crate) const SENDER_QPN: u32 = 0x00_0100;
pub(crate) const RECEIVER_QPN: u32 = 0x40_0000;
const GROUP_QPN: u32 = 0x80_0000;

impl Network {
    /// Nobody is connected, and the time is 0.
    #[must_use]
    pub fn new(topology: Topology, config: Config) -> Self {
        let count = topology.len();
        let is_host = |node: Node| topology.device(node) == Device::Host;
        let mut ports_of = vec![Vec::new(); count];
        let mut ports = Vec::new();
        for (from, to) in topology.links() {
            let is_access = is_host(from) || is_host(to);
            let link = if is_access { config.host_link } else { config.switch_link };
            ports_of[from].push(ports.len());
            ports.push(Port::new(from, to, link));
        }
        let routes = routes(&topology, &ports, &ports_of);
        Self {
            now_ps: 0,
            events: Events::default(),
            ports,
            ports_of,
            routes,
            cards: vec![Card::default(); count],
            cpus: vec![Cpu::default(); count],
            tables: (0..count).map(|_| Tables::default()).collect(),
            memories: vec![Memory::default(); count],
            packets: Slab::new(),
            held: Slab::new(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            random: Random::new(config.seed),
            drops: Drops::default(),
            groups: 0,
            topology,
            config,
        }
    }

    /// The time, in picoseconds.
    #[must_use]
    pub const fn now_ps(&self) -> u64 {
        self.now_ps
    }

    pub(crate) const fn now_ns(&self) -> u64 {
        self.now_ps / PS_PER_NS
    }

    /// What it is made of.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Packets that switches dropped.
    #[must_use]
    pub const fn drops(&self) -> Drops {
        self.drops
    }

    /// What a link has carried from one node to the next; nothing where there is no link.
    #[must_use]
    pub fn carried(&self, from: Node, to: Node) -> PortCounts {
        self.port(from, to).map_or_else(PortCounts::default, |port| self.ports[port].counts)
    }

    /// Requests are lost with this probability on the link from one node to the next. Whether there
    /// is such a link.
    pub fn lose(&mut self, from: Node, to: Node, probability: f64) -> bool {
        let port = self.port(from, to);
        port.map(|port| self.ports[port].loss = probability).is_some()
    }

    /// What a pair has transferred.
    #[must_use]
    pub fn transferred(&self, pair: Pair) -> PairCounts {
        let outgoing = &self.outgoing[pair];
        let members = &self.incoming[outgoing.incoming.clone()];
        let bytes = members.iter().map(|incoming| incoming.bytes).min().unwrap_or(0);
        PairCounts { bytes, repeated: outgoing.repeated, notifications: outgoing.notifications }
    }

    /// How fast a pair may send, in bits per second.
    #[must_use]
    pub fn bits_per_s(&self, pair: Pair) -> f64 {
        let limit = self.outgoing[pair].requester.bits_per_s();
        limit.unwrap_or(self.config.host_link.bits_per_s as f64)
    }

    fn port(&self, from: Node, to: Node) -> Option<usize> {
        self.ports_of.get(from)?.iter().copied().find(|&port| self.ports[port].to == to)
    }

    /// The port of a host.
    pub(crate) fn uplink(&self, host: Node) -> Option<usize> {
        self.ports_of[host].first().copied()
    }

    /// Ports that lead nearer to a target.
    pub(crate) fn ways(&self, from: Node, target: Node) -> &[usize] {
        self.routes[from].get(target).map_or(&[], |ports| ports)
    }

    /// Connects two hosts.
    pub fn connect(&mut self, from: Node, to: Node) -> Pair {
        let pair = self.outgoing.len();
        let psn_first = Serial::new(self.random.serial());
        let qpn = RECEIVER_QPN + self.incoming.len() as u32;
        self.add_outgoing(from, (address(to), qpn), psn_first, 1);
        self.add_incoming(pair, 0, to, psn_first);
        pair
    }

    /// Connects a host to several, as a group that switches serve.
    ///
    /// Errors: they cannot.
    pub fn connect_group(&mut self, from: Node, to: &[Node]) -> Result<Pair, NoGroup> {
        let tree = plan::plan(&self.topology, from, to)?;
        let pair = self.outgoing.len();
        let psn_first = Serial::new(self.random.serial());
        let group = self.describe(pair, from, to, psn_first);
        let random = mixed(self.groups as u64) as usize;
        let hop = |switch: Node, next: &[Node], _: &Member| {
            let chosen = next[(random ^ switch) % next.len()];
            // In place of an interface's number, that of the port.
            (self.port(switch, chosen).map_or(u32::MAX, |port| port as u32), Mac([0; 6]))
        };
        for entry in tree.entries(&group, to, hop) {
            self.tables[entry.switch].insert(group.key, entry.replication, entry.merging)?;
            self.memories[entry.switch].has_groups = true;
        }
        self.groups += 1;
        self.add_outgoing(from, (group.virtual_address, group.key.id), psn_first, to.len());
        for (member, &host) in to.iter().enumerate() {
            let psn_first = psn_first.plus(group.members[member].psn_offset);
            self.add_incoming(pair, member, host, psn_first);
        }
        Ok(pair)
    }

    /// What switches are told of a group whose queue pairs come next.
    fn describe(&mut self, pair: Pair, from: Node, to: &[Node], psn_first: Serial) -> Group {
        let qpn = RECEIVER_QPN + self.incoming.len() as u32;
        let members = to.iter().zip(qpn..).map(|(&host, qpn)| {
            let psn_offset = self.random.serial();
            Member { address: address(host), mac: None, qpn, psn_offset, regions: Vec::new() }
        });
        let members = members.collect();
        Group {
            key: GroupKey { sender: address(from), id: GROUP_QPN + self.groups as u32 },
            sender_mac: None,
            sender_qpn: SENDER_QPN + pair as u32,
            psn_first,
            virtual_address: virtual_address(self.groups),
            virtual_mac: Mac([0; 6]),
            proof: Vec::new(),
            all_notifications: self.config.all_notifications,
            members,
        }
    }

    fn add_outgoing(
        &mut self,
        host: Node,
        peer: (std::net::IpAddr, u32),
        psn_first: Serial,
        members: usize,
    ) {
        let incoming = self.incoming.len()..self.incoming.len() + members;
        let requester = Requester::new(self.config.requester, psn_first);
        self.outgoing.push(Outgoing {
            host,
            peer,
            requester,
            is_active: false,
            wakes_ns: u64::MAX,
            incoming,
            repeated: 0,
            notifications: 0,
        });
    }

    fn add_incoming(&mut self, pair: Pair, member: usize, host: Node, psn_first: Serial) {
        let mtu_bytes = self.config.requester.mtu_bytes;
        let peer = (address(self.outgoing[pair].host), SENDER_QPN + pair as u32);
        let responder = Responder::new(mtu_bytes, psn_first, 1);
        self.incoming.push(Incoming { host, peer, responder, pair, member, bytes: 0 });
    }

    /// Sends a message of at most 2^31 bytes; its receivers have posted a receive for it. `token` is
    /// told with what becomes of it.
    pub fn post(&mut self, pair: Pair, bytes: u32, token: u64) {
        let outgoing = &self.outgoing[pair];
        let (host, members) = (outgoing.host, outgoing.incoming.clone());
        for incoming in &mut self.incoming[members] {
            incoming.responder.post_receive(token, bytes);
        }
        let cost_ps = self.config.costs.post_ns * PS_PER_NS;
        let at_ps = self.cpus[host].post(self.now_ps, cost_ps);
        self.events.push(at_ps, Event::Posted { pair, bytes, token });
    }

    /// A [`Notice::Timer`] comes at this time, or now if that is over.
    pub fn at(&mut self, at_ps: u64, token: u64) {
        self.events.push(at_ps.max(self.now_ps), Event::Timer { token });
    }

    /// Runs until something has happened that may matter to the caller. `None`: nothing did until
    /// this time, which it is now.
    pub fn next(&mut self, limit_ps: u64) -> Option<Notice> {
        while let Some((at_ps, event)) = self.events.pop(limit_ps) {
            self.now_ps = at_ps;
            if let Some(notice) = self.handle(event) {
                return Some(notice);
            }
        }
        self.now_ps = self.now_ps.max(limit_ps);
        None
    }

    fn handle(&mut self, event: Event) -> Option<Notice> {
        match event {
            Event::Arrive { port, packet } => self.arrive(port, packet),
            Event::Free { port } => {
                self.ports[port].is_scheduled = false;
                self.transmit(port);
            }
            Event::Pause { port, is_paused } => {
                self.ports[port].is_paused = is_paused;
                self.transmit(port);
            }
            Event::Wake { host } => self.wake(host),
            Event::Posted { pair, bytes, token } => self.posted(pair, bytes, token),
            Event::Completed { pair, token, is_done } => {
                return Some(Notice::Completed { pair, token, is_done });
            }
            Event::Arrived { incoming, token } => {
                let Incoming { pair, member, .. } = self.incoming[incoming];
                return Some(Notice::Arrived { pair, member, token });
            }
            Event::Timer { token } => return Some(Notice::Timer { token }),
        }
        None
    }

    fn arrive(&mut self, port: usize, packet: u32) {
        let node = self.ports[port].to;
        if self.topology.device(node) == Device::Host {
            let packet = self.packets.remove(packet);
            self.receive(node, &packet);
        } else {
            self.forward(port, packet);
        }
    }
}

fn routes(topology: &Topology, ports: &[Port], ports_of: &[Vec<usize>]) -> Vec<Vec<Vec<usize>>> {
    let mut routes = vec![vec![Vec::new(); topology.len()]; topology.len()];
    let hosts = (0..topology.len()).filter(|&node| topology.device(node) == Device::Host);
    for target in hosts {
        let distances = topology.distances(target);
        for (from, ports_of) in ports_of.iter().enumerate() {
            let nearer = |port: &&usize| match (distances[ports[**port].to], distances[from]) {
                (Some(there), Some(here)) => there < here,
                _ => false,
            };
            routes[from][target] = ports_of.iter().filter(nearer).copied().collect();
        }
    }
    routes
}
