//! Runs `rdmc plan --in-switch`.

use std::collections::BTreeSet;

use mcrdma::{
    MEMBERS_MAX,
    plan::{Device, NoTree, Node, Topology, plan},
};

use super::{json, options::Options, report::Report, text, topology::topology_of};
use crate::{failure::Failure, output};

/// Prints the tree and the loads.
///
/// `members`: size of the group, including the sender; not with `--receivers`.
pub fn run(options: &Options, members: Option<u32>, json: bool) -> Result<(), Failure> {
    let Some(source) = &options.in_switch else { return Ok(()) };
    let topology = topology_of(source, options.tor_only)?;
    let group = Group::new(&topology, options, members)?;
    let tree = plan(&topology, group.sender, &group.receivers).map_err(|error| match error {
        NoTree::Members { .. } | NoTree::NotAHost { .. } => Failure::Usage(error.to_string()),
        error => Failure::because(error),
    })?;
    let report = Report::new(&topology, &tree, &group.receivers);
    output::print(|out| if json { json::write(&report, out) } else { text::write(&report, out) })
}

struct Group {
    sender: Node,
    receivers: Vec<Node>,
}

impl Group {
    fn new(topology: &Topology, options: &Options, members: Option<u32>) -> Result<Self, Failure> {
        let hosts: Vec<Node> =
            (0..topology.len()).filter(|&node| topology.device(node) == Device::Host).collect();
        let sender = match &options.sender {
            Some(name) => find(topology, &hosts, "--sender", name)?,
            None => hosts[0],
        };
        let receivers = match &options.receivers {
            Some(names) => named(topology, &hosts, sender, names)?,
            None => first_others(topology, &hosts, sender, members)?,
        };
        Ok(Self { sender, receivers })
    }
}

/// The receivers with these names.
fn named(
    topology: &Topology,
    hosts: &[Node],
    sender: Node,
    names: &[String],
) -> Result<Vec<Node>, Failure> {
    let mut seen = BTreeSet::new();
    let mut receivers = Vec::new();
    for name in names {
        let node = find(topology, hosts, "--receivers", name)?;
        if node == sender {
            return Err(Failure::Usage(format!("--receivers: {name} is the sender; leave it out")));
        }
        if !seen.insert(node) {
            return Err(Failure::Usage(format!("--receivers: {name} is named twice")));
        }
        receivers.push(node);
    }
    Ok(receivers)
}

/// The first hosts except the sender.
fn first_others(
    topology: &Topology,
    hosts: &[Node],
    sender: Node,
    members: Option<u32>,
) -> Result<Vec<Node>, Failure> {
    let others: Vec<Node> = hosts.iter().copied().filter(|&host| host != sender).collect();
    if others.is_empty() {
        let alone = topology.name(sender);
        return Err(Failure::Usage(format!(
            "{alone} is the only host; a group needs at least two"
        )));
    }
    let count = match members {
        None => others.len().min(MEMBERS_MAX),
        Some(members) => members as usize - 1,
    };
    if count > others.len() {
        return Err(Failure::Usage(format!(
            "the topology has {} hosts and the group {} members; use fewer --members",
            hosts.len(),
            count + 1
        )));
    }
    if !(1..=MEMBERS_MAX).contains(&count) {
        return Err(Failure::Usage(format!(
            "switches copy for groups of 2 to {} members, the sender included; change --members",
            MEMBERS_MAX + 1
        )));
    }
    Ok(others[..count].to_vec())
}

/// The host with this name.
fn find(topology: &Topology, hosts: &[Node], option: &str, name: &str) -> Result<Node, Failure> {
    const SHOWN: usize = 8;
    match topology.find(name) {
        Some(node) if topology.device(node) == Device::Host => Ok(node),
        known => {
            let shown = hosts.iter().take(SHOWN).map(|&host| topology.name(host));
            let shown = shown.collect::<Vec<_>>().join(", ");
            let more = if hosts.len() > SHOWN { ", ..." } else { "" };
            let what = if known.is_some() { "a switch" } else { "not in the topology" };
            Err(Failure::Usage(format!("{option}: {name} is {what}; hosts are {shown}{more}")))
        }
    }
}
