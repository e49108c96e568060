//! Racks at full rate: the send that a rack's pipeline does not need goes to the next rack.
//!
//! The schedule is our own; the circulant inside racks and between them is Träff's ([`crate::circulant`]).
//!
//! # Inside a rack
//!
//! Local member 0 leads its rack of m members: the root in its own, the lowest rank in every other. A rack takes the
//! message in as *slots*. Rack v has a first step D_v; its leader has slot s, if there is one, before step D_v + s, and
//! the rack broadcasts its N_v slots from step D_v on as a circulant broadcasts N_v blocks: in q + N_v - 1 steps,
//! q = ceil(log2 m). An empty slot is a transfer left out. Which block is in which slot is a formula, the same for
//! all members, so both ends of a transfer agree because those of the circulant do.
//!
//! # Between racks
//!
//! In every round i of its tables a circulant has one member whose target is the leader: local member
//! m - Skip[i mod q], the *exit* of the round. The leader lacks nothing, so this send is free; also that of the
//! leader in a rack of one member. In round i the exit has received each slot that is at least h rounds old, slot
//! i - h and those before it; the least such h is the rack's *hold*, found from the exits' tables by
//! [`hold`]. It is q if m is a power of two, at most 2q for any m, and 0 for one member. (The exit's own schedule would have it
//! send to the leader a slot that is q rounds old on average. Every slot leaves the rack in this manner too,
//! but out of order, so that its hold would have to be the longest of these times, which is never less than h.)
//!
//! In one step a rack sends at most one block to other racks, its exit's, and takes in at most one, its leader's.
//! A member other than the leader receives inside its rack only, and sends either inside or, as the exit, outside; a leader of
//! several members sends inside only and receives from outside only. So no port is used twice in a step.
//!
//! **Chain** (`racks-chain`). Slot b is block b in all racks. At step t the exit of rack v sends slot t - D_v - h_v to the
//! leader of rack v+1, where this block is to be had before step t + 1: D_(v+1) = D_v + h_v + 1, D_0 = 0. All finish after
//! k - 1 + max over v of (D_v + q_v) steps: about k + (racks - 1)(q + 1) + q.
//!
//! **Pipeline** (`racks-pipeline`). Block b is in class b mod L, where L is 1 + the largest hold. Each class is a circulant broadcast between
//! racks, Q = ceil(log2 racks), whose step tau is the step t = tau * L + c + h_0 of the whole for class c; so every step belongs to one class. What a rack takes
//! in there is its slot tau * L + c (module [`crate::rack_slots`]), in rack 0 block b is slot b; so D_0 = 0 and all
//! other D_v = h_0 + 1. The exit holds what it sends:
//!
//! - rack v > 0 took it in at an earlier step of the class, tau' < tau, and sends it at local step
//!   t - D_v = tau * L + c - 1, when slot tau' * L + c is (tau - tau')L - 1 >= L - 1 >= h_v steps old;
//! - rack 0 has the class's block b in slot b * L + c and sends it at tau >= b, when it is
//!   (tau - b)L + h_0 >= h_0 steps old.
//!
//! A class of K blocks ends for rack v at its step T_v(K), [`Turns::last`], which is K + Q - 2 for K > Q. So the last slot of rack v is
//! T_v(K) * L + c for the class c and the K blocks of the class of block k-1, N_v is one more, and the whole ends after
//! max(k - 1 + q_0, h_0 + 1 + c + max over v > 0 of (T_v(K) * L + q_v)) steps: about k + (Q - 1)(q + 1) + 2q.
//!
//! Every block enters every rack but the root's once, since a broadcast between racks delivers it once.
//!
//! # Announcers
//!
//! A member's announcer sends it a block of every message, so that it completes none that the member does not know
//! (`rdmc-relay` relies on it). Inside a rack it is the circulant's, which sends slot N_v - 1. The leader of rack u is sent the last
//! block of each class by the rack w before u in the tree of these blocks (`last_round`, p_u: step K - 1 + p_u of the class).
//!
//! - Chain: the exit of w sends block k-1 when it is h_w steps old; the last turn of w begins with this block. So the exit's
//!   index is h_w mod q_w.
//! - Pipeline, k <= L: block k-1 is alone in its class. Rack w > 0 receives it at step p_w of the class, in its last slot, and
//!   sends it (p_u - p_w)L - 1 local steps later; rack 0 sends it p_u L + h_0 steps after step k-1. That modulo q_w is the index.
//! - Pipeline, k > L: the last blocks of all L classes go from w to u in L successive steps. L > q_w, so every exit has one of them.
//!
//! # Cost
//!
//! 12 bytes per member, and 4 per rack (a chain: 8). `send`, `receive` and `received_at` take O(log n) time. `next_send` and `next_receive` try one step
//! after another, each in O(log n); a member in the middle of a long message idles for at most O(log n) steps, and at most
//! O(log m log racks) at the start and end of it, where slots are empty, and in a message of fewer than L Q blocks.

