//! Where packets for members, and those of senders, pass this switch.

use std::net::IpAddr;

use control::{ControlError, ErrorKind};
use mcrdma::{
    Port,
    plan::{Group, Member},
};
use roce::Mac;
use routes::Station;

use crate::{
    next::Behind,
    sight::{self, Sight, Unseen},
    split::{Split, Way, ports},
};

/// A switch's routes, and which agents are behind them.
pub(crate) struct Paths {
    /// What the switch is called in what it says.
    pub(crate) name: String,
    pub(crate) behind: Behind,
    pub(crate) sight: Sight,
}

impl Paths {
    /// This switch's own refusals say whose they are.
    pub(crate) fn refused(&self, kind: ErrorKind, why: impl std::fmt::Display) -> ControlError {
        ControlError::new(kind, format!("switch {}: {why}", self.name))
    }

    /// Where the members part here.
    pub(crate) async fn split(&self, members: &[Station]) -> Result<Split, ControlError> {
        let ways = self.ways(members, sight::ATTEMPTS).await;
        let ways = ways.map_err(|unseen| self.refused(ErrorKind::NoTree, unseen.why))?;
        self.part(&ways)
    }

    async fn ways(&self, members: &[Station], attempts: u32) -> Result<Vec<Way>, Unseen> {
        let mut ways = Vec::with_capacity(members.len());
        for &member in members {
            let hops = self.sight.find(member, attempts).await?;
            let agents = self.behind.agents(member.address, &hops);
            ways.push(Way { hops, agents });
        }
        Ok(ways)
    }

    /// Where a group's packets come in: where this switch would send packets for its sender.
    async fn inputs(&self, group: &Group, attempts: u32) -> Result<Vec<Port>, Unseen> {
        let sender = Station { address: group.key.sender, mac: group.sender_mac };
        let hops = self.sight.find(sender, attempts).await;
        hops.map(|hops| ports(&hops)).map_err(|unseen| unseen.within("where its sender is"))
    }

    /// Where a group comes in, and parts.
    pub(crate) async fn split_group(&self, group: &Group, attempts: u32) -> Result<Split, Lost> {
        let ways = self.ways(&stations(group), attempts).await?;
        let inputs = self.inputs(group, attempts).await?;
        Ok(self.part(&ways)?.coming_in(inputs))
    }

    pub(crate) fn no_tree(&self, lost: Lost) -> ControlError {
        match lost {
            Lost::Unseen(unseen) => self.refused(ErrorKind::NoTree, unseen.why),
            Lost::Refused(error) => error,
        }
    }

    fn part(&self, ways: &[Way]) -> Result<Split, ControlError> {
        Split::new(ways).map_err(|agent| {
            let why = format!(
                "copies for different members of the group would meet at {agent}, which could not tell them apart; let the members relay instead"
            );
            self.refused(ErrorKind::NoTree, why)
        })
    }

    /// Answers have to pass the switch that merges them, and no other before it.
    pub(crate) async fn check_first(
        &self,
        sender: IpAddr,
        mac: Option<Mac>,
    ) -> Result<(), ControlError> {
        let hops = self.sight.find(Station { address: sender, mac }, sight::ATTEMPTS).await;
        // A bridge that knows stations by their Ethernet addresses alone cannot tell.
        let agents =
            hops.map_or_else(|_| Default::default(), |hops| self.behind.agents(sender, &hops));
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

/// Why it cannot be told where a group comes in and parts.
pub(crate) enum Lost {
    Unseen(Unseen),
    Refused(ControlError),
}

impl From<Unseen> for Lost {
    fn from(unseen: Unseen) -> Self {
        Self::Unseen(unseen)
    }
}

impl From<ControlError> for Lost {
    fn from(error: ControlError) -> Self {
        Self::Refused(error)
    }
}
