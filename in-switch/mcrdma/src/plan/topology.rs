//! Hosts, switches and links.

use std::collections::VecDeque;

/// Index of a node.
pub type Node = usize;

/// Kinds of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// Sends and receives, and forwards nothing.
    Host,
    /// A switch that can copy.
    Copies,
    /// A switch that cannot.
    Plain,
}

/// Hosts, switches, and the links between them, each of which goes both ways.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Topology {
    nodes: Vec<(String, Device)>,
    neighbours: Vec<Vec<Node>>,
}

impl Topology {
    /// Without nodes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node. Names should differ: [`Topology::find`] takes the first.
    pub fn add(&mut self, name: impl Into<String>, device: Device) -> Node {
        self.nodes.push((name.into(), device));
        self.neighbours.push(Vec::new());
        self.nodes.len() - 1
    }

    /// Adds a link between two nodes, unless there is one.
    pub fn link(&mut self, a: Node, b: Node) {
        for (from, to) in [(a, b), (b, a)] {
            if from != to && !self.neighbours[from].contains(&to) {
                self.neighbours[from].push(to);
                self.neighbours[from].sort_unstable();
            }
        }
    }

    /// Number of nodes: they are numbered from 0.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A node's name.
    #[must_use]
    pub fn name(&self, node: Node) -> &str {
        &self.nodes[node].0
    }

    /// A node's kind.
    #[must_use]
    pub fn device(&self, node: Node) -> Device {
        self.nodes[node].1
    }

    /// The node of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Node> {
        self.nodes.iter().position(|(known, _)| known == name)
    }

    /// A node's neighbours.
    #[must_use]
    pub fn neighbours(&self, node: Node) -> Vec<Node> {
        self.neighbours[node].clone()
    }

    /// All links, from each of their ends.
    pub fn links(&self) -> impl Iterator<Item = (Node, Node)> {
        let ends = self.neighbours.iter().enumerate();
        ends.flat_map(|(from, to)| to.iter().map(move |&to| (from, to)))
    }

    /// Each node's distance from a target, in links; `None` where there is no path. Hosts do not forward.
    #[must_use]
    pub fn distances(&self, target: Node) -> Vec<Option<usize>> {
        let mut distances = vec![None; self.len()];
        distances[target] = Some(0);
        let mut ahead = VecDeque::from([(target, 0)]);
        while let Some((node, distance)) = ahead.pop_front() {
            for &next in &self.neighbours[node] {
                if distances[next].is_none() {
                    distances[next] = Some(distance + 1);
                    if self.device(next) != Device::Host {
                        ahead.push_back((next, distance + 1));
                    }
                }
            }
        }
        distances
    }

    /// Racks of hosts behind one spine: hosts `a1`, `a2`, ..., switches `tor-a`, ..., `spine`.
    ///
    /// `spine`: whether the spine can copy, too. The paper's testbed (figure 3) is
    /// `racks(4, 2, Device::Plain)`.
    #[must_use]
    pub fn racks(racks: usize, hosts: usize, spine: Device) -> Self {
        let mut topology = Self::new();
        let spine = topology.add("spine", spine);
        for rack in 0..racks {
            let letter = rack_name(rack);
            let tor = topology.add(format!("tor-{letter}"), Device::Copies);
            topology.link(tor, spine);
            for host in 1..=hosts {
                let host = topology.add(format!("{letter}{host}"), Device::Host);
                topology.link(host, tor);
            }
        }
        topology
    }

    /// A fat tree of three layers of switches with `k` ports, `k` even, with `hosts` at each switch
    /// of the lowest: hosts `h0` on, switches `edge-P-I`, `aggregation-P-I` and `core-I`.
    ///
    /// `above`: whether the upper layers can copy, too.
    #[must_use]
    pub fn fat_tree(k: usize, hosts: usize, above: Device) -> Self {
        let half = k / 2;
        let mut topology = Self::new();
        let mut cores = Vec::new();
        for core in 0..half * half {
            cores.push(topology.add(format!("core-{core}"), above));
        }
        let mut count = 0;
        for pod in 0..k {
            let mut aggregations = Vec::new();
            for index in 0..half {
                let node = topology.add(format!("aggregation-{pod}-{index}"), above);
                for &core in &cores[index * half..(index + 1) * half] {
                    topology.link(node, core);
                }
                aggregations.push(node);
            }
            for index in 0..half {
                let edge = topology.add(format!("edge-{pod}-{index}"), Device::Copies);
                for &aggregation in &aggregations {
                    topology.link(edge, aggregation);
                }
                for _ in 0..hosts {
                    let host = topology.add(format!("h{count}"), Device::Host);
                    topology.link(host, edge);
                    count += 1;
                }
            }
        }
        topology
    }
}

/// a, b, ..., z, aa, ab, ...
fn rack_name(mut index: usize) -> String {
    let mut name = String::new();
    loop {
        name.insert(0, char::from(b'a' + (index % 26) as u8));
        if index < 26 {
            return name;
        }
        index = index / 26 - 1;
    }
}
