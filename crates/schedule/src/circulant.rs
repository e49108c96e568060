//! Träff's broadcast on a circulant graph: round-optimal for every number of members, all members symmetric.
//!
//! In round i every member r sends to r + Skip[j] and receives from r - Skip[j], j = i mod q, q = ceil(log2 n).
//! What a member receives repeats every q rounds, q blocks further on, so one table of q entries per member
//! holds its whole schedule. The table is computed per query, in O(log n) time, on the stack. Since the sender
//! looks up the receiver's entry, both ends agree by construction.
//!
//! # Why each block arrives exactly once
//!
//! The q entries of member r are -q ..= -1 with b(r)-q replaced by b(r), b(r) being its base block. A run of the
//! schedule is P full turns of the table, numbered so that the last ends with block k-1; the x rounds by which
//! the first is cut short would all have carried negative blocks. Turn p adds qp-x to the entries, hence over
//! all turns every block up to k-2 arrives once, and then b(r)+k-1, which stands for block k-1. There is no
//! redundant transfer to suppress.

use crate::flow::{Flow, Hop, ceil_log2, scan};

/// Space for Skip[0 ..= q] with q <= 20.
pub(crate) const SKIPS: usize = 21;

#[derive(Debug, Clone)]
pub(crate) struct Circulant {
    members: u32,
    /// q, at least 1.
    rounds: u32,
    /// Skip[q] = n, Skip[j] = ceil(Skip[j+1] / 2), Skip[0] = 1.
    skips: [u32; SKIPS],
}

/// R_r: what a member receives in each round of the first turn; negative while nothing has arrived. Entries from q
/// on are unused.
pub(crate) type Table = [i64; SKIPS];

/// The steps of one message of at least one block. Step i is round i + x of the tables, where x, the rounds of the
/// first turn that are left out, makes the last turn full.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns {
    /// q, at least 1.
    rounds: u64,
    /// x, less than q.
    skipped: u64,
    blocks: u64,
}

impl Turns {
    pub(crate) fn steps(&self) -> u64 {
        self.blocks - 1 + self.rounds
    }

    /// The index j of the skip, and of the table's entry, at `step`.
    pub(crate) fn index(&self, step: u64) -> usize {
        ((step + self.skipped) % self.rounds) as usize
    }

    /// The block that `entry`, the one at `index(step)` of a member other than the root, stands for at `step`.
    pub(crate) fn block(&self, entry: i64, step: u64) -> Option<u64> {
        let turn = (step + self.skipped) / self.rounds;
        let block = entry + (self.rounds * turn) as i64 - self.skipped as i64;
        (block >= 0 && step < self.steps()).then(|| block.min(self.blocks as i64 - 1) as u64)
    }

    /// The step at which the member with this table receives `block`.
    pub(crate) fn received_at(&self, table: &Table, block: u64) -> u64 {
        let entries = &table[..self.rounds as usize];
        // The only entry that is not negative is b(r).
        let base_block = entries.iter().copied().max().unwrap_or(0);
        let shifted = block + self.skipped;
        let (turn, entry) =
            if block == self.blocks - 1 || (shifted % self.rounds) as i64 == base_block {
                // Block k-1 comes in the last turn, under the number b(r)+k-1.
                (shifted / self.rounds, base_block)
            } else {
                (shifted / self.rounds + 1, (shifted % self.rounds) as i64 - self.rounds as i64)
            };
        let round = entries.iter().position(|&e| e == entry).unwrap_or(0);
        turn * self.rounds + round as u64 - self.skipped
    }

    /// The step at which the member with this table receives its last block. The last turn, of steps
    /// k-1 ..= k-2+q, has block b(r)+k-1 for every member, and the entry e, which stands for block e+k-1, where
    /// that is a block.
    pub(crate) fn last(&self, table: &Table) -> u64 {
        let entries = &table[..self.rounds as usize];
        let is_received = |entry: &i64| entry + self.blocks as i64 > 0;
        self.blocks - 1 + entries.iter().rposition(is_received).unwrap_or(0) as u64
    }

    /// The step at which the member with this table receives its first block, which is in the first q + x rounds:
    /// entry b(r) is a block in each turn after the first.
    pub(crate) fn first(&self, table: &Table) -> u64 {
        let has_block = |&step: &u64| self.block(table[self.index(step)], step).is_some();
        (0..2 * self.rounds).find(has_block).unwrap_or(0)
    }
}

