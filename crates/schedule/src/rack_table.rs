//! Which member is in which rack, for the rack algorithms.

use alloc::vec::Vec;

/// The members of each rack. Racks are numbered from 0: the root's first, then in the order of their lowest ranks.
#[derive(Debug)]
pub(crate) struct RackTable {
    /// Ranks by rack and, inside a rack, by local number; local number 0 is the leader.
    ranks: Vec<u32>,
    /// Where each rack begins in `ranks`, and the end.
    begins: Vec<u32>,
    /// Each rank's rack and local number.
    places: Vec<(u32, u32)>,
}

impl RackTable {
    /// `racks` names the rack of each rank; `root` is one of the ranks.
    pub(crate) fn new(racks: &[u32], root: u32) -> Self {
        let root_rack = racks[root as usize];
        let mut ranks: Vec<u32> = (0..racks.len() as u32).collect();
        ranks.sort_by_key(|&rank| (racks[rank as usize], rank));
        let mut groups: Vec<&mut [u32]> =
            ranks.chunk_by_mut(|&a, &b| racks[a as usize] == racks[b as usize]).collect();
        groups.sort_by_key(|group| (racks[group[0] as usize] != root_rack, group[0]));

        let mut table =
            Self { ranks: Vec::with_capacity(racks.len()), begins: Vec::new(), places: Vec::new() };
        table.places.resize(racks.len(), (0, 0));
        for (rack, group) in (0..).zip(groups) {
            // The root leads its rack and the lowest rank any other; the rest follow in cyclic rank order.
            let leader = group.iter().position(|&rank| rank == root).unwrap_or(0);
            group.rotate_left(leader);
            table.begins.push(table.ranks.len() as u32);
            for (local, &rank) in (0..).zip(group.iter()) {
                table.places[rank as usize] = (rack, local);
                table.ranks.push(rank);
            }
        }
        table.begins.push(table.ranks.len() as u32);
        table
    }

    pub(crate) fn racks(&self) -> u32 {
        self.begins.len() as u32 - 1
    }

    pub(crate) fn size(&self, rack: u32) -> u32 {
        self.begins[rack as usize + 1] - self.begins[rack as usize]
    }

    /// The rank of a rack's member by its local number.
    pub(crate) fn rank(&self, rack: u32, local: u32) -> u32 {
        self.ranks[(self.begins[rack as usize] + local) as usize]
    }

    /// The rack of a rank, and its local number there.
    pub(crate) fn place(&self, rank: u32) -> (u32, u32) {
        self.places[rank as usize]
    }
}
