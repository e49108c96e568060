//! The effects of planted bugs.

use files::machines::{RangeList, Ranges, ToReceiver, ToRoot};

use super::{canary::PushCanary, line::Word, world::World};

impl World<'_> {
    /// Returns what is sent instead of a word, if anything is.
    pub(super) fn planted(&self, mut word: Word) -> Option<Word> {
        let Some(canary) = self.options.canary else { return Some(word) };
        match (canary, &mut word) {
            (PushCanary::ForgetsListing, Word::ToReceiver(ToReceiver::Listing { .. }))
            | (PushCanary::LosesReports, Word::ToRoot(ToRoot::GroupFailed { .. }))
            | (PushCanary::ForgetsReads, Word::ToRoot(ToRoot::Read { .. }))
            | (PushCanary::ForgetsPublish, Word::ToReceiver(ToReceiver::Publish)) => return None,
            (PushCanary::PublishesAlone, Word::ToReceiver(message @ ToReceiver::Store)) => {
                *message = ToReceiver::Publish;
            }
            (PushCanary::ClaimsAll, Word::ToRoot(ToRoot::GroupFailed { has, .. })) => {
                let all: Ranges = [(0, self.scenario.bytes)].into_iter().collect();
                *has = RangeList::from(&all);
            }
            (PushCanary::HidesFirewalls, Word::ToRoot(ToRoot::GroupFailed { unconnected, .. })) => {
                unconnected.clear();
            }
            (PushCanary::ClaimsNothing, Word::ToRoot(ToRoot::GroupFailed { has, .. })) => {
                *has = RangeList::default();
            }
            _ => {}
        }
        Some(word)
    }

    pub(super) fn planted_digest(&self, digest: blake3::Hash) -> blake3::Hash {
        match self.options.canary {
            Some(PushCanary::BelievesCopies) => blake3::hash(&self.source),
            _ => digest,
        }
    }

    pub(super) fn syncs(&self) -> bool {
        self.options.canary != Some(PushCanary::SkipsSync)
    }

    pub(super) fn looks(&self) -> bool {
        self.options.canary != Some(PushCanary::SkipsLook)
    }

    pub(super) fn trusts_leftovers(&self) -> bool {
        self.options.canary == Some(PushCanary::TrustsLeftovers)
    }
}
