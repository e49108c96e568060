//! Settings of a team.

use std::{net::SocketAddr, thread, time::Duration};

use collective::WaySelection;
use team::WriteEnds;

use crate::{Fabric, machine_speed};

/// The settings of a team at one member. All fields except `rank`, `ends` and `connect_timeout` must be the same at all
/// members; [`crate::Context::create_team`] compares them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TeamSettings {
    /// Identifies the team; unique among the groups and teams of its members' contexts.
    pub number: u64,
    /// The address of each member's context as the other members reach it, by rank; 1 to 65,536 members.
    pub members: Vec<SocketAddr>,
    /// The rank of this member.
    pub rank: u32,
    /// The number of slots in each ring of a link; 1 to 4,096. A member can be this many slots ahead of another.
    pub slots: u32,
    /// Length in bytes of a slot, including a header of 48 bytes; 64 to 1 MiB. Each link takes
    /// two rings of memory at either end.
    pub slot_bytes: u32,
    /// How the algorithm of each operation is chosen: a tree, exchanges, or blocks of some length. `None`, the default: the fastest
    /// by a cost model, with the costs of rank 0's network at all members. Those that depend on the machine and the distance are
    /// measured when the team is created.
    pub ways: Option<WaySelection>,
    /// How this member detects that a slot in its memory was written.
    pub ends: WriteEnds,
    /// The time limit for creating the team; `None`, the default: [`crate::ContextSettings::connect_timeout`].
    pub connect_timeout: Option<Duration>,
}

impl TeamSettings {
    /// Returns the settings for member `rank` of a team of `members`, with defaults for
    /// everything else: 16 slots of 32 KiB each, and algorithms chosen by cost.
    pub fn new(number: u64, members: Vec<SocketAddr>, rank: u32) -> Self {
        let defaults = team::TeamSettings::new(number, 1, rank);
        Self {
            number,
            members,
            rank,
            slots: defaults.core.slots,
            slot_bytes: defaults.core.slot_bytes,
            ways: None,
            ends: defaults.ends,
            connect_timeout: None,
        }
    }

    /// Sets [`TeamSettings::slots`].
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// Sets [`TeamSettings::slot_bytes`].
    #[must_use]
    pub fn slot_bytes(mut self, bytes: u32) -> Self {
        self.slot_bytes = bytes;
        self
    }

    /// Sets [`TeamSettings::ways`].
    #[must_use]
    pub fn ways(mut self, ways: WaySelection) -> Self {
        self.ways = Some(ways);
        self
    }

    /// Sets [`TeamSettings::ends`].
    #[must_use]
    pub fn ends(mut self, ends: WriteEnds) -> Self {
        self.ends = ends;
        self
    }

    /// Sets [`TeamSettings::connect_timeout`].
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// Returns the settings in the form that the crate `team` takes, over a network. `shares_memory`: members of one machine share
    /// memory.
    pub(crate) fn made(&self, fabric: &Fabric, shares_memory: bool) -> team::TeamSettings {
        let members = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let mut made = team::TeamSettings::new(self.number, members, self.rank);
        (made.core.slots, made.core.slot_bytes, made.ends) =
            (self.slots, self.slot_bytes, self.ends);
        made.takes_costs = self.ways.is_none();
        made.core.ways = self.ways.unwrap_or_else(|| {
            let costs = fabric.team_costs(&self.members, shares_memory);
            WaySelection::ByCosts(if self.rank == 0 {
                machine_speed::measured(costs)
            } else {
                costs
            })
        });
        made.probed = self.probed(&made.links());
        made
    }

    /// Returns whether more members than this host has processors have this one's address.
    pub(crate) fn is_crowded(&self) -> bool {
        let ip = |address: &SocketAddr| address.ip();
        let own = self.members.get(self.rank as usize).map(ip);
        let near = self.members.iter().filter(|&address| Some(ip(address)) == own).count();
        thread::available_parallelism().is_ok_and(|processors| near > processors.get())
    }

    /// Returns the linked member to whom a write takes as long as between most: one on another host, if there is one.
    fn probed(&self, linked: &[u32]) -> Option<u32> {
        let ip = |rank: u32| self.members.get(rank as usize).map(SocketAddr::ip);
        let other = linked.iter().find(|&&rank| ip(rank) != ip(self.rank));
        other.or(linked.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_crowded_by_members_of_its_own() {
        let processors = thread::available_parallelism().unwrap().get();
        let is_crowded = |near: usize, others: usize| {
            let address = |host: u8, port: usize| SocketAddr::from(([10, 0, 0, host], port as u16));
            let members = (0..near).map(|port| address(1, port));
            let members = members.chain((0..others).map(|port| address(2, port)));
            TeamSettings::new(1, members.collect(), 0).is_crowded()
        };
        assert!(!is_crowded(processors, 1000));
        assert!(is_crowded(processors + 1, 0));
    }
}
