//! One simulation: topology, connections and clock.

use mcrdma::{
    GroupKey,
    plan::{self, Group, Member, Node, Topology},
};
use roce::{Mac, Serial};

use crate::{
    Config, Drops, NoGroup, Pair, PairCounts, PortCounts,
    event::Event,
    fabric::Fabric,
    hosts::{Hosts, Incoming, RECEIVER_QPN, SENDER_QPN},
    packet::{address, mixed, virtual_address},
};

/// An event for the caller of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The sender's program has polled a message's completion.
    Completed {
        /// Where it was posted.
        pair: Pair,
        /// The caller's token.
        token: u64,
        /// Whether all receivers have it.
        is_done: bool,
    },
    /// The receiver's program has polled a message's completion.
    Arrived {
        /// Where it was posted.
        pair: Pair,
        /// Which of the receivers, from 0 on.
        member: usize,
        /// The caller's token.
        token: u64,
    },
    /// The time of [`Network::at`] has come.
    Timer {
        /// The caller's token.
        token: u64,
    },
}

/// A simulated network.
pub struct Network {
    fabric: Fabric,
    hosts: Hosts,
    groups: usize,
}

/// Identifiers of groups begin here.
const GROUP_QPN: u32 = 0x80_0000;

impl Network {
    /// Without connections, at time 0.
    #[must_use]
    pub fn new(topology: Topology, config: Config) -> Self {
        let hosts = Hosts::new(topology.len(), config.dcqcn);
        Self { fabric: Fabric::new(topology, config), hosts, groups: 0 }
    }

    /// The time, in picoseconds.
    #[must_use]
    pub const fn now_ps(&self) -> u64 {
        self.fabric.now_ps
    }

