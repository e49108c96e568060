//! Short all-reduces and barriers by exchange: in step j each member writes what it has folded to the member at rank XOR 2^j,
//! and folds what that one has written. After log2 n steps all have the result; there is no way back from a root.
//!
//! For powers of two. The members whose contributions a member has folded are contiguous ranks, and both partners fold the lower
//! ones first: any associative function is right, and all members have the same bits. n log2 n writes, instead of 2 (n - 1) by
//! trees, in fewer steps.

use crate::{
    Call, Partners,
    part::{Incoming, Outgoing},
    settings::Settings,
};

/// What a member exchanges with its partners, by step.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) steps: Vec<Step>,
    pub(crate) pieces: u64,
}

/// One step at one member.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
}

impl Exchange {
    pub(crate) fn new(call: &Call, partners: Partners, settings: &Settings) -> Self {
        let step = |index: u32| {
            let partner = partners.partner(settings.rank, index);
            let incoming = Incoming::new(partner, 0..call.bytes, call, settings);
            let outgoing = Outgoing { to: partner, place: 0..call.bytes, pieces: 0 };
            Step { outgoing, incoming }
        };
        Self {
            steps: (0..partners.steps()).map(step).collect(),
            pieces: settings.pieces(call, call.bytes),
        }
    }

    pub(crate) fn partners(&self) -> impl Iterator<Item = u32> + '_ {
        self.steps.iter().map(|step| step.outgoing.to)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.steps.iter().all(|step| self.is_over(step))
    }

    fn is_over(&self, step: &Step) -> bool {
        step.incoming.pieces == self.pieces && step.outgoing.pieces == self.pieces
    }

    /// Returns the partners that have to write something, or to free slots, in the order of steps.
    pub(crate) fn awaited(&self) -> Vec<u32> {
        let steps = self.steps.iter().filter(|step| !self.is_over(step));
        steps.map(|step| step.outgoing.to).collect()
    }
}
