//! The root sends each block to member 1, 2 and so on before it sends the next block; switches that
//! copy packets combine the sends of a block into one transmission.

use crate::flow::{Flow, Hop};

#[derive(Debug, Clone)]
pub(crate) struct Fanout {
    pub members: u32,
}

impl Fanout {
    /// The number of members that receive.
    fn receivers(&self) -> u64 {
        u64::from(self.members - 1)
    }
}

impl Flow for Fanout {
    fn steps(&self, blocks: u32) -> u64 {
        u64::from(blocks) * self.receivers()
    }

    fn send(&self, member: u32, step: u64, _blocks: u32) -> Option<Hop> {
        let (block, place) = (step / self.receivers(), step % self.receivers());
        (member == 0).then_some(Hop { step, peer: place as u32 + 1, block: block as u32 })
    }

    fn receive(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let hop = self.send(0, step, blocks)?;
        (hop.peer == member).then_some(Hop { peer: 0, ..hop })
    }

    fn next_send(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        if from < self.steps(blocks) { self.send(member, from, blocks) } else { None }
    }

    fn next_receive(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        let place = u64::from(member.checked_sub(1)?);
        let block = from.saturating_sub(place).div_ceil(self.receivers());
        let step = block * self.receivers() + place;
        (block < u64::from(blocks)).then_some(Hop { step, peer: 0, block: block as u32 })
    }

    fn received_at(&self, member: u32, block: u32, _blocks: u32) -> u64 {
        u64::from(block) * self.receivers() + u64::from(member - 1)
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
