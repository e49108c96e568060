//! Load of each link.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Node, Routes, Topology, Tree, Way};

/// How often a message crosses each link in each direction; an average over equal-cost paths.
pub type Loads = BTreeMap<(Node, Node), f64>;

/// Sums of loads, in link crossings per message.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Totals {
    /// Of all links that leave the sender.
    pub uplink: f64,
    /// Of the busiest link.
    pub busiest: f64,
    /// Of all links.
    pub all: f64,
}

impl Totals {
    /// Sums up loads.
    #[must_use]
    pub fn new(loads: &Loads, sender: Node) -> Self {
        let from_sender = loads.iter().filter(|((from, _), _)| *from == sender);
        Self {
            uplink: from_sender.map(|(_, load)| load).sum(),
            busiest: loads.values().copied().fold(0.0, f64::max),
            all: loads.values().sum(),
        }
    }
}

/// Loads when switches copy along a tree.
#[must_use]
pub fn tree_loads(topology: &Topology, tree: &Tree) -> Loads {
    let members: Vec<Node> =
        tree.forks[0].branches.iter().flat_map(|way| way.members.clone()).collect();
    let routes = Routes::new(topology, &members);
    let mut loads = Loads::new();
    let ways = |at: Node, members: &[Node]| {
        // A copy for one member is forwarded as unicast.
        let is_copied = members.len() > 1 || at == tree.first;
        let fork = tree.forks.iter().find(|fork| fork.switch == at && is_copied);
        fork.map_or_else(|| routes.on(at, members), |fork| fork.branches.clone())
    };
    flow(&routes, tree.sender, members.clone(), ways, &mut loads);
    loads
}

/// Loads of one unicast to each member.
#[must_use]
pub fn fanout_loads(topology: &Topology, sender: Node, members: &[Node]) -> Loads {
    let pairs = members.iter().map(|&member| (sender, member));
    unicast(topology, members, pairs)
}

/// Loads of a chain, in which each member sends on to the next.
#[must_use]
pub fn chain_loads(topology: &Topology, sender: Node, members: &[Node]) -> Loads {
    let from = [sender].into_iter().chain(members.iter().copied());
    unicast(topology, members, from.zip(members.iter().copied()))
}

fn unicast(
    topology: &Topology,
    targets: &[Node],
    pairs: impl Iterator<Item = (Node, Node)>,
) -> Loads {
    let routes = Routes::new(topology, targets);
    let mut loads = Loads::new();
    for (from, to) in pairs {
        flow(&routes, from, vec![to], |at, members| routes.on(at, members), &mut loads);
    }
    loads
}

/// Adds the loads of one message from `from` to `members`, if nodes forward it by `ways`.
///
/// Nodes are visited by decreasing distance: every hop brings a copy nearer to all of its members, so
/// all shares of a copy, over all equal-cost paths, have been added up when its node is visited.
fn flow(
    routes: &Routes<'_>,
    from: Node,
    members: Vec<Node>,
    ways: impl Fn(Node, &[Node]) -> Vec<Way>,
    loads: &mut Loads,
) {
    let key = |at: Node, members: Vec<Node>| (Reverse(routes.farthest(at, &members)), at, members);
    let mut ahead = BTreeMap::from([(key(from, members), 1.0)]);
    while let Some(((_, at, members), share)) = ahead.pop_first() {
        for way in ways(at, &members) {
            let share = share / way.next.len() as f64;
            for &next in &way.next {
                *loads.entry((at, next)).or_default() += share;
                if !way.members.contains(&next) {
                    *ahead.entry(key(next, way.members.clone())).or_default() += share;
                }
            }
        }
    }
}
