//! The binomial pipeline for any number of members (DSN section 4.4, extended with twins).
//!
//! 2^l vertices of a hypercube, l = floor(log2 n), vertex 0 being the root. At step j every vertex exchanges a
//! block with its neighbour along direction j mod l. Call a step *set* for a vertex when the direction's bit is
//! set in the vertex's number. All that follows rests on one property of the paper's rule: the block that a
//! vertex sends is always the one it received at its last set step.
//!
//! # When each vertex receives
//!
//! Vertex v receives its first block at step floor(log2 v), and from step l on one block at every step up to
//! k+l-2. At an unset step j it receives block j-l; at a set step, block j-l+r, where r is the number of steps
//! to its next set step; always at most block k-1.
//!
//! # Twins
//!
//! When n is not a power of two, vertices 1 ..= n-2^l hold a pair of members: v itself and v+2^l-1. At every step
//! one of the two is the pair's *receiver* and takes the vertex's incoming block; the other does the vertex's
//! send. The two change roles after each set step: so the sender is the one that received at the last set step,
//! and holds the block to send. Meanwhile the receiver hands its twin the last block that it received for the
//! vertex: the one of the step before when roles did not change since, otherwise that of the last set step but
//! one. Each twin thus holds at most one block that the other lacks, and one extra step at the end, in which
//! both hand over, completes the pair: k-1+l+1 steps. With a single block the extra step is one more step along
//! direction 0 instead, which the twins without the block receive, so that a member's first source is the same
//! for every k.

use crate::flow::{Flow, Hop, floor_log2, scan};

#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    members: u32,
    /// l, at least 1.
    dimensions: u32,
}

impl Pipeline {
    /// For at least two members.
    pub(crate) fn new(members: u32) -> Self {
        Self { members, dimensions: floor_log2(members) }
    }

    /// How many steps after step b a member holds block b, at the latest.
    ///
    /// A vertex receives block b at step b+l at the latest, and a twin hands it over one step later at the latest.
    pub(crate) fn lag(&self, member: u32) -> u32 {
        match self.vertex(member) {
            0 => 0,
            vertex => self.dimensions + u32::from(self.paired(vertex)),
        }
    }

    fn vertices(&self) -> u32 {
        1 << self.dimensions
    }

    fn vertex(&self, member: u32) -> u32 {
        if member < self.vertices() { member } else { member + 1 - self.vertices() }
    }

    fn paired(&self, vertex: u32) -> bool {
        vertex != 0 && vertex <= self.members - self.vertices()
    }

    /// The other member on a paired vertex.
    fn twin(&self, member: u32) -> u32 {
        if member < self.vertices() {
            member + self.vertices() - 1
        } else {
            member + 1 - self.vertices()
        }
    }

    fn direction(&self, step: u64) -> u32 {
        (step % u64::from(self.dimensions)) as u32
    }

    fn across(&self, vertex: u32, step: u64) -> u32 {
        vertex ^ 1 << self.direction(step)
    }

    fn is_set(&self, vertex: u32, step: u64) -> bool {
        vertex >> self.direction(step) & 1 == 1
    }

    /// sigma(n, r) of DSN section 4.4: the vertex's l bits rotated right, so that bit i is that of direction
    /// (step + i) mod l.
    fn rotated(&self, vertex: u32, step: u64) -> u32 {
        let right = self.direction(step);
        (vertex >> right | vertex << (self.dimensions - right)) & (self.vertices() - 1)
    }

    /// The last step before `step` that is set for `vertex`, which must not be 0.
    fn previous_set(&self, vertex: u32, step: u64) -> u64 {
        let back = self.dimensions - floor_log2(self.rotated(vertex, step));
        step.saturating_sub(u64::from(back))
    }

    /// The first step after `step` that is set for `vertex`, which must not be 0.
    fn next_set(&self, vertex: u32, step: u64) -> u64 {
        step + 1 + u64::from(self.rotated(vertex, step + 1).trailing_zeros())
    }

    /// The number of hypercube steps, k-1+l; the step after the last is the twins' extra one.
    fn hypercube_steps(&self, blocks: u32) -> u64 {
        u64::from(blocks) - 1 + u64::from(self.dimensions)
    }

    /// The member that receives for the vertex at `step`.
    ///
    /// Roles have changed F times, the number of earlier set steps; v receives when F is even.
    fn receiver(&self, vertex: u32, step: u64) -> u32 {
        if !self.paired(vertex) {
            return vertex;
        }
        let turns = (step / u64::from(self.dimensions)) as u32;
        let below = vertex & ((1 << self.direction(step)) - 1);
        let changes = (turns & vertex.count_ones()).wrapping_add(below.count_ones());
        if changes & 1 == 0 { vertex } else { self.twin(vertex) }
    }

    /// The member that sends for the vertex at `step`.
    fn sender(&self, vertex: u32, step: u64) -> u32 {
        let receiver = self.receiver(vertex, step);
        if self.paired(vertex) { self.twin(receiver) } else { receiver }
    }

