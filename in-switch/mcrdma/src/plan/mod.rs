//! Where a group's paths diverge: as late as possible (the paper's Algorithm 1).
//!
//! Packets cross links once while their members share a path, and are copied by the last switch that is
//! on all of these paths. With equal-cost paths, members stay together where their *sets* of next hops
//! are equal (section VI-A). Where paths diverge at a switch that cannot copy, the last one before it
//! that can makes the copies (section V-A).

mod loads;
mod tables;
mod topology;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use loads::{Loads, Totals, chain_loads, fanout_loads, tree_loads};
pub use tables::{Entry, Group, Member, Proposal, entries};
pub use topology::{Device, Node, Topology};

use crate::MEMBERS_MAX;

/// Copies that a switch makes of a group's packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fork {
    /// The switch.
    pub switch: Node,
    /// At least one.
    pub branches: Vec<Way>,
}

/// One of these copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// Its next hop: one of these, which are equally far from its members.
    pub next: Vec<Node>,
    /// Its members. If it is one, the copy is rewritten for it here.
    pub members: Vec<Node>,
}

/// A group's distribution tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Who sends.
    pub sender: Node,
    /// Its first switch, where answers are merged.
    pub first: Node,
    /// Switches that need an entry for the group; the sender's first switch is the first.
    pub forks: Vec<Fork>,
}

/// Why a group cannot be served by switches. The members can relay instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoTree {
    /// No members, too many, or one twice.
    #[error(
        "{given} members were named, {count} of them different and not the sender; there may be 1 to {MEMBERS_MAX}, each once"
    )]
    Members {
        /// How many different ones.
        count: usize,
        /// How many in all.
        given: usize,
    },
    /// A sender or member that is no host.
    #[error("{name} is a switch; only hosts can be in a group")]
    NotAHost {
        /// Its name.
        name: String,
    },
    /// There is no path.
    #[error("there is no path from {from} to {to}")]
    Unreachable {
        /// Where from.
        from: String,
        /// Where to.
        to: String,
    },
    /// The sender's first switch cannot copy, or there are several of them.
    #[error(
        "{sender} has to be behind one switch that can copy, and is behind {behind}; let the members relay instead"
    )]
    FirstSwitch {
        /// Who sends.
        sender: String,
        /// Its neighbours.
        behind: String,
    },
    /// Equal-cost paths bring copies for different members to one switch, which copies some of them and
    /// cannot distinguish them: they carry the group's queue pair number until they are rewritten.
    #[error(
        "copies for different members of the group would meet at {switch}, which could not tell them apart; let the members relay instead"
    )]
    Meet {
        /// The switch at which they would meet.
        switch: String,
    },
}

/// Groups members that have the same way, in order (Algorithm 1, lines 2 to 15).
pub fn fork<M, W: PartialEq>(
    members: impl IntoIterator<Item = M>,
    way: impl Fn(&M) -> W,
) -> Vec<(W, Vec<M>)> {
    let mut ways: Vec<(W, Vec<M>)> = Vec::new();
    for member in members {
        let way = way(&member);
        match ways.iter_mut().find(|(known, _)| *known == way) {
            Some((_, together)) => together.push(member),
            None => ways.push((way, vec![member])),
        }
    }
    ways
}

/// The group's tree.
///
/// Errors: there is none, and why.
pub fn plan(topology: &Topology, sender: Node, members: &[Node]) -> Result<Tree, NoTree> {
    let different: BTreeSet<Node> =
        members.iter().copied().filter(|&node| node != sender).collect();
    let (count, given) = (different.len(), members.len());
    if !(1..=MEMBERS_MAX).contains(&count) || count != given {
        return Err(NoTree::Members { count, given });
    }
    for &node in members.iter().chain([&sender]) {
        if topology.device(node) != Device::Host {
            return Err(NoTree::NotAHost { name: topology.name(node).to_owned() });
        }
    }
    let routes = Routes::new(topology, members);
    if let Some(&to) = members.iter().find(|&&member| routes.next(sender, member).is_empty()) {
        let (from, to) = (topology.name(sender).to_owned(), topology.name(to).to_owned());
        return Err(NoTree::Unreachable { from, to });
    }
    let first = first_switch(topology, sender)?;
    Ok(Tree { sender, first, forks: routes.forks(first, members)? })
}

