//! Trees of 54 hosts: clients, and stores with their links.

use mcrdma::plan::{Device, Node, Topology};
use serde::Serialize;

use crate::Network;

pub const CLIENTS: usize = 27;
pub const STORES: usize = 27;
pub const STORES_OF_POD: usize = 9;
const PODS: usize = 6;
/// Links from a lowest switch to those above.
const UPLINKS: usize = 3;

/// How many hosts share a lowest switch, which has three links up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// A fat tree with k = 6: three switches of three hosts in a pod, and as much bandwidth at each
    /// layer.
    ThreePerEdge,
    /// "Each ToR switch connects 9 servers" (section VII-E): one switch of nine hosts in a pod, with a third of
    /// the bandwidth above.
    NinePerEdge,
}

impl Layout {
    /// As in commands and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ThreePerEdge => "three-per-edge",
            Self::NinePerEdge => "nine-per-edge",
        }
    }

    /// Links up / links down of a lowest switch.
    pub const fn uplinks_per_host(self) -> f64 {
        match self {
            Self::ThreePerEdge => 1.0,
            Self::NinePerEdge => UPLINKS as f64 / STORES_OF_POD as f64,
        }
    }

    /// Hosts of the first three pods are clients. `above`: whether switches above the lowest can copy.
    pub fn topology(self, above: Device) -> Topology {
        if self == Self::ThreePerEdge {
            return Topology::fat_tree(PODS, STORES_OF_POD / 3, above);
        }
        let mut topology = Topology::new();
        let cores: Vec<Node> = (0..UPLINKS * UPLINKS)
            .map(|core| topology.add(format!("core-{core}"), above))
            .collect();
        for pod in 0..PODS {
            let edge = topology.add(format!("edge-{pod}"), Device::Copies);
            for (index, cores) in cores.chunks(UPLINKS).enumerate() {
                let aggregation = topology.add(format!("aggregation-{pod}-{index}"), above);
                topology.link(edge, aggregation);
                cores.iter().for_each(|&core| topology.link(aggregation, core));
            }
            for host in 0..STORES_OF_POD {
                let host = topology.add(format!("h{}", pod * STORES_OF_POD + host), Device::Host);
                topology.link(host, edge);
            }
        }
        topology
    }
}

/// The hosts that keep copies of what this store is the first to get, in each of the two other pods. In
/// each group each store has two others' data.
pub fn members(store: usize, group: usize) -> [usize; 2] {
    [1, 2].map(|pods| {
        let pod = (store / STORES_OF_POD + pods) % (STORES / STORES_OF_POD);
        pod * STORES_OF_POD + (store + group * pods) % STORES_OF_POD
    })
}

/// The links on the stores' side, by layer and direction.
#[derive(Default)]
pub struct Links([Vec<(Node, Node)>; 4]);

impl Links {
    pub fn new(topology: &Topology, stores: &[Node]) -> Self {
        let mut links = Self::default();
        for &store in stores {
            let edge = topology.neighbours(store)[0];
            let neighbours = topology.neighbours(edge).into_iter();
            for above in neighbours.filter(|&node| topology.device(node) != Device::Host) {
                if !links.0[1].contains(&(edge, above)) {
                    links.0[1].push((edge, above));
                    links.0[2].push((above, edge));
                }
            }
            links.0[0].push((store, edge));
            links.0[3].push((edge, store));
        }
        links
    }

    /// What they have carried, in bytes of a link of each kind.
    pub fn carried(&self, network: &Network) -> [f64; 4] {
        self.0.each_ref().map(|links| {
            let bytes = links.iter().map(|&(from, to)| network.carried(from, to).bytes);
            bytes.sum::<u64>() as f64 / links.len() as f64
        })
    }
}

/// What links on the stores' side carried / what they can, while it was measured.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Utilisation {
    /// From stores to the lowest switches.
    pub store_up: f64,
    /// From there to the switches above.
    pub edge_up: f64,
    /// From those down to the lowest.
    pub edge_down: f64,
    /// From there to stores.
    pub store_down: f64,
}

impl Utilisation {
    /// Of links that carry this many bytes at full rate.
    pub fn new(carried: [f64; 4], full_bytes: f64) -> Self {
        let [store_up, edge_up, edge_down, store_down] = carried.map(|bytes| bytes / full_bytes);
        Self { store_up, edge_up, edge_down, store_down }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_each_group_each_store_keeps_copies_of_two_others() {
        for group in 0..32 {
            let mut copies = [0; STORES];
            for store in 0..STORES {
                let [one, other] = members(store, group);
                let pods = [store, one, other].map(|store| store / STORES_OF_POD);
                assert!(pods[0] != pods[1] && pods[0] != pods[2] && pods[1] != pods[2]);
                copies[one] += 1;
                copies[other] += 1;
            }
            assert_eq!(copies, [2; STORES]);
        }
    }

    #[test]
    fn both_trees_have_54_hosts_six_links_apart() {
        for (layout, edges, uplinks) in [(Layout::ThreePerEdge, 9, 27), (Layout::NinePerEdge, 3, 9)]
        {
            let topology = layout.topology(Device::Plain);
            let host = |node: &Node| topology.device(*node) == Device::Host;
            let hosts: Vec<Node> = (0..topology.len()).filter(host).collect();
            assert_eq!(hosts.len(), CLIENTS + STORES);
            let far = topology.distances(hosts[0]);
            assert!(hosts[9..].iter().all(|&other| far[other] == Some(6)));
            let links = Links::new(&topology, &hosts[CLIENTS..]);
            assert_eq!(links.0.each_ref().map(Vec::len), [STORES, uplinks, uplinks, STORES]);
            assert_eq!(uplinks / edges, UPLINKS);
        }
    }
}