/// A member's receive table during its computation.
struct Search<'a> {
    skips: &'a [u32; SKIPS],
    rounds: usize,
    /// X = r + n.
    goal: u32,
    /// For each skip index, the next lower one that is still in the list; `END` after the last.
    next: [u8; SKIPS],
    previous: [u8; SKIPS],
    table: [u8; SKIPS],
}

const END: u8 = u8::MAX;

impl Search<'_> {
    fn unlink(&mut self, index: u8) {
        let (next, previous) = (self.next[usize::from(index)], self.previous[usize::from(index)]);
        if next != END {
            self.previous[usize::from(next)] = previous;
        }
        if previous != END {
            self.next[usize::from(previous)] = next;
        }
    }

    /// Fills the table from entry `j` on with the skips that extend `base`, each path ending below the one before
    /// (`bound`), trying the list from `index` on; returns the first entry left. The depth is at most 2q: a path
    /// uses no skip more than twice.
    fn run(&mut self, base: u32, mut bound: u32, mut index: u8, mut j: usize) -> usize {
        while index != END && j < self.rounds {
            let end = base + self.skips[usize::from(index)];
            if end <= self.goal - self.skips[j] && end < bound {
                if end <= self.goal - self.skips[j + 1] {
                    j = self.run(end, bound, index, j);
                }
                if j == self.rounds || base > self.goal - self.skips[j + 1] {
                    return j;
                }
                bound = end;
                self.table[j] = index;
                self.unlink(index);
                j += 1;
            }
            index = self.next[usize::from(index)];
        }
        j
    }
}

impl Circulant {
    /// For at least two members.
    pub(crate) fn new(members: u32) -> Self {
        let rounds = ceil_log2(members);
        let mut skips = [1; SKIPS];
        skips[rounds as usize] = members;
        for j in (0..rounds as usize).rev() {
            skips[j] = skips[j + 1].div_ceil(2);
        }
        Self { members, rounds, skips }
    }

    /// b(r): the smallest skip in the greedy decomposition of r; q for the root.
    fn base_block(&self, member: u32) -> u32 {
        let mut rest = member;
        for j in (0..self.rounds).rev() {
            if rest >= self.skips[j as usize] {
                rest -= self.skips[j as usize];
                if rest == 0 {
                    return j;
                }
            }
        }
        self.rounds
    }

    pub(crate) fn receive_table(&self, member: u32) -> Table {
        let q = self.rounds as u8;
        let base_block = self.base_block(member) as u8;
        let mut search = Search {
            skips: &self.skips,
            rounds: self.rounds as usize,
            goal: member + self.members,
            next: core::array::from_fn(|e| (e as u8).wrapping_sub(1)),
            previous: core::array::from_fn(|e| e as u8 + 1),
            table: [0; SKIPS],
        };
        search.previous[usize::from(q)] = END;
        search.unlink(base_block);
        let head = if base_block == q { q - 1 } else { q };
        search.run(0, 2 * self.members, head, 0);
        search
            .table
            .map(|e| if e == q { i64::from(base_block) } else { i64::from(e) - i64::from(q) })
    }

    /// The steps of a message of `blocks` blocks, at least one.
    pub(crate) fn turns(&self, blocks: u64) -> Turns {
        let rounds = u64::from(self.rounds);
        Turns { rounds, skipped: (rounds - (blocks - 1) % rounds) % rounds, blocks }
    }

    /// The block that a member other than the root receives at `step`.
    fn block_received(&self, member: u32, step: u64, turns: Turns) -> Option<u32> {
        let entry = self.receive_table(member)[turns.index(step)];
        turns.block(entry, step).map(|block| block as u32)
    }

    /// q, at least 1.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The position of b(r) in the table of a member other than the root: of the largest skip that is not above r.
    pub(crate) fn last_round(&self, member: u32) -> usize {
        // Some skip fits, since Skip[0] = 1.
        let skips = &self.skips[..self.rounds as usize];
        skips.iter().rposition(|&skip| skip <= member).unwrap_or(0)
    }

    /// The member to which `member` sends in rounds of index `j`.
    pub(crate) fn target(&self, member: u32, j: usize) -> u32 {
        self.after(member, self.skips[j])
    }

    /// The member from which `member` receives in rounds of index `j`.
    pub(crate) fn source(&self, member: u32, j: usize) -> u32 {
        self.before(member, self.skips[j])
    }

