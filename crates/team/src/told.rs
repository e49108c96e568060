//! What this member knows of how ways are chosen: rank 0's costs come along the tree of its broadcasts.

use collective::{BroadcastTree, Fault, Ways, model::Parameters};

use crate::{Error, TeamSettings};

/// Whether this member was told the costs by which all choose ways; of whom it is, and whom it tells.
pub(crate) struct Told {
    rank: u32,
    tree: BroadcastTree,
    is_told: bool,
}

impl Told {
    pub(crate) fn new(settings: &TeamSettings) -> Self {
        let (members, rank) = (settings.core.members, settings.core.rank);
        let is_told = !settings.takes_costs || rank == 0;
        Self { rank, tree: BroadcastTree::new(members, 0), is_told }
    }

    /// Returns the costs that rank 0 tells others, and takes itself: rounded, as they are transmitted.
    pub(crate) fn own(settings: &TeamSettings) -> Option<Parameters> {
        match settings.core.ways {
            Ways::ByCosts(costs) if settings.takes_costs && settings.core.rank == 0 => {
                Parameters::of_values(costs.values())
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

    /// Returns the member that has to tell this one; `None` once it has.
    pub(crate) fn awaited(&self) -> Option<u32> {
        self.tree.parent(self.rank).filter(|_| !self.is_told)
    }

    /// Returns the members that this one tells.
    pub(crate) fn children(&self) -> Vec<u32> {
        self.tree.children(self.rank).collect()
    }

    /// Notes that a member has told this one. Errors: it does not have to, or has told before.
    pub(crate) fn note(&mut self, from: u32) -> Result<(), Fault> {
        if self.awaited() != Some(from) {
            let what = "costs that it does not have to tell";
            return Err(Fault::Protocol { member: from, what });
        }
        self.is_told = true;
        Ok(())
    }
}
