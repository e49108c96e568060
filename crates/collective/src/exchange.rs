//! Short all-reduces, reduce-scatters and barriers by exchange: in each step a member writes what it has folded to another one, and folds what it
//! gets. After some log2 n steps all have the result ([`Partners`]); there is no way back from a root. n log2 n writes, instead of
//! 2 (n - 1) by trees, in fewer steps.

use crate::{Call, Partners, pieces::Pieces, settings::Settings};

/// What a member exchanges with its partners, by step.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) steps: Vec<Step>,
    pub(crate) pieces: u64,
}

/// One step at one member.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) outgoing: Option<Pieces>,
    pub(crate) incoming: Option<Pieces>,
    /// What comes is folded; otherwise it is the result.
    pub(crate) folds: bool,
}

impl Exchange {
    pub(crate) fn new(call: &Call, settings: &Settings) -> Self {
        let partners = Partners::of(call, settings.members);
        let bytes = call.all_bytes(settings.members);
        let step = |index: u32| {
            let meeting = partners.at(settings.rank, index);
            let all = |peer| Pieces::new(peer, 0..bytes, call, settings);
            Step {
                outgoing: meeting.to.map(all),
                incoming: meeting.from.map(all),
                folds: meeting.folds,
            }
        };
        Self {
            steps: (0..partners.steps()).map(step).collect(),
            pieces: settings.pieces(call, bytes),
        }
    }

    /// Returns the members to which this one writes.
    pub(crate) fn targets(&self) -> impl Iterator<Item = u32> + '_ {
        self.steps.iter().filter_map(|step| Some(step.outgoing.as_ref()?.peer))
    }

    /// Returns the members that write to this one.
    pub(crate) fn sources(&self) -> impl Iterator<Item = u32> + '_ {
        self.steps.iter().filter_map(|step| Some(step.incoming.as_ref()?.peer))
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.steps
            .iter()
            .all(|step| step.incoming.iter().chain(&step.outgoing).all(Pieces::are_done))
    }

    /// Returns the members that have to write something, or to free slots, in the order of steps.
    pub(crate) fn awaited(&self) -> Vec<u32> {
        let missing = |step: &Step| {
            let all = step.incoming.iter().chain(&step.outgoing);
            all.filter(|it| !it.are_done()).map(|it| it.peer).collect::<Vec<_>>()
        };
        self.steps.iter().flat_map(missing).collect()
    }
}
