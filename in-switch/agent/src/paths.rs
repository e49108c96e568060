//! Paths of groups through this switch.

use std::net::IpAddr;

use control::{ControlError, ErrorKind};
use mcrdma::{
    Port,
    plan::{Group, Member},
};
use roce::Mac;
use routes::Station;

use crate::{
    downstream::Downstream,
    forwarding::{self, Forwarding, Unresolved},
    split::{Split, Way, ports},
};

/// A switch's routes, and the downstream agents on them.
pub(crate) struct Paths {
    /// The switch's name, for messages.
    pub(crate) name: String,
    pub(crate) downstream: Downstream,
    pub(crate) forwarding: Forwarding,
}

impl Paths {
    /// An error of this switch, which names it.
    pub(crate) fn refused(&self, kind: ErrorKind, why: impl std::fmt::Display) -> ControlError {
        ControlError::new(kind, format!("switch {}: {why}", self.name))
    }

    /// How the members' paths diverge here.
    pub(crate) async fn split(&self, members: &[Station]) -> Result<Split, ControlError> {
        let ways = self.ways(members, forwarding::ATTEMPTS).await;
        let ways = ways.map_err(|unresolved| self.refused(ErrorKind::NoTree, unresolved.why))?;
        self.split_ways(&ways)
    }

    async fn ways(&self, members: &[Station], attempts: u32) -> Result<Vec<Way>, Unresolved> {
        let mut ways = Vec::with_capacity(members.len());
        for &member in members {
            let hops = self.forwarding.resolve(member, attempts).await?;
            let agents = self.downstream.agents(member.address, &hops);
            ways.push(Way { hops, agents });
        }
        Ok(ways)
    }

    /// A group's ingress ports: those by which this switch forwards to its sender.
    async fn inputs(&self, group: &Group, attempts: u32) -> Result<Vec<Port>, Unresolved> {
        let sender = Station { address: group.key.sender, mac: group.sender_mac };
        let hops = self.forwarding.resolve(sender, attempts).await;
        hops.map(|hops| ports(&hops)).map_err(|unresolved| unresolved.within("where its sender is"))
    }

    /// A group's ingress ports, and how its members' paths diverge here.
    pub(crate) async fn split_group(
        &self,
        group: &Group,
        attempts: u32,
    ) -> Result<Split, SplitError> {
        let ways = self.ways(&stations(group), attempts).await?;
        let inputs = self.inputs(group, attempts).await?;
        Ok(self.split_ways(&ways)?.with_inputs(inputs))
    }

    pub(crate) fn no_tree(&self, error: SplitError) -> ControlError {
        match error {
            SplitError::Unresolved(unresolved) => self.refused(ErrorKind::NoTree, unresolved.why),
            SplitError::Refused(error) => error,
        }
    }

    fn split_ways(&self, ways: &[Way]) -> Result<Split, ControlError> {
        Split::new(ways).map_err(|agent| {
            let why = format!(
                "copies for different members of the group would meet at {agent}, which could not tell them apart; let the members relay instead"
            );
            self.refused(ErrorKind::NoTree, why)
        })
    }

    /// Checks that this is the sender's first switch: answers have to pass it last.
    pub(crate) async fn check_first(
        &self,
        sender: IpAddr,
        mac: Option<Mac>,
    ) -> Result<(), ControlError> {
        let hops =
            self.forwarding.resolve(Station { address: sender, mac }, forwarding::ATTEMPTS).await;
        // Not checked if the sender's next hop is unknown, as at a bridge without its Ethernet address.
        let agents =
            hops.map_or_else(|_| Default::default(), |hops| self.downstream.agents(sender, &hops));
        match agents.first() {
            None => Ok(()),
            Some(agent) => {
                let why =
                    format!("it is not the first switch of {sender}: ask the agent at {agent}");
                Err(self.refused(ErrorKind::NoTree, why))
            }
        }
    }
}

fn stations(group: &Group) -> Vec<Station> {
    let station = |member: &Member| Station { address: member.address, mac: member.mac };
    group.members.iter().map(station).collect()
}

/// Why a group's paths are not known.
pub(crate) enum SplitError {
    Unresolved(Unresolved),
    Refused(ControlError),
}

impl From<Unresolved> for SplitError {
    fn from(unresolved: Unresolved) -> Self {
        Self::Unresolved(unresolved)
    }
}

impl From<ControlError> for SplitError {
    fn from(error: ControlError) -> Self {
        Self::Refused(error)
    }
}
