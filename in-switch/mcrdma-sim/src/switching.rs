//! Switches and links: what becomes of packets between hosts.

use mcrdma::{Decision, Port as PortNumber, plan::Device};
use roce::Headers;

use crate::{
    Network,
    event::Event,
    packet::{Packet, chosen, node_of, patched},
    port::Port,
};

/// A switch's memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub has_groups: bool,
    /// Of all packets in it, each once, however many copies there are.
    used_bytes: u64,
}

/// A packet in a switch, until its last copy has left.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The port whose link it came by.
    port: usize,
    bytes: u64,
    copies: usize,
}

impl Network {
    /// A packet has come to a switch.
    pub(crate) fn forward(&mut self, port: usize, packet: u32) {
        let packet = self.packets.remove(packet);
        let (switch, bytes) = (self.ports[port].to, packet.wire_bytes());
        let out = self.decide(switch, port, &packet.headers);
        if out.is_empty() {
            return;
        }
        if self.memories[switch].used_bytes + bytes > self.config.buffer_bytes {
            self.drops.no_room += 1;
            return;
        }
        self.memories[switch].used_bytes += bytes;
        self.ports[port].held_bytes += bytes;
        let held = self.held.insert(Held { port, bytes, copies: out.len() });
        for (to, headers) in out {
            self.enqueue(to, Packet { headers, held, ..packet });
        }
        self.pause(port);
    }

    /// Which ports a packet leaves by that came by this one, and as what.
    fn decide(&mut self, switch: usize, port: usize, headers: &Headers) -> Vec<(usize, Headers)> {
        let now_ns = self.now_ns();
        // Without groups the tables say nothing else.
        let decision = if self.memories[switch].has_groups {
            self.tables[switch].decide(now_ns, port as PortNumber, headers, || true)
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

    /// Puts a packet at the end of a switch's port's queue, and marks it if that is long.
    fn enqueue(&mut self, at: usize, mut packet: Packet) {
        let port = &mut self.ports[at];
        if packet.headers.bth.opcode.is_request()
            && let Some(ecn) = &self.config.ecn
        {
            let probability = port.mark_probability(ecn);
            if probability > 0.0 && self.random.part() < probability {
                packet.headers.ip.traffic_class |= 3;
            }
        }
        port.queue_bytes += packet.wire_bytes();
        port.queue.push_back(self.packets.insert(packet));
        self.transmit(at);
    }

    /// Sends a port's next packet, if it may; else it will, when it can.
    pub(crate) fn transmit(&mut self, at: usize) {
        let port = &mut self.ports[at];
        if port.is_paused || port.is_scheduled {
            return;
        }
        if self.now_ps < port.free_ps {
            return self.schedule(at);
        }
        let from = port.from;
        let is_host = self.topology.device(from) == Device::Host;
        let packet = if is_host { self.next_packet(from) } else { port.queue.pop_front() };
        let Some(packet) = packet else { return };
        if !is_host {
            self.release(at, packet);
        }
        self.put_on_link(at, packet);
        if is_host || !self.ports[at].queue.is_empty() {
            self.schedule(at);
        }
    }

    fn schedule(&mut self, at: usize) {
        let port = &mut self.ports[at];
        port.is_scheduled = true;
        self.events.push(port.free_ps, Event::Free { port: at });
    }

    fn put_on_link(&mut self, at: usize, packet: u32) {
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

    /// A packet leaves a switch's queue.
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
        self.memories[switch].used_bytes -= bytes;
        self.ports[port].held_bytes -= bytes;
        self.pause(port);
    }

    /// Stops who sends to this end of a port's link, or lets it go on.
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