    /// Its topology.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.fabric.topology
    }

    /// Packets that switches dropped.
    #[must_use]
    pub const fn drops(&self) -> Drops {
        self.fabric.drops
    }

    /// What a link has carried from one node to the next; nothing where there is no link.
    #[must_use]
    pub fn carried(&self, from: Node, to: Node) -> PortCounts {
        self.fabric
            .port(from, to)
            .map_or_else(PortCounts::default, |port| self.fabric.ports[port].counts)
    }

    /// Requests are lost with this probability on the link from one node to the next. Whether there
    /// is such a link.
    pub fn lose(&mut self, from: Node, to: Node, probability: f64) -> bool {
        let port = self.fabric.port(from, to);
        port.map(|port| self.fabric.ports[port].loss = probability).is_some()
    }

    /// What a pair has transferred.
    #[must_use]
    pub fn transferred(&self, pair: Pair) -> PairCounts {
        let outgoing = &self.hosts.outgoing[pair];
        let members = &self.hosts.incoming[outgoing.incoming.clone()];
        let bytes = members.iter().map(|incoming| incoming.bytes).min().unwrap_or(0);
        PairCounts { bytes, repeated: outgoing.repeated, notifications: outgoing.notifications }
    }

    /// A pair's current rate limit, in bits per second.
    #[must_use]
    pub fn bits_per_s(&self, pair: Pair) -> f64 {
        let limit = self.hosts.outgoing[pair].bits_per_s();
        limit.unwrap_or(self.fabric.config.host_link.bits_per_s as f64)
    }

    /// Connects two hosts.
    pub fn connect(&mut self, from: Node, to: Node) -> Pair {
        let pair = self.hosts.outgoing.len();
        let psn_first = Serial::new(self.fabric.random.serial());
        let qpn = RECEIVER_QPN + self.hosts.incoming.len() as u32;
        self.hosts.add_outgoing(
            self.fabric.config.requester,
            from,
            (address(to), qpn),
            psn_first,
            1,
        );
        self.hosts.add_incoming(self.fabric.config.requester.mtu_bytes, pair, 0, to, psn_first);
        pair
    }

    /// Connects a host to several, as a group for which switches copy.
    ///
    /// Errors: switches cannot copy for it.
    pub fn connect_group(&mut self, from: Node, to: &[Node]) -> Result<Pair, NoGroup> {
        let tree = plan::plan(&self.fabric.topology, from, to)?;
        let pair = self.hosts.outgoing.len();
        let psn_first = Serial::new(self.fabric.random.serial());
        let group = self.describe(pair, from, to, psn_first);
        let random = mixed(mixed(self.fabric.config.seed) ^ self.groups as u64) as usize;
        let hop = |switch: Node, next: &[Node], _: &Member| {
            let chosen = next[(random ^ switch) % next.len()];
            // The port's index stands for an interface's.
            (self.fabric.port(switch, chosen).map_or(u32::MAX, |port| port as u32), Mac([0; 6]))
        };
        for entry in plan::entries(&tree, &group, to, hop) {
            self.fabric.tables[entry.switch].insert(group.key, entry.replication, entry.merging)?;
            self.fabric.buffers[entry.switch].has_groups = true;
        }
        self.groups += 1;
        self.hosts.add_outgoing(
            self.fabric.config.requester,
            from,
            (group.virtual_address, group.key.id),
            psn_first,
            to.len(),
        );
        for (member, &host) in to.iter().enumerate() {
            let psn_first = psn_first.plus(group.members[member].psn_offset);
            self.hosts.add_incoming(
                self.fabric.config.requester.mtu_bytes,
                pair,
                member,
                host,
                psn_first,
            );
        }
        Ok(pair)
    }

    /// A group as it is installed in switches, before its queue pairs are made.
    fn describe(&mut self, pair: Pair, from: Node, to: &[Node], psn_first: Serial) -> Group {
        let qpn = RECEIVER_QPN + self.hosts.incoming.len() as u32;
        let members = to.iter().zip(qpn..).map(|(&host, qpn)| {
            let psn_offset = self.fabric.random.serial();
            let regions = Vec::new();
            Member {
                address: address(host),
                mac: None,
                qpn,
                psn_offset,
                regions,
                delegation: Vec::new(),
            }
        });
        let members = members.collect();
        Group {
            key: GroupKey { sender: address(from), id: GROUP_QPN + self.groups as u32 },
            sender_mac: None,
            sender_qpn: SENDER_QPN + pair as u32,
            psn_first,
            virtual_address: virtual_address(self.groups),
            virtual_mac: Mac([0; 6]),
            instance: 0,
            all_notifications: self.fabric.config.all_notifications,
            members,
        }
    }

    /// Sends a message of at most 2^31 bytes; its receivers have posted a receive for it. `token` is
    /// in its notices.
    pub fn post(&mut self, pair: Pair, bytes: u32, token: u64) {
        self.hosts.post(&mut self.fabric, pair, bytes, token);
    }

    /// Sets a timer: a [`Notice::Timer`] at this time, or now if that has passed.
    pub fn at(&mut self, at_ps: u64, token: u64) {
        self.fabric.events.push(at_ps.max(self.fabric.now_ps), Event::Timer { token });
    }

    /// Runs until the next notice. `None`: there is none until `limit_ps`, which is the time now.
    pub fn next(&mut self, limit_ps: u64) -> Option<Notice> {
        while let Some((at_ps, event)) = self.fabric.events.pop(limit_ps) {
            self.fabric.now_ps = at_ps;
            if let Some(notice) = self.handle(event) {
                return Some(notice);
            }
        }
        self.fabric.now_ps = self.fabric.now_ps.max(limit_ps);
        None
    }

    fn handle(&mut self, event: Event) -> Option<Notice> {
        match event {
            Event::Arrive { port, packet } => self.arrive(port, packet),
            Event::Free { port } => {
                self.fabric.ports[port].is_scheduled = false;
                self.transmit(port);
            }
            Event::Pause { port, is_paused } => {
                self.fabric.ports[port].is_paused = is_paused;
                self.transmit(port);
            }
            Event::Wake { host } => self.hosts.wake(&mut self.fabric, host),
            Event::Posted { pair, bytes, token } => {
                self.hosts.posted(&mut self.fabric, pair, bytes, token);
            }
            Event::Completed { pair, token, is_done } => {
                return Some(Notice::Completed { pair, token, is_done });
            }
            Event::Arrived { incoming, token } => {
                let Incoming { pair, member, .. } = self.hosts.incoming[incoming];
                return Some(Notice::Arrived { pair, member, token });
            }
            Event::Timer { token } => return Some(Notice::Timer { token }),
        }
        None
    }

    /// Sends if the port can, after a change of its state.
    fn transmit(&mut self, port: usize) {
        let from = self.fabric.ports[port].from;
        if self.fabric.is_host(from) {
            self.hosts.send(&mut self.fabric, from);
        } else {
            self.fabric.transmit(port);
        }
    }

    fn arrive(&mut self, port: usize, packet: u32) {
        let node = self.fabric.ports[port].to;
        if self.fabric.is_host(node) {
            let packet = self.fabric.packets.remove(packet);
            self.hosts.receive(&mut self.fabric, node, &packet);
        } else {
            self.fabric.forward(port, packet);
        }
    }
}
