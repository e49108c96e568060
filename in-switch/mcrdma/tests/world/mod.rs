//! Hosts and switches in virtual time: real packets over links that lose, delay and reorder them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    net::IpAddr,
};

use mcrdma::{
    GroupKey, Region, Switch, Verdict,
    plan::{self, Device, Group, Member, Node, Topology},
};
use roce::{
    Aeth, Bth, ETHERNET_BYTES, Headers, IpHeader, Mac, Opcode, Packet, Serial,
    rc::{
        Arrival, Completion, Kind, MemoryRegion, Place, Requester, RequesterConfig, Responder, Work,
    },
};

pub const MTU_BYTES: u32 = 256;
/// Virtual address of the peer's memory, as each sender uses it.
pub const VIRTUAL_START: u64 = 0x10_0000;
const HOP_NS: u64 = 1000;

/// A host's end that sends to a group.
pub struct Sender {
    host: Node,
    qpn: u32,
    peer: (IpAddr, u32),
    pub requester: Requester,
    messages: Vec<Vec<u8>>,
    pub completions: Vec<Completion>,
}

/// A host's end that receives.
pub struct Receiver {
    host: Node,
    qpn: u32,
    peer: (IpAddr, u32),
    pub responder: Responder,
    /// By the receives' names.
    pub receives: Vec<Vec<u8>>,
    pub memory: Vec<u8>,
    memory_start: u64,
    pub arrivals: Vec<Arrival>,
    pub is_dead: bool,
}

type Event = Reverse<(u64, u64, Node, Node, Vec<u8>)>;

/// What links do to packets.
#[derive(Clone, Copy)]
pub struct Faults {
    /// Of a thousand packets, at each link.
    pub lost: u64,
    /// Up to this much later, so that packets overtake one another.
    pub late_ns: u64,
    /// Of a thousand packets, at each link, a bit is turned.
    pub damaged: u64,
    pub twice: u64,
}

pub const NO_FAULTS: Faults = Faults { lost: 0, late_ns: 0, damaged: 0, twice: 0 };

pub struct World {
    pub topology: Topology,
    pub switches: BTreeMap<Node, Switch>,
    pub senders: Vec<Sender>,
    pub receivers: Vec<Receiver>,
    is_v6: bool,
    faults: Faults,
    events: BinaryHeap<Event>,
    number: u64,
    random: u64,
    pub now_ns: u64,
    /// Packets by link and direction.
    pub crossed: BTreeMap<(Node, Node), u64>,
    pub packets: u64,
}

impl World {
    pub fn new(topology: Topology, is_v6: bool, faults: Faults, seed: u64) -> Self {
        let copies = (0..topology.len()).filter(|&node| topology.device(node) == Device::Copies);
        let switches = copies.map(|node| (node, Switch::new())).collect();
        Self {
            topology,
            switches,
            senders: Vec::new(),
            receivers: Vec::new(),
            is_v6,
            faults,
            events: BinaryHeap::new(),
            number: 0,
            random: seed,
            now_ns: 0,
            crossed: BTreeMap::new(),
            packets: 0,
        }
    }

