//! What this member knows of how ways are chosen: rank 0's costs come along the tree of its broadcasts.

use std::time::Duration;

use collective::{BroadcastTree, Fault, WaySelection, model::WriteCosts};

use crate::{Error, TeamSettings};

/// How often rank 0 measures the time of a write. The least counts: others include what a member did before it answered.
const PROBES: u32 = 8;

/// Whether this member has received the costs by which all choose ways; from which member, and to which it sends them.
pub(crate) struct Told {
    rank: u32,
    tree: BroadcastTree,
    is_told: bool,
    probing: Option<Probing>,
}

/// Rank 0's measurement of the time of a write.
struct Probing {
    member: u32,
    costs: WriteCosts,
    left: u32,
    sent_at: Duration,
    /// Of a word and its answer.
    least: Duration,
}

/// What rank 0 does after an answer.
pub(crate) enum Probed {
    /// It sends another probe.
    Again,
    /// It takes these costs.
    Costs(WriteCosts),
}

impl Told {
    /// `now`: when the first probe is sent, if there is one.
    pub(crate) fn new(settings: &TeamSettings, now: Duration) -> Self {
        let (members, rank) = (settings.core.members, settings.core.rank);
        let own = Self::own(settings).zip(settings.probed);
        let probing = own.map(|(costs, member)| Probing {
            member,
            costs,
            left: PROBES,
            sent_at: now,
            least: Duration::MAX,
        });
        let is_told = !settings.takes_costs || rank == 0 && probing.is_none();
        Self { rank, tree: BroadcastTree::new(members, 0), is_told, probing }
    }

    /// Returns the costs that rank 0 tells others; at others `None`.
    pub(crate) fn own(settings: &TeamSettings) -> Option<WriteCosts> {
        match settings.core.ways {
            WaySelection::ByCosts(costs) if settings.takes_costs && settings.core.rank == 0 => {
                Some(costs)
            }
            _ => None,
        }
    }

    /// Returns whether this member knows how ways are chosen.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Errors: this member does not know how ways are chosen.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_told { Ok(()) } else { Err(Error::NotTold) }
    }

    /// Returns the member that has to tell this one, or has to answer a probe; `None` once it has.
    pub(crate) fn awaited(&self) -> Option<u32> {
        let probed = self.probing.as_ref().map(|probing| probing.member);
        probed.or_else(|| self.tree.parent(self.rank).filter(|_| !self.is_told))
    }

    /// Returns what the awaited member has not done.
    pub(crate) fn missed(&self) -> &'static str {
        if self.probing.is_some() {
            "it has not answered a probe"
        } else {
            "it has not sent how ways are chosen"
        }
    }

    /// Returns the members that this one tells.
    pub(crate) fn children(&self) -> Vec<u32> {
        self.tree.children(self.rank).collect()
    }

    /// Notes that a member has told this one. Errors: it does not have to, or has told before.
    pub(crate) fn note(&mut self, from: u32) -> Result<(), Fault> {
        if self.rank == 0 || self.awaited() != Some(from) {
            let what = "costs that it may not send";
            return Err(Fault::Protocol { member: from, what });
        }
        self.is_told = true;
        Ok(())
    }

    /// Notes the answer to a probe. Errors: there was none.
    pub(crate) fn answered(&mut self, from: u32, now: Duration) -> Result<Probed, Fault> {
        let Some(probing) = self.probing.as_mut().filter(|probing| probing.member == from) else {
            return Err(Fault::Protocol { member: from, what: "an answer to no probe" });
        };
        probing.least = probing.least.min(now.saturating_sub(probing.sent_at));
        probing.left -= 1;
        if probing.left > 0 {
            probing.sent_at = now;
            return Ok(Probed::Again);
        }
        let hop_us = probing.least.as_secs_f64() * 1e6 / 2.0;
        let costs = probing.costs.with_hop_us(hop_us);
        (self.is_told, self.probing) = (true, None);
        Ok(Probed::Costs(costs))
    }

    /// Errors: a probe of a member that does not tell this one, or has told it.
    pub(crate) fn check_probe(&self, from: u32) -> Result<(), Fault> {
        if from == 0 && !self.is_told {
            return Ok(());
        }
        Err(Fault::Protocol { member: from, what: "a probe that it may not send" })
    }
}
