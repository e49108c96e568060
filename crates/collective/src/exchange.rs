//! Short all-reduces and barriers by exchange: in each step a member writes what it has folded to another one, and folds what it
//! gets. After some log2 n steps all have the result ([`Partners`]); there is no way back from a root. n log2 n writes, instead of
//! 2 (n - 1) by trees, in fewer steps.

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
    pub(crate) outgoing: Option<Outgoing>,
    pub(crate) incoming: Option<Incoming>,
    /// What comes is folded; otherwise it is the result.
    pub(crate) folds: bool,
}

impl Exchange {
    pub(crate) fn new(call: &Call, settings: &Settings) -> Self {
        let partners = Partners::of(call, settings.members);
        let step = |index: u32| {
            let meeting = partners.at(settings.rank, index);
            let incoming = |from| Incoming::new(from, 0..call.bytes, call, settings);
            let outgoing = |to| Outgoing { to, place: 0..call.bytes, pieces: 0 };
            Step {
                outgoing: meeting.to.map(outgoing),
                incoming: meeting.from.map(incoming),
                folds: meeting.folds,
            }
        };
        Self {
            steps: (0..partners.steps()).map(step).collect(),
            pieces: settings.pieces(call, call.bytes),
        }
    }

    /// Returns the members to which this one writes.
    pub(crate) fn targets(&self) -> impl Iterator<Item = u32> + '_ {
        self.steps.iter().filter_map(|step| Some(step.outgoing.as_ref()?.to))
    }

    /// Returns the members that write to this one.
    pub(crate) fn sources(&self) -> impl Iterator<Item = u32> + '_ {
        self.steps.iter().filter_map(|step| Some(step.incoming.as_ref()?.from))
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.steps.iter().all(|step| {
            step.incoming.as_ref().is_none_or(|it| it.pieces == self.pieces)
                && step.outgoing.as_ref().is_none_or(|it| it.pieces == self.pieces)
        })
    }

    /// Returns the members that have to write something, or to free slots, in the order of steps.
    pub(crate) fn awaited(&self) -> Vec<u32> {
        let missing = |step: &Step| {
            let incoming = step.incoming.as_ref().filter(|it| it.pieces < self.pieces);
            let outgoing = step.outgoing.as_ref().filter(|it| it.pieces < self.pieces);
            [incoming.map(|it| it.from), outgoing.map(|it| it.to)]
        };
        self.steps.iter().flat_map(missing).flatten().collect()
    }
}
