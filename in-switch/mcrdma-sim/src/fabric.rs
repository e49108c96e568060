//! Switches and links, with the clock and the events of the whole simulation. Hosts put packets on their links
//! themselves.

use mcrdma::{
    Decision, Port as PortNumber, Tables,
    plan::{Device, Node, Topology},
};
use roce::Headers;

use crate::{
    Config, PS_PER_NS,
    event::{Event, Events},
    packet::{Packet, chosen, node_of, patched},
    port::Port,
    random::Random,
    slab::Slab,
};

/// Packets that switches dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drops {
    /// The buffer was full.
    pub no_room: u64,
    /// No route.
    pub no_way: u64,
}

/// A switch's packet memory, which its ports share.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedBuffer {
    pub has_groups: bool,
    /// Of all packets in it; copies of a packet count once.
    used_bytes: u64,
}

/// A packet in a switch, until its last copy has left.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The ingress port.
    port: usize,
    bytes: u64,
    copies: usize,
}

/// Switches and links.
pub struct Fabric {
    pub topology: Topology,
    pub config: Config,
    pub now_ps: u64,
    pub events: Events,
    pub ports: Vec<Port>,
    /// By node: its ports.
    ports_of: Vec<Vec<usize>>,
    /// By node and target: equal-cost ports.
    routes: Vec<Vec<Vec<usize>>>,
    pub tables: Vec<Tables>,
    pub buffers: Vec<SharedBuffer>,
    pub packets: Slab<Packet>,
    held: Slab<Held>,
    pub random: Random,
    pub drops: Drops,
}