use alloc::{sync::Arc, vec::Vec};

use crate::{
    circulant::{Circulant, SKIPS, Table, Turns},
    flow::{Flow, Hop, scan},
    rack_slots::Deal,
    rack_table::RackTable,
};

/// The schedules `racks-chain` and `racks-pipeline`. Members are real ranks here.
#[derive(Debug, Clone)]
pub(crate) struct RackFlow {
    table: Arc<RackTable>,
    between: Between,
}

#[derive(Debug, Clone)]
enum Between {
    Chain {
        /// D_v.
        begins: Arc<[u32]>,
        /// The largest D_v + q_v.
        end: u64,
    },
    Pipeline(Arc<Pipeline>),
}

/// Constants of a pipeline of at least two racks.
#[derive(Debug, Clone)]
struct Pipeline {
    racks: Circulant,
    /// L.
    classes: u64,
    /// h_0.
    lead: u64,
    /// q_0.
    first_rounds: u64,
    /// At K - 1 for K in 1 ..= Q: the largest T_v(K) * L + q_v of racks v > 0.
    short_ends: [u64; SKIPS],
    /// The largest q_v of racks v > 0.
    rounds_max: u64,
}

impl RackFlow {
    pub(crate) fn table(&self) -> &RackTable {
        &self.table
    }

    /// A chain of racks; `racks` is not empty and `root` is in range.
    pub(crate) fn chain(racks: &[u32], root: u32) -> Self {
        let table = RackTable::new(racks, root);
        let between = chain_between(&table);
        Self { table: Arc::new(table), between }
    }

    /// A circulant of racks; `racks` is not empty and `root` is in range.
    pub(crate) fn pipeline(racks: &[u32], root: u32) -> Self {
        let table = RackTable::new(racks, root);
        let between = match table.racks() {
            1 => chain_between(&table),
            _ => Between::Pipeline(Arc::new(Pipeline::new(&table))),
        };
        Self { table: Arc::new(table), between }
    }

