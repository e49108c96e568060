//! How often a message crosses each link.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Node, Routes, Topology, Tree, Way};

/// For each link and direction, how often a message crosses it; where there are equal paths, on
/// average.
pub type Loads = BTreeMap<(Node, Node), f64>;

/// What loads come to, in crossings of one link by one message.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Totals {
    /// Of all links that leave the sender.
    pub uplink: f64,
    /// Of the link that has most.
    pub busiest: f64,
    /// Of all links.
    pub all: f64,
}

impl Totals {
    /// Adds up.
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

/// What switches that copy make of a tree.
#[must_use]
pub fn tree_loads(topology: &Topology, tree: &Tree) -> Loads {
    let members: Vec<Node> =
        tree.forks[0].branches.iter().flat_map(|way| way.members.clone()).collect();
    let routes = Routes::new(topology, &members);
    let mut loads = Loads::new();
    let ways = |at: Node, members: &[Node]| {
        // A copy that is for one member passes by unseen.
        let is_seen = members.len() > 1 || at == tree.first;
        let fork = tree.forks.iter().find(|fork| fork.switch == at && is_seen);
        fork.map_or_else(|| routes.on(at, members), |fork| fork.branches.clone())
    };
    flow(&routes, tree.sender, members.clone(), ways, &mut loads);
    loads
}

/// What single copies to each member make of it.
#[must_use]
pub fn fanout_loads(topology: &Topology, sender: Node, members: &[Node]) -> Loads {
    let pairs = members.iter().map(|&member| (sender, member));
    unicast(topology, members, pairs)
}

/// What a chain makes of it, in which each member sends on to the next.
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

/// Adds what one message from here to these members makes, if nodes let it go these ways.
///
/// The farthest go first: every step brings a copy nearer to all of its members, so by then all
/// shares of a copy have come to a node, however many equal paths lead there.
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
