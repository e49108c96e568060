//! Which block a rack takes into which slot in a pipeline of racks ([`crate::rack_flow`]).
//!
//! Block b is the (b div L)-th of class b mod L. Each class is a circulant broadcast among racks; step tau of class c is
//! slot tau * L + c of the racks that take something in at that step. A rack's slots are thus those steps of all
//! classes, some of which are empty: at the start, when nothing has reached the rack, and in classes without a block.

use crate::circulant::{Circulant, Table, Turns};

/// A message of at least one block, dealt into classes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deal<'a> {
    /// The broadcast of a class; its members are racks.
    pub racks: &'a Circulant,
    /// L, at least 1.
    pub classes: u64,
    pub blocks: u64,
}

impl Deal<'_> {
    /// The class of the last block. This class and those before it have the most blocks.
    fn last_class(&self) -> u64 {
        (self.blocks - 1) % self.classes
    }

    /// The number of blocks in the class of the last block, at least 1; the classes after it have one less.
    pub(crate) fn longest(&self) -> u64 {
        (self.blocks - 1) / self.classes + 1
    }

    /// The steps of a class; `None` if it has no block.
    pub(crate) fn turns(&self, class: u64) -> Option<Turns> {
        let blocks = self.longest() - u64::from(class > self.last_class());
        (blocks > 0).then(|| self.racks.turns(blocks))
    }

    /// The block that `entry`, of a rack's table at `turns.index(tau)`, stands for at step `tau` of a class.
    pub(crate) fn block(&self, turns: Turns, entry: i64, tau: u64, class: u64) -> Option<u64> {
        turns.block(entry, tau).map(|block| block * self.classes + class)
    }

    /// The class's step and the class of a slot.
    pub(crate) fn step_and_class(&self, slot: u64) -> (u64, u64) {
        (slot / self.classes, slot % self.classes)
    }

    /// The block in a slot of the rack with this table.
    pub(crate) fn block_in(&self, table: &Table, slot: u64) -> Option<u64> {
        let (tau, class) = self.step_and_class(slot);
        let turns = self.turns(class)?;
        self.block(turns, table[turns.index(tau)], tau, class)
    }

    /// The slot in which the rack with this table has `block`.
    pub(crate) fn slot_of(&self, table: &Table, block: u64) -> u64 {
        let class = block % self.classes;
        let tau =
            self.turns(class).map_or(0, |turns| turns.received_at(table, block / self.classes));
        tau * self.classes + class
    }

    /// The last slot of the rack with this table that has a block. It is in the class of the last block: a class with one
    /// block less ends at least one of its steps earlier, for `Turns::last` rises with the number of blocks.
    pub(crate) fn last_slot(&self, table: &Table) -> u64 {
        let class = self.last_class();
        let tau = self.turns(class).map_or(0, |turns| turns.last(table));
        tau * self.classes + class
    }

    /// The first slot of the rack with this table that has a block. The first classes of each length begin first.
    pub(crate) fn first_slot(&self, table: &Table) -> u64 {
        let first = |class| Some(self.turns(class)?.first(table) * self.classes + class);
        let shorter = self.last_class() + 1;
        let shorter = if shorter < self.classes { first(shorter) } else { None };
        first(0).into_iter().chain(shorter).min().unwrap_or(0)
    }
}