    fn rack(&self, number: u32, blocks: u32) -> Rack<'_> {
        Rack::new(self, number, blocks.into())
    }

    fn size(&self, rack: u32) -> u32 {
        self.table.size(rack)
    }

    /// The rack to which `rack` sends by the `index`-th of its connections to other racks.
    fn target_rack(&self, rack: u32, index: u32) -> Option<u32> {
        match &self.between {
            Between::Chain { .. } => (rack + 1 < self.table.racks()).then_some(rack + 1),
            Between::Pipeline(pipeline) => {
                Some(pipeline.racks.target(rack, index as usize)).filter(|&target| target != 0)
            }
        }
    }

    /// The rack from which `rack` receives by the `index`-th of its connections to other racks.
    fn source_rack(&self, rack: u32, index: u32) -> Option<u32> {
        match &self.between {
            _ if rack == 0 => None,
            Between::Chain { .. } => Some(rack - 1),
            Between::Pipeline(pipeline) => Some(pipeline.racks.source(rack, index as usize)),
        }
    }

    /// How many other racks a rack may send to.
    fn connections(&self) -> u32 {
        match &self.between {
            Between::Chain { .. } => 1,
            Between::Pipeline(pipeline) => pipeline.racks.rounds(),
        }
    }

    /// The `index`-th exit of a rack, by local number.
    fn exit(&self, rack: u32, index: u32) -> Option<u32> {
        match inside(self.size(rack)) {
            None => (index == 0).then_some(0),
            Some(circulant) => {
                (index < circulant.rounds()).then(|| circulant.source(0, index as usize))
            }
        }
    }

    /// The member that announces to the leader of a rack v > 0: the exit of rack w that sends it the last block of a class, counted
    /// from the last turn of rack w, which begins with its last slot.
    fn leader_announcer(&self, rack: u32) -> u32 {
        let (source, age) = match &self.between {
            Between::Chain { begins, .. } => {
                let source = rack.saturating_sub(1);
                let begin = |rack| u64::from(begins[rack as usize]);
                (source, (begin(rack)).saturating_sub(begin(source) + 1))
            }
            Between::Pipeline(pipeline) => {
                let source = pipeline.racks.announcer(rack);
                (source, pipeline.last_age(source, rack))
            }
        };
        let index = age.checked_rem(rounds(self.size(source))).unwrap_or(0);
        self.table.rank(source, self.exit(source, index as u32).unwrap_or(0))
    }

    fn is_exit(&self, rack: u32, local: u32) -> bool {
        (0..SKIPS as u32).any(|index| self.exit(rack, index) == Some(local))
    }

    /// The `index`-th rack whose leader `member` may send to as an exit of its rack. Two leaders of one member each that
    /// send to each other are listed once, among the sources.
    fn outer_target(&self, rack: u32, local: u32, index: u32) -> Option<u32> {
        let target = self.target_rack(rack, index).filter(|_| self.is_exit(rack, local))?;
        let alone = self.size(rack) == 1 && self.size(target) == 1;
        let mutual = |other| self.source_rack(rack, other) == Some(target);
        (!(alone && (0..self.connections()).any(mutual))).then_some(target)
    }
}

fn chain_between(table: &RackTable) -> Between {
    let mut begin = 0;
    let mut end = 0;
    let begins = (0..table.racks()).map(|rack| {
        let this = begin;
        end = end.max(u64::from(this) + rounds(table.size(rack)));
        begin += hold(table.size(rack)) + 1;
        this
    });
    let begins = begins.collect::<Vec<u32>>().into();
    Between::Chain { begins, end }
}

impl Pipeline {
    fn new(table: &RackTable) -> Self {
        let racks = Circulant::new(table.racks());
        let classes = (0..table.racks()).map(|rack| hold(table.size(rack))).max().unwrap_or(0) + 1;
        let classes = u64::from(classes);
        let mut short_ends = [0; SKIPS];
        let mut rounds_max = 0;
        for rack in 1..table.racks() {
            let rounds = rounds(table.size(rack));
            rounds_max = rounds.max(rounds_max);
            let receives = racks.receive_table(rack);
            for (blocks, end) in (1..).zip(&mut short_ends[..racks.rounds() as usize]) {
                *end = (*end).max(racks.turns(blocks).last(&receives) * classes + rounds);
            }
        }
        let lead = hold(table.size(0)).into();
        Self { racks, classes, lead, first_rounds: rounds(table.size(0)), short_ends, rounds_max }
    }

