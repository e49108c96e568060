//! The report about a tree, for text and JSON.

use mcrdma::plan::{
    Device, Loads, Node, Topology, Totals, Tree, chain_loads, fanout_loads, tree_loads,
};
use serde::Serialize;

/// A tree with its names and loads.
#[derive(Serialize)]
pub struct Report<'a> {
    /// Number of hosts of the topology.
    pub hosts: usize,
    pub sender: &'a str,
    pub receivers: Vec<&'a str>,
    /// The sender's first switch, where answers are merged.
    pub merging_switch: &'a str,
    /// Switches that copy for the group.
    pub switches: Vec<Switch<'a>>,
    pub totals: Patterns<Crossings>,
    /// Links that any pattern uses, by descending load.
    pub links: Vec<Link<'a>>,
}

/// A switch that copies.
#[derive(Serialize)]
pub struct Switch<'a> {
    pub name: &'a str,
    pub copies: Vec<Copy<'a>>,
}

/// A copy that a switch makes.
#[derive(PartialEq, Eq, Serialize)]
pub struct Copy<'a> {
    /// The next hop: one of these, on equally good paths.
    pub next: Vec<&'a str>,
    /// The receivers that get this copy.
    pub receivers: Vec<&'a str>,
    /// Whether this switch rewrites the copy for a single receiver.
    pub rewritten: bool,
}

/// A value for each of three ways to replicate.
#[derive(Serialize)]
pub struct Patterns<T> {
    pub in_switch: T,
    pub fanout: T,
    pub chain: T,
}

/// How often a message crosses links.
#[derive(Serialize)]
pub struct Crossings {
    pub sender_uplink: f64,
    pub busiest_link: f64,
    pub all_links: f64,
}

/// How often a message crosses a link in one direction.
#[derive(Serialize)]
pub struct Link<'a> {
    pub source: &'a str,
    pub target: &'a str,
    #[serde(flatten)]
    pub load: Patterns<f64>,
}

impl<'a> Report<'a> {
    pub fn new(topology: &'a Topology, tree: &Tree, receivers: &[Node]) -> Self {
        let names = |nodes: &[Node]| nodes.iter().map(|&node| topology.name(node)).collect();
        let switches = tree.forks.iter().map(|fork| {
            let copies = fork.branches.iter().map(|way| Copy {
                next: names(&way.next),
                receivers: names(&way.members),
                rewritten: way.members.len() == 1,
            });
            Switch { name: topology.name(fork.switch), copies: copies.collect() }
        });
        let loads = Patterns {
            in_switch: tree_loads(topology, tree),
            fanout: fanout_loads(topology, tree.sender, receivers),
            chain: chain_loads(topology, tree.sender, receivers),
        };
        let is_host = |&node: &Node| topology.device(node) == Device::Host;
        Self {
            hosts: (0..topology.len()).filter(is_host).count(),
            sender: topology.name(tree.sender),
            receivers: names(receivers),
            merging_switch: topology.name(tree.first),
            switches: switches.collect(),
            totals: loads.each(|loads| crossings(Totals::new(loads, tree.sender))),
            links: links(topology, &loads),
        }
    }
}

impl<T> Patterns<T> {
    fn each<U>(&self, of: impl Fn(&T) -> U) -> Patterns<U> {
        Patterns {
            in_switch: of(&self.in_switch),
            fanout: of(&self.fanout),
            chain: of(&self.chain),
        }
    }

    /// The values, in the order in which they are shown.
    pub const fn all(&self) -> [&T; 3] {
        [&self.in_switch, &self.fanout, &self.chain]
    }
}

impl Patterns<f64> {
    /// The largest value.
    pub fn most(&self) -> f64 {
        self.in_switch.max(self.fanout).max(self.chain)
    }
}

fn crossings(totals: Totals) -> Crossings {
    Crossings {
        sender_uplink: rounded(totals.uplink),
        busiest_link: rounded(totals.busiest),
        all_links: rounded(totals.all),
    }
}

fn links<'a>(topology: &'a Topology, loads: &Patterns<Loads>) -> Vec<Link<'a>> {
    let link = |ends: (Node, Node)| Link {
        source: topology.name(ends.0),
        target: topology.name(ends.1),
        load: loads.each(|loads| rounded(loads.get(&ends).copied().unwrap_or(0.0))),
    };
    let used = |ends: &(Node, Node)| loads.all().iter().any(|loads| loads.contains_key(ends));
    let mut links: Vec<Link<'a>> = topology.links().filter(used).map(link).collect();
    links.sort_by(|a, b| b.load.most().total_cmp(&a.load.most()));
    links
}

/// Removes rounding errors of sums of fractions.
fn rounded(load: f64) -> f64 {
    (load * 1e9).round() / 1e9
}
