//! The ways of long operations: which blocks go where, and in which order.
//!
//! WriteCosts below are for n members and m bytes, in bytes that one member sends; blocks overlap on the way.

use std::ops::Range;

use schedule::{Algorithm, Schedule};

use crate::{
    BroadcastTree, Call, Choice, Chunks, Halving, Kind, RingRounds, Way,
    links::ALL_PAIRS_MAX,
    parts::Parts,
    place::Place,
    settings::Settings,
    transfers::{Order, Transfers},
};

/// The blocks of a call at one member.
struct Route<'a> {
    settings: &'a Settings,
    call: &'a Call,
    block_bytes: u64,
    transfers: Transfers,
}

/// Returns the transfers of a long operation at one member; none for ways through slots.
pub(crate) fn transfers(call: &Call, choice: Choice, settings: &Settings) -> Transfers {
    let Choice { way, block_bytes } = choice;
    let order = match way {
        _ if call.kind.has_parts_at_root() => Order::Rounds,
        Way::Circulant => Order::Sends,
        Way::Halving => Order::Rounds,
        _ => Order::Blocks,
    };
    let mut route = Route { settings, call, block_bytes, transfers: Transfers::new(order) };
    match (way, call.kind) {
        (Way::Circulant | Way::Direct, Kind::Scatter) => route.scatter(way),
        (Way::Circulant | Way::Direct, Kind::Gather) => route.gather(way),
        (Way::Circulant | Way::Direct, _) => route.circulant(),
        (Way::Halving, _) => route.halving(),
        (Way::Ring, Kind::Reduce) => route.ring_reduce(),
        (Way::Ring, _) => route.ring(),
        (Way::Chain, Kind::AllReduce) => route.chain_all_reduce(),
        (Way::Chain, _) => route.chain_reduce(),
        (Way::Trees { .. } | Way::Exchange, _) => {}
    }
    route.transfers
}

