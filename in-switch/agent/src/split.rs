//! How a group's paths diverge at this switch (the paper's Algorithm 1, lines 2 to 15).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use mcrdma::{
    Merging, Port, Replication,
    plan::{Group, fork},
};
use routes::Hop;

/// A member's path from here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    /// Equal-cost next hops.
    pub(crate) hops: BTreeSet<Hop>,
    /// The agents of which one is on each of these paths.
    pub(crate) agents: BTreeSet<String>,
}

/// A copy of a group's packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Copied {
    /// Its equal-cost next hops; for several members those of the first.
    pub(crate) hops: Vec<Hop>,
    /// Its members: indices of the group's.
    pub(crate) members: Vec<usize>,
    /// The agents whose switches copy it again, if it is for several.
    pub(crate) agents: BTreeSet<String>,
}

/// The copies that a switch makes, and the parts of downstream agents.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Split {
    /// At least one.
    pub(crate) copies: Vec<Copied>,
    /// For each downstream agent its members.
    pub(crate) downstream: BTreeMap<String, Vec<usize>>,
    /// Ingress ports of each member's answers: those by which this switch forwards to it.
    answers: Vec<Vec<Port>>,
    /// Ingress ports of the group's packets.
    inputs: Vec<Port>,
}

impl Split {
    /// Members share a copy where their sets of next hops and of agents are equal. Members without an agent on
    /// their path get a copy each.
    ///
    /// Errors: the agent that copies for different members would reach, where they are indistinguishable.
    pub(crate) fn new(ways: &[Way]) -> Result<Self, String> {
        let way = |member: &usize| {
            let Way { hops, agents } = &ways[*member];
            let places: BTreeSet<(Port, Option<IpAddr>)> =
                hops.iter().map(|hop| (hop.port, hop.gateway)).collect();
            (places, agents, agents.is_empty().then_some(*member))
        };
        let answers = ways.iter().map(|way| ports(&way.hops)).collect();
        let mut split = Self { answers, ..Self::default() };
        for ((_, agents, _), members) in fork(0..ways.len(), way) {
            let agents = if members.len() > 1 { agents.clone() } else { BTreeSet::new() };
            for agent in &agents {
                if split.downstream.insert(agent.clone(), members.clone()).is_some() {
                    return Err(agent.clone());
                }
            }
            let hops = ways[members[0]].hops.iter().cloned().collect();
            split.copies.push(Copied { hops, members, agents });
        }
        Ok(split)
    }

    /// The same, with the group's ingress ports.
    pub(crate) fn with_inputs(self, inputs: Vec<Port>) -> Self {
        Self { inputs, ..self }
    }

    /// Whether the data plane needs an entry: without a fork plain forwarding is enough. But the sender's first
    /// switch merges, and rewrites even for a single member.
    pub(crate) const fn needs_entry(&self, is_first: bool) -> bool {
        is_first || self.copies.len() > 1
    }

    /// The entry of the data plane. Groups are spread over equal-cost paths by their identifiers.
    pub(crate) fn replication(&self, group: &Group) -> Replication {
        let branch = |copied: &Copied| {
            let hop = &copied.hops[group.key.id as usize % copied.hops.len()];
            group.branch(hop.port, hop.mac, &copied.members)
        };
        let branches = self.copies.iter().map(branch).collect();
        Replication { sender_qpn: group.sender_qpn, inputs: self.inputs.clone(), branches }
    }

    /// The merging entry of the sender's first switch.
    pub(crate) fn merging(&self, group: &Group, is_proven: bool) -> Merging {
        let mut merging = group.merging();
        merging.virtual_mac = merging.virtual_mac.filter(|_| is_proven);
        for (member, ports) in merging.members.iter_mut().zip(&self.answers) {
            member.ports.clone_from(ports);
        }
        merging
    }
}

/// The ports of equal-cost hops, each once.
pub(crate) fn ports(hops: &BTreeSet<Hop>) -> Vec<Port> {
    hops.iter().map(|hop| hop.port).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce::Mac;

    fn way(ports: &[Port], agents: &[&str], mac: u8) -> Way {
        let hop = |&port: &Port| Hop { port, gateway: None, mac: Mac([2, 0, 0, 0, 0, mac]) };
        Way {
            hops: ports.iter().map(hop).collect(),
            agents: agents.iter().map(|&agent| agent.to_owned()).collect(),
        }
    }

    fn members(split: &Split) -> Vec<Vec<usize>> {
        split.copies.iter().map(|copied| copied.members.clone()).collect()
    }

    #[test]
    fn members_behind_the_same_agents_go_together() {
        let ways = [way(&[1], &["s:1"], 1), way(&[2], &[], 2), way(&[1], &["s:1"], 3)];
        let split = Split::new(&ways).unwrap();
        assert_eq!(members(&split), [vec![0, 2], vec![1]]);
        assert_eq!(split.downstream, BTreeMap::from([("s:1".to_owned(), vec![0, 2])]));
        assert!(split.needs_entry(false));
    }

    /// The last switch that can copy makes the copies for all members behind plain ones.
    #[test]
    fn members_behind_plain_switches_part_here() {
        let split = Split::new(&[way(&[1], &[], 1), way(&[1], &[], 2)]).unwrap();
        assert_eq!(members(&split), [vec![0], vec![1]]);
        assert!(split.downstream.is_empty());
    }

    #[test]
    fn a_single_member_needs_no_agent_downstream_but_the_first_switch() {
        let split = Split::new(&[way(&[1, 2], &["s:1", "t:1"], 1)]).unwrap();
        assert_eq!(members(&split), [vec![0]]);
        assert!(split.downstream.is_empty() && split.copies[0].agents.is_empty());
        assert!(split.needs_entry(true) && !split.needs_entry(false));
    }

    /// Equal-cost paths that overlap in part only (docs/decisions/in-switch.md).
    #[test]
    fn copies_that_would_meet_are_refused() {
        let ways = [
            way(&[1, 2], &["s:1", "t:1"], 1),
            way(&[1, 2], &["s:1", "t:1"], 2),
            way(&[1], &["s:1"], 3),
            way(&[1], &["s:1"], 4),
        ];
        assert_eq!(Split::new(&ways), Err("s:1".to_owned()));
    }
}