    /// The block that a vertex sends at a hypercube step: the formula of DSN section 4.4.
    fn block_sent(&self, vertex: u32, step: u64, blocks: u32) -> Option<u32> {
        let last = u64::from(blocks) - 1;
        if vertex == 0 {
            return Some(step.min(last) as u32);
        }
        let sigma = self.rotated(vertex, step);
        if sigma == 1 {
            return None; // the neighbour is the root
        }
        let block =
            (step + u64::from(sigma.trailing_zeros())).checked_sub(u64::from(self.dimensions))?;
        Some(block.min(last) as u32)
    }

    /// The block that a vertex receives at a hypercube step.
    fn block_received(&self, vertex: u32, step: u64, blocks: u32) -> Option<u32> {
        if vertex == 0 {
            return None;
        }
        self.block_sent(self.across(vertex, step), step, blocks)
    }

    /// What a pair's receiver hands its twin at `step`.
    fn block_handed(&self, vertex: u32, step: u64, blocks: u32) -> Option<u32> {
        let before = step.checked_sub(1)?;
        if before < u64::from(self.dimensions) {
            return None; // only one of the twins holds anything yet
        }
        let obtained =
            if self.is_set(vertex, before) { self.previous_set(vertex, before) } else { before };
        self.block_received(vertex, obtained, blocks)
    }

    /// What `member` hands its twin at the extra step that ends a message of two blocks or more.
    fn block_swapped(&self, member: u32, blocks: u32) -> Option<u32> {
        let (vertex, end) = (self.vertex(member), self.hypercube_steps(blocks));
        if !self.paired(vertex) {
            None
        } else if self.receiver(vertex, end) == member {
            self.block_handed(vertex, end, blocks)
        } else {
            self.block_received(vertex, self.previous_set(vertex, end), blocks)
        }
    }

    /// The step at which a vertex other than 0 receives `block`.
    fn vertex_received_at(&self, vertex: u32, block: u32, blocks: u32) -> u64 {
        if block == blocks - 1 {
            return self.previous_set(vertex, self.hypercube_steps(blocks));
        }
        let latest = u64::from(block) + u64::from(self.dimensions);
        if self.is_set(vertex, latest) { self.previous_set(vertex, latest) } else { latest }
    }

    /// At most this many steps pass between two sends, or two receives, of a member that has any left.
    fn longest_pause(&self) -> u64 {
        u64::from(self.dimensions) + 3
    }
}

impl Flow for Pipeline {
    fn steps(&self, blocks: u32) -> u64 {
        self.hypercube_steps(blocks) + u64::from(!self.members.is_power_of_two())
    }

    fn send(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let vertex = self.vertex(member);
        let extra = step == self.hypercube_steps(blocks);
        if extra && blocks > 1 {
            return Some(Hop {
                step,
                peer: self.twin(member),
                block: self.block_swapped(member, blocks)?,
            });
        }
        if self.sender(vertex, step) != member {
            return Some(Hop {
                step,
                peer: self.twin(member),
                block: self.block_handed(vertex, step, blocks)?,
            });
        }
        let target = self.across(vertex, step);
        if extra && !self.paired(target) {
            return None;
        }
        Some(Hop {
            step,
            peer: self.receiver(target, step),
            block: self.block_sent(vertex, step, blocks)?,
        })
    }

    fn receive(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        let vertex = self.vertex(member);
        let extra = step == self.hypercube_steps(blocks);
        if extra && !self.paired(vertex) {
            return None;
        }
        if extra && blocks > 1 {
            let peer = self.twin(member);
            return Some(Hop { step, peer, block: self.block_swapped(peer, blocks)? });
        }
        if self.receiver(vertex, step) != member {
            return Some(Hop {
                step,
                peer: self.twin(member),
                block: self.block_handed(vertex, step, blocks)?,
            });
        }
        let block = self.block_received(vertex, step, blocks)?;
        Some(Hop { step, peer: self.sender(self.across(vertex, step), step), block })
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
        let vertex = self.vertex(member);
        let obtained = self.vertex_received_at(vertex, block, blocks);
        if self.receiver(vertex, obtained) == member {
            obtained
        } else if blocks > 1 && self.is_set(vertex, obtained) {
            // Handed over after the next change of roles, or at the extra step.
            (self.next_set(vertex, obtained) + 1).min(self.hypercube_steps(blocks))
        } else if blocks > 1 {
            obtained + 1
        } else {
            self.hypercube_steps(blocks)
        }
    }

    fn announcer(&self, member: u32) -> u32 {
        // One of a pair receives first at floor(log2 v), the other at step l.
        let vertex = self.vertex(member);
        let first = u64::from(floor_log2(vertex));
        let step =
            if self.receiver(vertex, first) == member { first } else { u64::from(self.dimensions) };
        self.sender(self.across(vertex, step), step)
    }

    fn neighbour_candidates(&self, _member: u32) -> u32 {
        1 + 2 * self.dimensions
    }

    fn neighbour(&self, member: u32, index: u32) -> Option<u32> {
        let vertex = self.vertex(member);
        let Some(index) = index.checked_sub(1) else {
            return self.paired(vertex).then(|| self.twin(member));
        };
        let other = vertex ^ 1 << (index / 2);
        match index % 2 {
            0 => Some(other),
            _ => self.paired(other).then(|| self.twin(other)),
        }
    }
}