impl Fabric {
    /// Without packets; the time is 0.
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
            tables: (0..count).map(|_| Tables::default()).collect(),
            buffers: vec![SharedBuffer::default(); count],
            packets: Slab::new(),
            held: Slab::new(),
            random: Random::new(config.seed),
            drops: Drops::default(),
            topology,
            config,
        }
    }

    pub const fn now_ns(&self) -> u64 {
        self.now_ps / PS_PER_NS
    }

    pub fn is_host(&self, node: Node) -> bool {
        self.topology.device(node) == Device::Host
    }

    pub fn port(&self, from: Node, to: Node) -> Option<usize> {
        self.ports_of.get(from)?.iter().copied().find(|&port| self.ports[port].to == to)
    }

    /// The port of a host.
    pub fn uplink(&self, host: Node) -> Option<usize> {
        self.ports_of[host].first().copied()
    }

    /// Equal-cost ports to a target.
    fn ways(&self, from: Node, target: Node) -> &[usize] {
        self.routes[from].get(target).map_or(&[], |ports| ports)
    }

    /// Handles a packet that has arrived at a switch.
    pub fn forward(&mut self, port: usize, packet: u32) {
        let packet = self.packets.remove(packet);
        let (switch, bytes) = (self.ports[port].to, packet.wire_bytes());
        let out = self.decide(switch, port, &packet.headers, bytes);
        if out.is_empty() {
            return;
        }
        if self.buffers[switch].used_bytes + bytes > self.config.buffer_bytes {
            self.drops.no_room += 1;
            return;
        }
        self.buffers[switch].used_bytes += bytes;
        self.ports[port].held_bytes += bytes;
        let held = self.held.insert(Held { port, bytes, copies: out.len() });
        for (to, headers) in out {
            self.enqueue(to, Packet { headers, held, ..packet });
        }
        self.pause(port);
    }

    /// Egress ports of a packet, with the headers of each copy.
    fn decide(
        &mut self,
        switch: usize,
        port: usize,
        headers: &Headers,
        bytes: u64,
    ) -> Vec<(usize, Headers)> {
        let now_ns = self.now_ns();
        // Without groups the tables always decide so.
        let decision = if self.buffers[switch].has_groups {
            self.tables[switch].decide(now_ns, port as PortNumber, &[], headers, bytes, || true)
        } else {
            Decision::Pass
        };
        let one = match decision {
            Decision::Pass => *headers,
            Decision::Drop => return Vec::new(),
            Decision::Change(patch) => patched(*headers, &patch),
            Decision::Refuse(answer) => answer,
            Decision::Copy(replication) => {
                let copy = |branch: &mcrdma::Branch| {
                    let patch = branch.patch(headers)?;
                    Some((index(branch.port), patched(*headers, &patch)))
                };
                return replication.branches.iter().filter_map(copy).collect();
            }
        };
        self.route(switch, &one).map(|port| (port, one)).into_iter().collect()
    }

    fn route(&mut self, switch: usize, headers: &Headers) -> Option<usize> {
        let ways = node_of(headers.ip.target).map_or(&[][..], |target| self.ways(switch, target));
        let way = match ways {
            [] => None,
            [way] => Some(*way),
            ways => Some(ways[chosen(headers, switch, ways.len())]),
        };
        self.drops.no_way += u64::from(way.is_none());
        way
    }

    /// Enqueues a packet at a switch's port.
    fn enqueue(&mut self, at: usize, mut packet: Packet) {
        if packet.headers.bth.opcode.is_request() && self.marks(at, false) {
            packet.headers.ip.traffic_class |= 3;
        }
        let port = &mut self.ports[at];
        port.queue_bytes += packet.wire_bytes();
        port.queue.push_back(self.packets.insert(packet));
        self.transmit(at);
    }

    /// Whether a packet that comes to a port's queue, or leaves it, is marked by ECN.
    fn marks(&mut self, at: usize, is_leaving: bool) -> bool {
        let Some(ecn) = self.config.ecn.filter(|ecn| ecn.marks_leaving == is_leaving) else {
            return false;
        };
        let probability = self.ports[at].mark_probability(&ecn);
        probability > 0.0 && self.random.part() < probability
    }

    /// Sends the next packet of a switch's port now, or when it can.
    pub fn transmit(&mut self, at: usize) {
        if !self.is_ready(at) {
            return;
        }
        let Some(packet) = self.ports[at].queue.pop_front() else { return };
        let is_request = self.packets.get(packet).headers.bth.opcode.is_request();
        if is_request && self.marks(at, true) {
            self.packets.get_mut(packet).headers.ip.traffic_class |= 3;
        }
        self.release(at, packet);
        self.put_on_link(at, packet);
        if !self.ports[at].queue.is_empty() {
            self.schedule(at);
        }
    }

    /// Whether a port may send a packet now; if it is only busy, schedules it.
    pub fn is_ready(&mut self, at: usize) -> bool {
        let port = &self.ports[at];
        if port.is_paused || port.is_scheduled {
            return false;
        }
        let is_free = self.now_ps >= port.free_ps;
        if !is_free {
            self.schedule(at);
        }
        is_free
    }

    /// Schedules the port's next transmission.
    pub fn schedule(&mut self, at: usize) {
        let port = &mut self.ports[at];
        port.is_scheduled = true;
        self.events.push(port.free_ps, Event::Free { port: at });
    }

    /// A packet of [`Fabric::packets`] leaves by a port that is ready.
    pub fn put_on_link(&mut self, at: usize, packet: u32) {
        let Packet { headers, payload_bytes, .. } = *self.packets.get(packet);
        let bytes = self.packets.get(packet).wire_bytes();
        let port = &mut self.ports[at];
        port.free_ps = self.now_ps + port.wire_ps(bytes);
        port.counts.packets += 1;
        port.counts.bytes += bytes;
        port.counts.payload_bytes += u64::from(payload_bytes);
        let may_lose = port.loss > 0.0 && headers.bth.opcode.is_request();
        if may_lose && self.random.part() < port.loss {
            port.counts.lost += 1;
            self.packets.remove(packet);
            return;
        }
        self.events.push(port.free_ps + port.delay_ps(), Event::Arrive { port: at, packet });
    }

    /// Releases a packet's share of a switch's buffer.
    fn release(&mut self, at: usize, packet: u32) {
        let packet = self.packets.get(packet);
        let (number, switch) = (packet.held, self.ports[at].from);
        self.ports[at].queue_bytes -= packet.wire_bytes();
        let held = self.held.get_mut(number);
        held.copies -= 1;
        if held.copies > 0 {
            return;
        }
        let Held { port, bytes, .. } = self.held.remove(number);
        self.buffers[switch].used_bytes -= bytes;
        self.ports[port].held_bytes -= bytes;
        self.pause(port);
    }

    /// Sends a pause or a resume to a port, if due.
    fn pause(&mut self, at: usize) {
        let Some(pfc) = &self.config.pfc else { return };
        let port: &mut Port = &mut self.ports[at];
        if let Some(is_paused) = port.stop(pfc) {
            port.is_stopped = is_paused;
            port.counts.pauses += u64::from(is_paused);
            let event = Event::Pause { port: at, is_paused };
            self.events.push(self.now_ps + port.pause_ps(), event);
        }
    }
}

const fn index(port: PortNumber) -> usize {
    port as usize
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