    pub fn address(&self, node: Node) -> IpAddr {
        if self.is_v6 {
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, node as u16])
        } else {
            IpAddr::from([10, 0, (node >> 8) as u8, node as u8])
        }
    }

    fn virtual_address(&self, group: usize) -> IpAddr {
        if self.is_v6 {
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 1, group as u16])
        } else {
            IpAddr::from([10, 9, 0, group as u8])
        }
    }

    fn mac(node: Node) -> Mac {
        Mac([2, 0, 0, 0, (node >> 8) as u8, node as u8])
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (self.random >> 33) % below
    }

    /// Connects a group and inserts it into its switches; `config` is the sender's. Returns its number.
    pub fn group(&mut self, sender: Node, members: &[Node], config: RequesterConfig) -> usize {
        let number = self.senders.len();
        let virtual_address = self.virtual_address(number);
        let psn_first = Serial::new(self.random(1 << 24) as u32 | 0xff_ff00);
        let key = GroupKey { sender: self.address(sender), id: 0x80_0000 + number as u32 };
        let sender_qpn = 17 + number as u32;
        let mut group = Group {
            key,
            sender_mac: None,
            sender_qpn,
            psn_first,
            virtual_address,
            virtual_mac: Mac([2, 9, 9, 9, 9, number as u8]),
            instance: 0,
            all_notifications: false,
            members: Vec::new(),
        };
        for (place, &host) in members.iter().enumerate() {
            let (memory_start, member_key) =
                (0x7000_0000 + (host as u64) * 0x1_0000, 100 + host as u32);
            let psn_offset = self.random(1 << 24) as u32;
            let qpn = 17 + (number * 100 + place) as u32;
            let mut responder = Responder::new(MTU_BYTES, psn_first.plus(psn_offset), 1);
            let bytes = 1 << 16;
            responder.register(MemoryRegion { start: memory_start, bytes, key: member_key });
            self.receivers.push(Receiver {
                host,
                qpn,
                peer: (key.sender, sender_qpn),
                responder,
                receives: Vec::new(),
                memory: vec![0; bytes as usize],
                memory_start,
                arrivals: Vec::new(),
                is_dead: false,
            });
            let region =
                Region { start: VIRTUAL_START, bytes, member_start: memory_start, member_key };
            let address = self.address(host);
            group.members.push(Member {
                address,
                mac: None,
                qpn,
                psn_offset,
                regions: vec![region],
                delegation: Vec::new(),
            });
        }
        let tree = plan::plan(&self.topology, sender, members).unwrap();
        let random = self.random(1000) as usize;
        let hop = |_: Node, next: &[Node], _: &Member| {
            let chosen = next[random % next.len()];
            (chosen as u32, Self::mac(chosen))
        };
        for entry in plan::entries(&tree, &group, members, hop) {
            let tables = &mut self.switches.get_mut(&entry.switch).unwrap().tables;
            tables.insert(key, entry.replication, entry.merging).unwrap();
        }
        self.senders.push(Sender {
            host: sender,
            qpn: sender_qpn,
            peer: (virtual_address, key.id),
            requester: Requester::new(config, psn_first),
            messages: Vec::new(),
            completions: Vec::new(),
        });
        number
    }

    /// The switch and the key of a group.
    pub fn first_switch(&self, group: usize) -> (Node, GroupKey) {
        let sender = &self.senders[group];
        let key = GroupKey { sender: self.address(sender.host), id: sender.peer.1 };
        (self.topology.neighbours(sender.host)[0], key)
    }

    pub fn receivers_of(&mut self, group: usize) -> impl Iterator<Item = &mut Receiver> {
        let peer = (self.address(self.senders[group].host), self.senders[group].qpn);
        self.receivers.iter_mut().filter(move |receiver| receiver.peer == peer)
    }

    /// Sends a message to a group, and posts the receives that it takes.
    pub fn post(&mut self, group: usize, kind: Kind, message: Vec<u8>, immediate: Option<u32>) {
        let bytes = message.len() as u32;
        if kind == Kind::Send || immediate.is_some() {
            let room = if kind == Kind::Send { bytes } else { 0 };
            self.receivers_of(group).for_each(|receiver| receiver.post_receive(room));
        }
        let sender = &mut self.senders[group];
        let id = sender.messages.len() as u64;
        sender.messages.push(message);
        sender.requester.post(Work { id, kind, bytes, immediate }).unwrap();
    }

    /// Runs until all senders are idle, or the time is over. Whether they are.
    pub fn run(&mut self, limit_ns: u64) -> bool {
        while self.now_ns < limit_ns {
            (0..self.senders.len()).for_each(|index| self.send(index));
            if self.senders.iter().all(|sender| sender.requester.is_idle()) {
                return true;
            }
            let wakes = self.senders.iter().filter_map(|sender| sender.requester.wakes_ns()).min();
            let next = self.events.peek().map(|Reverse((at_ns, ..))| *at_ns);
            let Some(next_ns) = [wakes, next].into_iter().flatten().min() else {
                return false;
            };
            self.now_ns = self.now_ns.max(next_ns);
            while let Some(Reverse((at_ns, ..))) = self.events.peek()
                && *at_ns <= self.now_ns
                && let Some(Reverse((_, _, from, to, frame))) = self.events.pop()
            {
                self.arrive(from, to, frame);
            }
        }
        false
    }

    fn send(&mut self, index: usize) {
        while let Some(request) = self.senders[index].requester.send(self.now_ns) {
            let sender = &self.senders[index];
            let ip = IpHeader::new(self.address(sender.host), sender.peer.0).unwrap();
            let mut headers =
                Headers::new(ip, Bth::new(request.opcode, sender.peer.1, request.psn));
            headers.bth.ack_requested = request.ack_requested;
            (headers.reth, headers.immediate) = (request.reth, request.immediate);
            let bytes = request.offset as usize..(request.offset + request.bytes) as usize;
            let payload = &sender.messages[request.id as usize][bytes];
            let (host, frame) = (sender.host, frame(sender.host, &headers, payload));
            let switch = self.topology.neighbours(host)[0];
            self.cross(host, switch, &frame);
        }
        let sender = &mut self.senders[index];
        while let Some(completion) = sender.requester.completed() {
            sender.completions.push(completion);
        }
    }

    /// Puts a frame on a link.
    pub fn cross(&mut self, from: Node, to: Node, frame: &[u8]) {
        self.packets += 1;
        *self.crossed.entry((from, to)).or_default() += 1;
        let faults = self.faults;
        if self.random(1000) < faults.lost {
            return;
        }
        let mut frame = frame.to_vec();
        if self.random(1000) < faults.damaged {
            // A damaged Ethernet header would not be forwarded.
            let at = ETHERNET_BYTES + self.random((frame.len() - ETHERNET_BYTES) as u64) as usize;
            frame[at] ^= 1 << self.random(8);
        }
        let copies = if self.random(1000) < faults.twice { 2 } else { 1 };
        for _ in 0..copies {
            let late_ns = self.random(faults.late_ns + 1);
            self.number += 1;
            let event = (self.now_ns + HOP_NS + late_ns, self.number, from, to, frame.clone());
            self.events.push(Reverse(event));
        }
    }

    fn arrive(&mut self, from: Node, at: Node, mut frame: Vec<u8>) {
        if self.topology.device(at) == Device::Host {
            return self.receive(at, &frame);
        }
        let mut out = Vec::new();
        let verdict = match self.switches.get_mut(&at) {
            Some(switch) => switch.handle(self.now_ns, from as u32, &mut frame, |port, copy| {
                out.push((port as Node, copy.concat()));
                true
            }),
            None => Verdict::Pass,
        };
        match verdict {
            Verdict::Pass => out.extend(self.route(at, &frame).map(|next| (next, frame))),
            Verdict::Reflect => out.push((from, frame)),
            Verdict::Drop => {}
        }
        for (to, frame) in out {
            self.cross(at, to, &frame);
        }
    }

    /// A neighbour that is nearer to where the packet goes, if that is a host.
    fn route(&mut self, at: Node, frame: &[u8]) -> Option<Node> {
        let target = Packet::parse(&frame[ETHERNET_BYTES..]).ok()?.headers.ip.target;
        let host = (0..self.topology.len()).find(|&node| {
            self.topology.device(node) == Device::Host && self.address(node) == target
        })?;
        let next = towards(&self.topology, at, host);
        let chosen = self.random(next.len() as u64) as usize;
        Some(next[chosen])
    }

    fn receive(&mut self, host: Node, frame: &[u8]) {
        let Ok(packet) = Packet::parse(&frame[ETHERNET_BYTES..]) else { return };
        let headers = packet.headers;
        if !packet.is_intact() || headers.ip.target != self.address(host) {
            return;
        }
        let (peer, qpn, now_ns) = (headers.ip.source, headers.bth.target_qpn, self.now_ns);
        if let Some(aeth) = headers.aeth {
            let ours = |sender: &&mut Sender| sender.host == host && sender.qpn == qpn;
            if let Some(sender) = self.senders.iter_mut().find(ours) {
                assert_eq!(peer, sender.peer.0, "answers come from the peer that was configured");
                sender.requester.answered(now_ns, headers.bth.psn, aeth);
            }
            return;
        }
        let ours = |receiver: &&mut Receiver| receiver.host == host && receiver.qpn == qpn;
        let Some(receiver) = self.receivers.iter_mut().find(ours) else {
            panic!("a packet for nobody: {headers:?}");
        };
        if receiver.is_dead {
            return;
        }
        assert_eq!(peer, receiver.peer.0, "requests come from the peer that was configured");
        if let Some((psn, aeth)) = receiver.take(&headers, packet.payload) {
            self.answer(host, headers.ip.source, psn, aeth, qpn);
        }
    }

    fn answer(&mut self, host: Node, peer: IpAddr, psn: Serial, aeth: Aeth, qpn: u32) {
        let ours = |receiver: &&Receiver| receiver.host == host && receiver.qpn == qpn;
        let peer_qpn = self.receivers.iter().find(ours).unwrap().peer.1;
        let ip = IpHeader::new(self.address(host), peer).unwrap();
        let mut headers = Headers::new(ip, Bth::new(Opcode::Acknowledge, peer_qpn, psn));
        headers.aeth = Some(aeth);
        let switch = self.topology.neighbours(host)[0];
        self.cross(host, switch, &frame(host, &headers, &[]));
    }
}