    fn deal(&self, blocks: u64) -> Deal<'_> {
        Deal { racks: &self.racks, classes: self.classes, blocks }
    }

    /// How old the last slot of rack `source` is when it sends to `rack` what that receives last in a class of one
    /// block: the last block of the message, if it has at most L.
    fn last_age(&self, source: u32, rack: u32) -> u64 {
        let step = self.racks.last_round(rack) as u64 * self.classes;
        match source {
            0 => step + self.lead,
            _ => step - self.racks.last_round(source) as u64 * self.classes - 1,
        }
    }

    fn steps(&self, blocks: u64) -> u64 {
        let longest = self.deal(blocks).longest();
        let between = u64::from(self.racks.rounds());
        let last = if longest <= between {
            self.short_ends[longest as usize - 1]
        } else {
            (longest + between - 2) * self.classes + self.rounds_max
        };
        let others = self.lead + 1 + (blocks - 1) % self.classes + last;
        others.max(blocks - 1 + self.first_rounds)
    }
}

/// The broadcast inside a rack of several members.
fn inside(size: u32) -> Option<Circulant> {
    (size > 1).then(|| Circulant::new(size))
}

/// q of a rack.
fn rounds(size: u32) -> u64 {
    inside(size).map_or(0, |circulant| circulant.rounds().into())
}

/// h: the smallest number such that in each round i the rack's exit has received slots i-h, i-h-1, ... before.
///
/// An entry e in position j of a member's table is the slot e + qp in round j + qp: it takes j - e rounds. In rounds
/// i = j + d mod q, 0 <= d < q, the member is the exit when the newest such slot that it lacks is j - e - (j - i) mod q rounds old.
fn hold(size: u32) -> u32 {
    let Some(circulant) = inside(size) else { return 0 };
    let q = circulant.rounds() as usize;
    let lacked = (0..q).flat_map(|i| {
        let table = circulant.receive_table(circulant.source(0, i));
        (0..q).map(move |j| j as i64 - table[j] - ((j + q - i) % q) as i64)
    });
    lacked.max().map_or(0, |oldest| (oldest + 1).max(0) as u32)
}

/// What a rack does in one message of at least one block.
struct Rack<'a> {
    flow: &'a RackFlow,
    number: u32,
    blocks: u64,
    /// D_v.
    begin: u64,
    /// The rack's table in the broadcast between racks; `None` where slot b is block b.
    dealt: Option<(Deal<'a>, Table)>,
    /// N_v.
    slots: u64,
    /// `None` for one member.
    inside: Option<(Circulant, Turns)>,
}

impl<'a> Rack<'a> {
    fn new(flow: &'a RackFlow, number: u32, blocks: u64) -> Self {
        let (begin, dealt) = match &flow.between {
            Between::Chain { begins, .. } => (begins[number as usize].into(), None),
            Between::Pipeline(_) if number == 0 => (0, None),
            Between::Pipeline(pipeline) => {
                let table = pipeline.racks.receive_table(number);
                (pipeline.lead + 1, Some((pipeline.deal(blocks), table)))
            }
        };
        let slots = dealt.as_ref().map_or(blocks, |(deal, table)| deal.last_slot(table) + 1);
        let inside = inside(flow.size(number)).map(|circulant| {
            let turns = circulant.turns(slots);
            (circulant, turns)
        });
        Self { flow, number, blocks, begin, dealt, slots, inside }
    }

    fn block_in(&self, slot: u64) -> Option<u32> {
        let block = match &self.dealt {
            None => Some(slot).filter(|&slot| slot < self.blocks),
            Some((deal, table)) => deal.block_in(table, slot),
        };
        block.map(|block| block as u32)
    }

    fn slot_of(&self, block: u32) -> u64 {
        match &self.dealt {
            None => block.into(),
            Some((deal, table)) => deal.slot_of(table, block.into()),
        }
    }

