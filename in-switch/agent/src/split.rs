//! Where a group's members part at this switch (the paper's Algorithm 1, lines 2 to 15).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use mcrdma::{
    Merging, Port, Replication,
    plan::{Group, fork},
};
use routes::Hop;

/// A member's way on from here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    /// Equally good next hops.
    pub(crate) hops: BTreeSet<Hop>,
    /// The agents of which one is on each way.
    pub(crate) agents: BTreeSet<String>,
}

/// A copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Copied {
    /// Where it may leave; for several members the hops of the first.
    pub(crate) hops: Vec<Hop>,
    /// For whom: places among the group's members.
    pub(crate) members: Vec<usize>,
    /// Who copies it again, if it is for several.
    pub(crate) agents: BTreeSet<String>,
}

/// What a switch makes of a group's packets, and what others behind it have to do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Split {
    /// At least one.
    pub(crate) copies: Vec<Copied>,
    /// For each agent the members that it has to take care of.
    pub(crate) behind: BTreeMap<String, Vec<usize>>,
    /// By member: where its answers come in, which is where packets for it would leave.
    answers: Vec<Vec<Port>>,
    /// Where the group's packets come in.
    inputs: Vec<Port>,
}

impl Split {
    /// Members go on together where their sets of next hops, and of agents, are the same. Those on
    /// whose way nobody copies part here.
    ///
    /// Errors: the agent to which copies for different members would come, that cannot be told apart
    /// there.
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
                if split.behind.insert(agent.clone(), members.clone()).is_some() {
                    return Err(agent.clone());
                }
            }
            let hops = ways[members[0]].hops.iter().cloned().collect();
            split.copies.push(Copied { hops, members, agents });
        }
        Ok(split)
    }

    /// The same, for a group that comes in at these ports.
    pub(crate) fn coming_in(self, inputs: Vec<Port>) -> Self {
        Self { inputs, ..self }
    }

    /// Whether the data plane has to know: where nobody parts, plain forwarding is enough. But the
    /// sender's first switch merges, and rewrites for a single member.
    pub(crate) const fn is_told(&self, is_first: bool) -> bool {
        is_first || self.copies.len() > 1
    }

    /// What the data plane is told. Groups take their turns at equally good ways.
    pub(crate) fn replication(&self, group: &Group) -> Replication {
        let branch = |copied: &Copied| {
            let hop = &copied.hops[group.key.id as usize % copied.hops.len()];
            group.branch((hop.port, hop.mac), &copied.members)
        };
        let branches = self.copies.iter().map(branch).collect();
        Replication { sender_qpn: group.sender_qpn, inputs: self.inputs.clone(), branches }
    }

    /// What the data plane of the sender's first switch is told of its answers.
    pub(crate) fn merging(&self, group: &Group, is_proven: bool) -> Merging {
        let mut merging = group.merging();
        merging.virtual_mac = merging.virtual_mac.filter(|_| is_proven);
        for (member, ports) in merging.members.iter_mut().zip(&self.answers) {
            member.ports.clone_from(ports);
        }
        merging
    }
}

/// The ports of equally good hops, each once.
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
        assert_eq!(split.behind, BTreeMap::from([("s:1".to_owned(), vec![0, 2])]));
        assert!(split.is_told(false));
    }

    /// The last switch that can copy makes the copies for all that are behind plain ones.
    #[test]
    fn members_behind_plain_switches_part_here() {
        let split = Split::new(&[way(&[1], &[], 1), way(&[1], &[], 2)]).unwrap();
        assert_eq!(members(&split), [vec![0], vec![1]]);
        assert!(split.behind.is_empty());
    }

    #[test]
    fn a_single_member_needs_nobody_behind_and_the_first_switch() {
        let split = Split::new(&[way(&[1, 2], &["s:1", "t:1"], 1)]).unwrap();
        assert_eq!(members(&split), [vec![0]]);
        assert!(split.behind.is_empty() && split.copies[0].agents.is_empty());
        assert!(split.is_told(true) && !split.is_told(false));
    }

    /// Equal paths that are the same in part only (docs/decisions/in-switch.md).
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