/// The switch that all packets of a sender pass.
fn first_switch(topology: &Topology, sender: Node) -> Result<Node, NoTree> {
    let neighbours = topology.neighbours(sender);
    if let [first] = neighbours[..]
        && topology.device(first) == Device::Copies
    {
        return Ok(first);
    }
    let names: Vec<&str> = neighbours.iter().map(|&node| topology.name(node)).collect();
    Err(NoTree::FirstSwitch { sender: topology.name(sender).to_owned(), behind: names.join(", ") })
}

/// Shortest paths to some hosts.
struct Routes<'a> {
    topology: &'a Topology,
    /// For each target, each node's distance from it.
    distances: BTreeMap<Node, Vec<Option<usize>>>,
}

impl<'a> Routes<'a> {
    fn new(topology: &'a Topology, targets: &[Node]) -> Self {
        let distances = targets.iter().map(|&node| (node, topology.distances(node))).collect();
        Self { topology, distances }
    }

    /// Neighbours that are nearer to the target; hosts do not forward.
    fn next(&self, from: Node, target: Node) -> Vec<Node> {
        let Some(distances) = self.distances.get(&target) else {
            return Vec::new();
        };
        let forwards = |node| node == target || self.topology.device(node) != Device::Host;
        let nearer = |&node: &Node| match (distances[node], distances[from]) {
            (Some(there), Some(here)) => there < here && forwards(node),
            _ => false,
        };
        self.topology.neighbours(from).into_iter().filter(nearer).collect()
    }

    /// On each shortest path, the first node that is no plain switch.
    fn next_that_copies(&self, from: Node, target: Node) -> BTreeSet<Node> {
        let mut found = BTreeSet::new();
        let mut ahead = VecDeque::from([from]);
        let mut seen = BTreeSet::new();
        while let Some(node) = ahead.pop_front() {
            for next in self.next(node, target) {
                match self.topology.device(next) {
                    Device::Plain if seen.insert(next) => ahead.push_back(next),
                    Device::Plain => {}
                    Device::Copies | Device::Host => _ = found.insert(next),
                }
            }
        }
        found
    }

    /// Plain forwarding of a copy for these members: it is addressed to the first of them.
    fn on(&self, from: Node, members: &[Node]) -> Vec<Way> {
        vec![Way { next: self.next(from, members[0]), members: members.to_vec() }]
    }

    /// The distance of the member that is farthest.
    fn farthest(&self, from: Node, members: &[Node]) -> Option<usize> {
        members.iter().filter_map(|member| self.distances.get(member)?[from]).max()
    }

    /// The forks from the sender's first switch on (Algorithm 1).
    fn forks(&self, first: Node, members: &[Node]) -> Result<Vec<Fork>, NoTree> {
        let mut forks: Vec<Fork> = Vec::new();
        let mut ahead = VecDeque::from([(first, members.to_vec())]);
        // For each switch, the members of each copy that reaches it.
        let mut reached = BTreeMap::<Node, BTreeSet<Vec<Node>>>::new();
        while let Some((switch, members)) = ahead.pop_front() {
            if !reached.entry(switch).or_default().insert(members.clone()) {
                continue;
            }
            let way = |member: &Node| {
                (self.next(switch, *member), self.next_that_copies(switch, *member))
            };
            let ways = fork(members, way);
            for ((_, copies), members) in &ways {
                // A single member's copy is unicast from here on.
                let there = copies.iter().filter(|_| members.len() > 1);
                ahead.extend(there.map(|&next| (next, members.clone())));
            }
            // Without a fork plain forwarding is enough. But the first switch merges, and rewrites even for
            // a single member, unlike in the paper's algorithm.
            if ways.len() > 1 || switch == first {
                let branches = ways.into_iter().map(|((next, _), members)| Way { next, members });
                forks.push(Fork { switch, branches: branches.collect() });
            }
        }
        match forks.iter().find(|fork| reached[&fork.switch].len() > 1) {
            Some(fork) => Err(NoTree::Meet { switch: self.topology.name(fork.switch).to_owned() }),
            None => Ok(forks),
        }
    }
}
