//! Whole messages along a binomial tree (DSN section 4.3 and figure 3, left).
//!
//! In round i every member v < 2^i, all of which hold the message, sends it to v + 2^i. A round takes as many
//! steps as there are blocks.

use crate::flow::{Flow, Hop, ceil_log2, floor_log2};

#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub members: u32,
}

impl Tree {
    fn rounds(&self) -> u32 {
        ceil_log2(self.members)
    }

    /// The first round in which the member holds the message.
    fn first_round(member: u32) -> u32 {
        if member == 0 { 0 } else { floor_log2(member) + 1 }
    }

    fn child(&self, member: u32, round: u32) -> Option<u32> {
        if round < Self::first_round(member) || round >= self.rounds() {
            return None;
        }
        Some(member + (1 << round)).filter(|&child| child < self.members)
    }
}

impl Flow for Tree {
    fn steps(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.rounds())
    }

    fn send(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let k = u64::from(blocks);
        let peer = self.child(member, (step / k) as u32)?;
        Some(Hop { step, peer, block: (step % k) as u32 })
    }

    fn receive(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let round = floor_log2((member != 0).then_some(member)?);
        let k = u64::from(blocks);
        (step / k == u64::from(round)).then(|| Hop {
            step,
            peer: member - (1 << round),
            block: (step % k) as u32,
        })
    }

    fn next_send(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        // A member sends in consecutive rounds: if it has no child in this one, it has none later.
        let first = u64::from(Self::first_round(member)) * u64::from(blocks);
        let step = from.max(first);
        if step < self.steps(blocks) { self.send(member, step, blocks) } else { None }
    }

    fn next_receive(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        let round = floor_log2((member != 0).then_some(member)?);
        self.receive(member, from.max(u64::from(round) * u64::from(blocks)), blocks)
    }

    fn received_at(&self, member: u32, block: u32, blocks: u32) -> u64 {
        u64::from(floor_log2(member)) * u64::from(blocks) + u64::from(block)
    }

    fn announcer(&self, member: u32) -> u32 {
        member - (1 << floor_log2(member))
    }

    fn neighbour_candidates(&self, _member: u32) -> u32 {
        self.rounds() + 1
    }

    fn neighbour(&self, member: u32, index: u32) -> Option<u32> {
        match index.checked_sub(1) {
            None => (member != 0).then(|| self.announcer(member)),
            Some(round) => self.child(member, round),
        }
    }
}