    /// The steps at which anything may happen in the rack: its leader has the first slot before the first of them, and
    /// its exits have sent all blocks before the last. In a chain that is at most h <= 2q steps after the leader's last.
    fn active(&self, steps: u64) -> (u64, u64) {
        let first = self.dealt.as_ref().map_or(0, |(deal, table)| deal.first_slot(table));
        let end = match &self.flow.between {
            Between::Chain { .. } => {
                (self.begin + self.slots + 2 * rounds(self.flow.size(self.number))).min(steps)
            }
            Between::Pipeline(_) => steps,
        };
        (self.begin + first, end)
    }

    /// The rank of the exit at `step`, which is not before the rack's first.
    fn exit(&self, step: u64) -> u32 {
        let local = self.inside.as_ref().map_or(0, |(circulant, turns)| {
            circulant.source(0, turns.index(step.saturating_sub(self.begin)))
        });
        self.flow.table.rank(self.number, local)
    }

    /// What the exit sends at `step`.
    fn sent_outside(&self, step: u64) -> Option<Hop> {
        let (target, block) = match &self.flow.between {
            Between::Chain { begins, .. } => {
                let target = self.flow.target_rack(self.number, 0)?;
                let slot = (step + 1).checked_sub(begins[target as usize].into())?;
                (target, Some(slot).filter(|&slot| slot < self.blocks)?)
            }
            Between::Pipeline(pipeline) => {
                let deal = pipeline.deal(self.blocks);
                let (tau, class) = deal.step_and_class(step.checked_sub(pipeline.lead)?);
                let turns = deal.turns(class)?;
                let index = turns.index(tau);
                let target = self.flow.target_rack(self.number, index as u32)?;
                let entry = pipeline.racks.receive_table(target)[index];
                (target, deal.block(turns, entry, tau, class)?)
            }
        };
        Some(Hop { step, peer: self.flow.table.rank(target, 0), block: block as u32 })
    }

    /// What the leader receives at `step`.
    fn received_outside(&self, step: u64) -> Option<Hop> {
        let slot = (step + 1).checked_sub(self.begin)?;
        let block = self.block_in(slot)?;
        let index = match &self.dealt {
            None => 0,
            Some((deal, _)) => {
                let (tau, class) = deal.step_and_class(slot);
                deal.turns(class)?.index(tau)
            }
        };
        let source = self.flow.source_rack(self.number, index as u32)?;
        let peer = Rack::new(self.flow, source, self.blocks).exit(step);
        Some(Hop { step, peer, block })
    }

    fn send(&self, local: u32, step: u64) -> Option<Hop> {
        let Some((circulant, turns)) = &self.inside else { return self.sent_outside(step) };
        let inner = step.checked_sub(self.begin)?;
        let index = turns.index(inner);
        let target = circulant.target(local, index);
        if target == 0 {
            return self.sent_outside(step);
        }
        let slot = turns.block(circulant.receive_table(target)[index], inner)?;
        self.inner_hop(step, target, slot)
    }

    /// What a member that is not the leader, with this table, receives at `step`.
    fn receive(&self, local: u32, table: &Table, step: u64) -> Option<Hop> {
        let (circulant, turns) = self.inside.as_ref()?;
        let inner = step.checked_sub(self.begin)?;
        let index = turns.index(inner);
        let slot = turns.block(table[index], inner)?;
        self.inner_hop(step, circulant.source(local, index), slot)
    }

    /// Whether a member sends in some message: not where its only target inside is the leader, in a rack that ends a chain.
    fn ever_sends(&self, local: u32) -> bool {
        let mut outside = 0..self.flow.connections();
        outside.any(|index| self.flow.target_rack(self.number, index).is_some())
            || self.inside.as_ref().is_some_and(|(circulant, _)| {
                (0..circulant.rounds()).any(|j| circulant.target(local, j as usize) != 0)
            })
    }

    fn inner_hop(&self, step: u64, local: u32, slot: u64) -> Option<Hop> {
        let block = self.block_in(slot)?;
        Some(Hop { step, peer: self.flow.table.rank(self.number, local), block })
    }

