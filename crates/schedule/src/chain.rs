//! A chain: member v passes block b on to member v+1 at step b+v (DSN section 4.3).

use crate::flow::{Flow, Hop};

#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub members: u32,
}

impl Chain {
    /// How many steps after step b a member holds block b, at the latest.
    pub(crate) fn lag(&self, member: u32) -> u32 {
        member.saturating_sub(1)
    }
}

/// The transfer from `source` to the next member at `step`.
fn block_on_link(source: u32, step: u64, blocks: u32) -> Option<u32> {
    let block = step.checked_sub(u64::from(source))?;
    (block < u64::from(blocks)).then_some(block as u32)
}

impl Flow for Chain {
    fn steps(&self, blocks: u32) -> u64 {
        u64::from(blocks) + u64::from(self.members) - 2
    }

    fn send(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        if member + 1 == self.members {
            return None;
        }
        Some(Hop { step, peer: member + 1, block: block_on_link(member, step, blocks)? })
    }

    fn receive(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let peer = member.checked_sub(1)?;
        Some(Hop { step, peer, block: block_on_link(peer, step, blocks)? })
    }

    fn next_send(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        self.send(member, from.max(u64::from(member)), blocks)
    }

    fn next_receive(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        self.receive(member, from.max(u64::from(member.checked_sub(1)?)), blocks)
    }

    fn received_at(&self, member: u32, block: u32, _blocks: u32) -> u64 {
        u64::from(block) + u64::from(member - 1)
    }

    fn announcer(&self, member: u32) -> u32 {
        member - 1
    }

    fn neighbour_candidates(&self, _member: u32) -> u32 {
        2
    }

    fn neighbour(&self, member: u32, index: u32) -> Option<u32> {
        match index {
            0 => member.checked_sub(1),
            _ => Some(member + 1).filter(|&next| next < self.members),
        }
    }
}