    fn after(&self, member: u32, skip: u32) -> u32 {
        (member + skip) % self.members
    }

    fn before(&self, member: u32, skip: u32) -> u32 {
        (member + self.members - skip) % self.members
    }

    /// The `index`-th member that this one sends to or, from q on, receives from.
    fn peer(&self, member: u32, index: u32) -> Option<u32> {
        match index.checked_sub(self.rounds) {
            None => {
                Some(self.after(member, self.skips[index as usize])).filter(|&target| target != 0)
            }
            Some(j) => (member != 0).then(|| self.before(member, self.skips[j as usize])),
        }
    }

    /// At most this many steps pass between two sends, or two receives, of a member that has any left.
    fn longest_pause(&self) -> u64 {
        2 * u64::from(self.rounds) + 1
    }
}

impl Flow for Circulant {
    fn steps(&self, blocks: u32) -> u64 {
        self.turns(blocks.into()).steps()
    }

    fn send(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let turns = self.turns(blocks.into());
        let peer = self.target(member, turns.index(step));
        if peer == 0 {
            return None;
        }
        Some(Hop { step, peer, block: self.block_received(peer, step, turns)? })
    }

    fn receive(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        if member == 0 {
            return None;
        }
        let turns = self.turns(blocks.into());
        let peer = self.source(member, turns.index(step));
        Some(Hop { step, peer, block: self.block_received(member, step, turns)? })
    }

    fn next_send(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        scan(from, self.steps(blocks), self.longest_pause(), |step| self.send(member, step, blocks))
    }

    fn next_receive(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        scan(from, self.steps(blocks), self.longest_pause(), |step| {
            self.receive(member, step, blocks)
        })
    }

    fn received_at(&self, member: u32, block: u32, blocks: u32) -> u64 {
        self.turns(blocks.into()).received_at(&self.receive_table(member), block.into())
    }

    /// The member that sends this one block k-1, whatever k: entry b(r) is in the position of the largest skip that is
    /// not above r, and stands for block k-1 in the last turn.
    fn announcer(&self, member: u32) -> u32 {
        member - self.skips[self.last_round(member)]
    }

    fn neighbour_candidates(&self, _member: u32) -> u32 {
        2 * self.rounds
    }

    fn neighbour(&self, member: u32, index: u32) -> Option<u32> {
        let peer = self.peer(member, index);
        // Two skips that add up to n lead to the same member.
        peer.filter(|_| (0..index).all(|earlier| self.peer(member, earlier) != peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventeen_members_have_the_published_table() {
        let flow = Circulant::new(17);
        assert_eq!(flow.skips[..6], [1, 2, 3, 5, 9, 17]);
        let published = [-4, 0, -5, -4, -3, -5, -2, -5, -4, -3, -1, -5, -4, -3, -5, -2, -5];
        for (member, entry) in (0..).zip(published) {
            assert_eq!(flow.receive_table(member)[0], entry, "member {member}");
        }
    }

    #[test]
    fn the_root_sends_block_j_in_round_j_of_the_first_turn() {
        for members in 2..3000 {
            let flow = Circulant::new(members);
            for j in 0..flow.rounds as usize {
                assert_eq!(
                    flow.receive_table(flow.skips[j])[j],
                    j as i64,
                    "{members} members, round {j}"
                );
            }
        }
    }

    #[test]
    fn the_last_block_comes_along_a_tree() {
        for members in (2..300).chain([1023, 1024, 1025, 99_991]) {
            let flow = Circulant::new(members);
            for member in (1..members).step_by(1 + members as usize / 500) {
                let entry = flow.receive_table(member)[flow.last_round(member)];
                assert_eq!(entry, flow.base_block(member).into(), "{members} members, {member}");
            }
        }
    }

    #[test]
    fn a_table_holds_every_entry_once() {
        for members in (2..300).chain([1023, 1024, 1025, 99_991]) {
            let flow = Circulant::new(members);
            let q = i64::from(flow.rounds);
            for member in (1..members).step_by(1 + members as usize / 500) {
                let table = flow.receive_table(member);
                let base = i64::from(flow.base_block(member));
                for entry in (-q..0).map(|e| if e == base - q { base } else { e }) {
                    let count = table[..q as usize].iter().filter(|&&found| found == entry).count();
                    assert_eq!(count, 1, "{members} members, member {member}, entry {entry}");
                }
            }
        }
    }
}