impl Route<'_> {
    /// Returns the rank that is so far ahead on the ring.
    fn at(&self, distance: u32) -> u32 {
        (self.settings.rank + distance) % self.settings.members
    }

    /// Returns the blocks of a range of memory.
    fn blocks(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let block_bytes = self.block_bytes;
        let starts = (range.start..range.end).step_by(block_bytes as usize);
        starts.map(move |start| start..range.end.min(start + block_bytes))
    }

    /// Returns where a chunk is: a member's part, if there are parts.
    fn place(&self, index: u32) -> Range<u64> {
        if self.call.kind.has_parts() {
            return u64::from(index) * self.call.bytes..(u64::from(index) + 1) * self.call.bytes;
        }
        self.chunk(index)
    }

    /// Returns the blocks of chunks, in their order.
    fn blocks_of(&self, Chunks { first, count }: Chunks) -> Vec<Range<u64>> {
        let members = self.settings.members;
        let until_last = count.min(members - first);
        let after_last = count - until_last;
        let before = self.place(first).start..self.place(first + until_last - 1).end;
        let behind = after_last.checked_sub(1).map(|last| 0..self.place(last).end);
        [Some(before), behind].into_iter().flatten().flat_map(|range| self.blocks(range)).collect()
    }

    /// Returns one of n nearly equal parts of the contribution; no element is cut.
    fn chunk(&self, index: u32) -> Range<u64> {
        let unit = u64::from(self.call.unit_bytes());
        let (members, elements) = (u64::from(self.settings.members), self.call.bytes / unit);
        // As 128 bits: the product of a length and a number of members.
        let start = |index: u64| {
            (u128::from(elements) * u128::from(index) / u128::from(members)) as u64 * unit
        };
        start(index.into())..start(u64::from(index) + 1)
    }

    /// The broadcast pipeline on the circulant graph: with k blocks, k - 1 + ceil(log2 n) rounds for every n (Träff).
    fn circulant(&mut self) {
        let Settings { members, rank, .. } = *self.settings;
        let blocks: Vec<_> = self.blocks(0..self.call.bytes).collect();
        // The number of blocks fits: see `Choice::in_blocks`.
        let count = blocks.len() as u32;
        let schedule = Schedule::new(Algorithm::Circulant, members, self.call.root);
        let schedule = schedule.expect("a team has a valid number of members and root");
        let mut came = vec![None; blocks.len()];
        let mut sent = 0;
        let mut send_until = |transfers: &mut Transfers, came: &[Option<u32>], step| {
            while let Some(next) = schedule.next_send(rank, sent, count)
                && next.step < step
            {
                let block = next.block as usize;
                transfers.send(next.target, blocks[block].clone(), came[block]);
                sent = next.step + 1;
            }
        };
        let mut step = 0;
        while let Some(next) = schedule.next_receive(rank, step, count) {
            step = next.step + 1;
            send_until(&mut self.transfers, &came, step);
            let place = blocks[next.block as usize].clone();
            came[next.block as usize] =
                Some(self.transfers.receive(next.source, place, false, None));
        }
        send_until(&mut self.transfers, &came, u64::MAX);
    }

    /// Reduce-scatter and all-gather on a ring: [`RingRounds`]; or one of both.
    fn ring(&mut self) {
        let Settings { members, rank, .. } = *self.settings;
        let (next, previous) = (self.at(1), self.at(members - 1));
        // By chunk: the first receive of its last round, and the first send of its first.
        let mut came = vec![None; members as usize];
        let mut left = vec![None; members as usize];
        let rounds = RingRounds::new(members);
        for round in self.half_or_both(rounds.rounds()) {
            let sent = rounds.sent(rank, round);
            for (offset, block) in (0..).zip(self.blocks(self.place(sent))) {
                let after = came[sent as usize].map(|first: u32| first + offset);
                let index = self.transfers.send(next, block, after);
                left[sent as usize].get_or_insert(index);
            }
            let (received, folds) = (rounds.received(rank, round), rounds.folds(round));
            let mut first = None;
            for (offset, block) in (0..).zip(self.blocks(self.place(received))) {
                let after = if folds { None } else { left[received as usize] };
                let after = after.map(|first: u32| first + offset);
                let index = self.transfers.receive(previous, block, folds, after);
                first.get_or_insert(index);
            }
            came[received as usize] = first;
        }
    }

    /// Returns those of this many rounds that the call takes: the first half is a reduce-scatter, the second an all-gather.
    fn half_or_both(&self, rounds: u32) -> Range<u32> {
        match self.call.kind {
            Kind::ReduceScatter => 0..rounds / 2,
            Kind::AllGather => rounds / 2..rounds,
            _ => 0..rounds,
        }
    }

    /// Reduce-scatter and all-gather on the circulant graph: [`Halving`]; or one of both.
    fn halving(&mut self) {
        let rank = self.settings.rank;
        let rounds = Halving::new(self.settings.members);
        let (own, total) = (self.place(rank).start, self.place(self.settings.members - 1).end);
        // Chunks of a round follow one another from this member's on, and their blocks, so that they can be found by distance.
        let distance = |at: u64| if at >= own { at - own } else { total - own + at };
        // The receives by which what is sent is made, with where they begin: those of the round before, or of the second half.
        let mut made: Vec<(u64, u32)> = Vec::new();
        // The last receive, and the last one before those.
        let (mut last, mut before) = (None, None);
        // By round of the first half: its first send, which reads the memory of a round of the second half, block by block.
        let mut read = Vec::new();
        for round in self.half_or_both(rounds.rounds()) {
            let (to, from, folds) =
                (rounds.to(rank, round), rounds.from(rank, round), rounds.folds(round));
            let mut sends = None;
            for block in self.blocks_of(rounds.sent(rank, round)) {
                let end = distance(block.end - 1);
                let behind = made.partition_point(|&(start, _)| start <= end);
                let after = behind.checked_sub(1).map(|index| made[index].1).or(before);
                let index = self.transfers.send(to, block, after);
                sends.get_or_insert(index);
            }
            let over = if folds { None } else { read.pop().flatten() };
            if folds {
                read.push(sends);
            }
            if folds || round == rounds.rounds() / 2 {
                made.clear();
                before = last;
            }
            for (offset, block) in (0..).zip(self.blocks_of(rounds.received(rank, round))) {
                let after = over.map(|first: u32| first + offset);
                let start = distance(block.start);
                let index = self.transfers.receive(from, block, folds, after);
                made.push((start, index));
                last = Some(index);
            }
        }
    }

    /// Folded from the highest rank to rank 0, and the result back, at the same time: 2 m. In the order of ranks.
    fn chain_all_reduce(&mut self) {
        let Settings { members, rank, .. } = *self.settings;
        let (is_first, is_last) = (rank == 0, rank == members - 1);
        for block in self.blocks(0..self.call.bytes) {
            let folded =
                (!is_last).then(|| self.transfers.receive(rank + 1, block.clone(), true, None));
            let mut complete = folded;
            if !is_first {
                let sent = self.transfers.send(rank - 1, block.clone(), folded);
                complete = Some(self.transfers.receive(rank - 1, block.clone(), false, Some(sent)));
            }
            if !is_last {
                self.transfers.send(rank + 1, block, complete);
            }
        }
    }

    /// Folded around the ring, ending at the root: m.
    fn ring_reduce(&mut self) {
        let Settings { members, rank, .. } = *self.settings;
        let distance = (rank + members - self.call.root) % members;
        for block in self.blocks(0..self.call.bytes) {
            let folded = (distance != 1)
                .then(|| self.transfers.receive(self.at(members - 1), block.clone(), true, None));
            if distance != 0 {
                self.transfers.send(self.at(1), block, folded);
            }
        }
    }

    /// Folded from the highest rank to rank 0, and from there to the root: 2 m at most; of a reduce-scatter, each part from there to its
    /// member. In the order of ranks.
    fn chain_reduce(&mut self) {
        if self.call.kind == Kind::Reduce {
            return self.chain_reduce_to(self.call.root, 0..self.call.bytes);
        }
        for member in 0..self.settings.members {
            self.chain_reduce_to(member, self.place(member));
        }
    }

    fn chain_reduce_to(&mut self, root: u32, place: Range<u64>) {
        let Settings { members, rank, .. } = *self.settings;
        let path = match members {
            0..=ALL_PAIRS_MAX if root != 0 => vec![0, root],
            _ => BroadcastTree::new(members, 0).path(root),
        };
        let at = path.iter().position(|&member| member == rank);
        let before = at.and_then(|at| path.get(at.checked_sub(1)?)).copied();
        let behind = at.and_then(|at| path.get(at + 1)).copied();
        for block in self.blocks(place) {
            let folded = (rank < members - 1)
                .then(|| self.transfers.receive(rank + 1, block.clone(), true, None));
            let sent = (rank > 0).then(|| self.transfers.send(rank - 1, block.clone(), folded));
            let complete = match before {
                Some(before) => Some(self.transfers.receive(before, block.clone(), false, sent)),
                None => folded,
            };
            if let Some(behind) = behind {
                self.transfers.send(behind, block, complete);
            }
        }
    }

    /// Parts from the root along the [`crate::PartTree`], against the order of their places: those that go on come first.
    fn scatter(&mut self, way: Way) {
        let parts = Parts::of(self.call, way, self.settings);
        let mut came = Vec::new();
        if let Some(parent) = parts.parent() {
            for block in self.blocks_at(&parts.own()).into_iter().rev() {
                let start = block.start;
                came.push((start, self.transfers.receive(parent, block, false, None)));
            }
        }
        for (child, place) in parts.children() {
            for block in self.blocks_at(&place).into_iter().rev() {
                // Its last bytes to come are its first.
                let before = came.partition_point(|&(start, _)| start > block.start);
                let after = came.get(before).map(|&(_, index)| index);
                self.transfers.send(child, block, after);
            }
        }
    }

    /// Parts to the root: a scatter backwards.
    fn gather(&mut self, way: Way) {
        let parts = Parts::of(self.call, way, self.settings);
        let mut came = Vec::new();
        for (child, place) in parts.children().rev() {
            for block in self.blocks_at(&place) {
                let start = block.start;
                came.push((start, self.transfers.receive(child, block, false, None)));
            }
        }
        let Some(parent) = parts.parent() else { return };
        for block in self.blocks_at(&parts.own()) {
            let behind = came.partition_point(|&(start, _)| start < block.end);
            let after = behind.checked_sub(1).map(|last| came[last].1);
            self.transfers.send(parent, block, after);
        }
    }

    /// Returns the blocks of a place, in order.
    fn blocks_at(&self, place: &Place) -> Vec<Range<u64>> {
        self.blocks(place.first.clone()).chain(self.blocks(place.second.clone())).collect()
    }
}