impl Receiver {
    pub fn post_receive(&mut self, bytes: u32) {
        self.responder.post_receive(self.receives.len() as u64, bytes);
        self.receives.push(vec![0; bytes as usize]);
    }

    fn take(&mut self, headers: &Headers, payload: &[u8]) -> Option<(Serial, Aeth)> {
        let reaction = self.responder.receive(headers, payload.len() as u32);
        let into = match reaction.place {
            Some(Place::Receive { id, offset }) => {
                Some(&mut self.receives[id as usize][offset as usize..])
            }
            Some(Place::Memory { address }) => {
                Some(&mut self.memory[(address - self.memory_start) as usize..])
            }
            None => None,
        };
        if let Some(into) = into {
            into[..payload.len()].copy_from_slice(payload);
        }
        self.arrivals.extend(reaction.arrival);
        reaction.answer
    }
}

fn frame(host: Node, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_BYTES + headers.packet_bytes(payload.len())];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&World::mac(host).0);
    let kind: [u8; 2] = if headers.ip.source.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
    frame[12..14].copy_from_slice(&kind);
    headers.write(payload, &mut frame[ETHERNET_BYTES..]).unwrap();
    frame
}

fn towards(topology: &Topology, at: Node, host: Node) -> Vec<Node> {
    let distances = topology.distances(host);
    let nearer = |&node: &Node| distances[node] < distances[at] && distances[node].is_some();
    topology.neighbours(at).into_iter().filter(nearer).collect()
}
