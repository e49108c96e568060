//! The root sends the whole message to member 1, then to member 2, and so on (DSN section 4.3).

use crate::flow::{Flow, Hop};

#[derive(Debug, Clone)]
pub(crate) struct Sequential {
    pub members: u32,
}

impl Flow for Sequential {
    fn steps(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.members - 1)
    }

    fn send(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let k = u64::from(blocks);
        (member == 0).then(|| Hop { step, peer: (step / k) as u32 + 1, block: (step % k) as u32 })
    }

    fn receive(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let hop = self.send(0, step, blocks)?;
        (hop.peer == member).then_some(Hop { peer: 0, ..hop })
    }

    fn next_send(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        if from < self.steps(blocks) { self.send(member, from, blocks) } else { None }
    }

    fn next_receive(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        let first = self.received_at(member.checked_sub(1)? + 1, 0, blocks);
        let step = from.max(first);
        (step - first < u64::from(blocks)).then(|| Hop {
            step,
            peer: 0,
            block: (step - first) as u32,
        })
    }

    fn received_at(&self, member: u32, block: u32, blocks: u32) -> u64 {
        u64::from(member - 1) * u64::from(blocks) + u64::from(block)
    }

    fn announcer(&self, _member: u32) -> u32 {
        0
    }

    fn neighbour_candidates(&self, member: u32) -> u32 {
        if member == 0 { self.members - 1 } else { 1 }
    }

    fn neighbour(&self, member: u32, index: u32) -> Option<u32> {
        Some(if member == 0 { index + 1 } else { 0 })
    }
}