    /// The table of a member inside the rack; of no meaning in a rack of one.
    fn inner_table(&self, local: u32) -> Table {
        self.inside.as_ref().map_or([0; SKIPS], |(circulant, _)| circulant.receive_table(local))
    }
}

impl Flow for RackFlow {
    fn steps(&self, blocks: u32) -> u64 {
        let blocks = u64::from(blocks);
        match &self.between {
            Between::Chain { end, .. } => blocks - 1 + end,
            Between::Pipeline(pipeline) => pipeline.steps(blocks),
        }
    }

    fn send(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let (rack, local) = self.table.place(member);
        self.rack(rack, blocks).send(local, step)
    }

    fn receive(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let (rack, local) = self.table.place(member);
        let rack = self.rack(rack, blocks);
        match local {
            0 => rack.received_outside(step),
            _ => rack.receive(local, &rack.inner_table(local), step),
        }
    }

    fn next_send(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        let (rack, local) = self.table.place(member);
        let rack = self.rack(rack, blocks);
        if !rack.ever_sends(local) {
            return None;
        }
        let (first, end) = rack.active(self.steps(blocks));
        scan(from.max(first), end, u64::MAX, |step| rack.send(local, step))
    }

    fn next_receive(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        let (rack, local) = self.table.place(member);
        if (rack, local) == (0, 0) {
            return None;
        }
        let rack = self.rack(rack, blocks);
        let (first, end) = rack.active(self.steps(blocks));
        if local == 0 {
            let from = from.max(first.saturating_sub(1));
            return scan(from, end, u64::MAX, |step| rack.received_outside(step));
        }
        let table = rack.inner_table(local);
        scan(from.max(first), end, u64::MAX, |step| rack.receive(local, &table, step))
    }

    fn received_at(&self, member: u32, block: u32, blocks: u32) -> u64 {
        let (rack, local) = self.table.place(member);
        let rack = self.rack(rack, blocks);
        let slot = rack.slot_of(block);
        match &rack.inside {
            Some((_, turns)) if local != 0 => {
                rack.begin + turns.received_at(&rack.inner_table(local), slot)
            }
            _ => (rack.begin + slot).saturating_sub(1),
        }
    }

    fn announcer(&self, member: u32) -> u32 {
        let (rack, local) = self.table.place(member);
        match inside(self.size(rack)) {
            Some(circulant) if local != 0 => self.table.rank(rack, circulant.announcer(local)),
            _ => self.leader_announcer(rack),
        }
    }

    fn neighbour_candidates(&self, member: u32) -> u32 {
        let (rack, local) = self.table.place(member);
        let inner =
            inside(self.size(rack)).map_or(0, |circulant| circulant.neighbour_candidates(local));
        let sources = if local == 0 && rack != 0 { SKIPS as u32 } else { 0 };
        inner + self.connections() * (1 + sources)
    }

    fn neighbour(&self, member: u32, index: u32) -> Option<u32> {
        let (rack, local) = self.table.place(member);
        let inside = inside(self.size(rack));
        let inner = inside.as_ref().map_or(0, |circulant| circulant.neighbour_candidates(local));
        if index < inner {
            let local = inside?.neighbour(local, index)?;
            return Some(self.table.rank(rack, local));
        }
        let index = index - inner;
        match index.checked_sub(self.connections()) {
            None => Some(self.table.rank(self.outer_target(rack, local, index)?, 0)),
            Some(index) => {
                let source = self.source_rack(rack, index / SKIPS as u32)?;
                Some(self.table.rank(source, self.exit(source, index % SKIPS as u32)?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_that_of_a_hypercube_or_a_little_longer() {
        for size in 1..3000_u32 {
            let q = rounds(size) as u32;
            let hold = hold(size);
            if size.is_power_of_two() {
                assert_eq!(hold, q, "{size} members");
            }
            assert!(hold >= q && hold <= (2 * q).min(q + 4), "{size} members: {hold}");
        }
    }
}
