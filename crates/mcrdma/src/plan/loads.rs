//! How often a message crosses each link.

use std::collections::BTreeMap;

use super::{Node, Routes, Topology, Tree};

/// For each link and direction, how often a message crosses it; where there are equal paths, on
/// average.
pub type Loads = BTreeMap<(Node, Node), f64>;

impl Tree {
    /// What switches that copy make of it.
    #[must_use]
    pub fn loads(&self, topology: &Topology) -> Loads {
        let members: Vec<Node> =
            self.forks[0].branches.iter().flat_map(|way| way.members.clone()).collect();
        let routes = Routes::new(topology, &members);
        let mut loads = Loads::from([((self.sender, self.first), 1.0)]);
        self.copy(&routes, self.first, &members, 1.0, &mut loads);
        loads
    }

    /// `share` of the messages is at this node, for these members.
    fn copy(&self, routes: &Routes<'_>, at: Node, members: &[Node], share: f64, loads: &mut Loads) {
        let whole = [super::Way { next: routes.next(at, members[0]), members: members.to_vec() }];
        let fork = self.forks.iter().find(|fork| fork.switch == at);
        // A copy that is for one member passes by unseen.
        let fork = fork.filter(|_| members.len() > 1 || at == self.first);
        let ways = fork.map_or(&whole[..], |fork| &fork.branches);
        for way in ways.iter().filter(|way| way.members.iter().all(|m| members.contains(m))) {
            let share = share / way.next.len() as f64;
            for &next in &way.next {
                *loads.entry((at, next)).or_default() += share;
                if !way.members.contains(&next) {
                    self.copy(routes, next, &way.members, share, loads);
                }
            }
        }
    }
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
        spread(&routes, from, to, 1.0, &mut loads);
    }
    loads
}

fn spread(routes: &Routes<'_>, at: Node, target: Node, share: f64, loads: &mut Loads) {
    let next = routes.next(at, target);
    let share = share / next.len() as f64;
    for node in next {
        *loads.entry((at, node)).or_default() += share;
        if node != target {
            spread(routes, node, target, share, loads);
        }
    }
}
