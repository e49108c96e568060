//! Planted bugs between the decisions of both ends and their surroundings.

use std::{fmt, str::FromStr};

use files::machines::{RangeList, Ranges, ToReceiver, ToRoot};

use super::{line::Word, world::World};

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushCanary {
    /// What hosts have of an earlier session is not compared.
    TrustsLeftovers,
    /// A receiver takes any copy for the right one.
    BelievesCopies,
    /// Receivers do not say that a group has failed.
    LosesReports,
    /// A receiver says that it has everything whenever a group has failed.
    ClaimsAll,
    /// A receiver says that it has nothing whenever a group has failed.
    ClaimsNothing,
    /// Receivers are not told to publish.
    ForgetsPublish,
}

impl PushCanary {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TrustsLeftovers,
        Self::BelievesCopies,
        Self::LosesReports,
        Self::ClaimsAll,
        Self::ClaimsNothing,
        Self::ForgetsPublish,
    ];

    /// As it is displayed and parsed.
    pub fn name(self) -> &'static str {
        match self {
            Self::TrustsLeftovers => "trusts-leftovers",
            Self::BelievesCopies => "believes-copies",
            Self::LosesReports => "loses-reports",
            Self::ClaimsAll => "claims-all",
            Self::ClaimsNothing => "claims-nothing",
            Self::ForgetsPublish => "forgets-publish",
        }
    }
}

impl fmt::Display for PushCanary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PushCanary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|canary| canary.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|canary| canary.name()).collect();
            format!("{text:?} is no canary of pushes; use one of {}", names.join(", "))
        })
    }
}

impl World<'_> {
    /// What is said instead of a word, if anything is.
    pub(super) fn planted(&self, mut word: Word) -> Option<Word> {
        let Some(canary) = self.options.canary else { return Some(word) };
        match (canary, &mut word) {
            (PushCanary::LosesReports, Word::ToRoot(ToRoot::RoundFailed { .. }))
            | (PushCanary::ForgetsPublish, Word::ToReceiver(ToReceiver::Publish)) => return None,
            (PushCanary::ClaimsAll, Word::ToRoot(ToRoot::RoundFailed { has, .. })) => {
                let all: Ranges = [(0, self.scenario.bytes)].into_iter().collect();
                *has = RangeList::from(&all);
            }
            (PushCanary::ClaimsNothing, Word::ToRoot(ToRoot::RoundFailed { has, .. })) => {
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

    pub(super) fn trusts_leftovers(&self) -> bool {
        self.options.canary == Some(PushCanary::TrustsLeftovers)
    }
}
