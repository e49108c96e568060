//! Names of planted bugs between a member of a team and its network, or its application.

use std::{fmt, str::FromStr};

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TeamCanary {
    /// Contributions are not folded in the order of ranks.
    FoldsAsTheyCome,
    /// A piece is sent before it is complete: with the contents of the one before.
    SendsTooEarly,
    /// A block is sent before it is complete: with the contents of the one before.
    SendsOldBlocks,
    /// More blocks are granted than there is memory for.
    GrantsTooMany,
    /// A slot is written before it was freed.
    ReusesSlots,
    /// Freed slots are not reported.
    KeepsSlots,
    /// A write goes to the slot beside its own.
    MisplacesWrite,
    /// The arrival of a write is reported twice.
    ReportsTwice,
    /// The arrival of a write is never reported.
    LosesWrite,
    /// A write has completed twice, so that its staged slot is used by two.
    CompletesTwice,
    /// The completion of a write is never reported.
    LosesCompletion,
    /// Others are not told of a failure.
    DropsNotice,
    /// The notice of a failure names another member.
    BlamesAnother,
    /// The end of a connection is never reported.
    MissesEnds,
    /// Others are not told that this member has left.
    ForgetsBye,
    /// Others are not told what this member waits for.
    NeverAsks,
    /// Others are told that this member waits for another than it does.
    AwaitsAnother,
    /// No operation times out.
    MissesTimeouts,
}

impl TeamCanary {
    /// All planted bugs.
    pub const ALL: [Self; 18] = [
        Self::FoldsAsTheyCome,
        Self::SendsTooEarly,
        Self::SendsOldBlocks,
        Self::GrantsTooMany,
        Self::ReusesSlots,
        Self::KeepsSlots,
        Self::MisplacesWrite,
        Self::ReportsTwice,
        Self::LosesWrite,
        Self::CompletesTwice,
        Self::LosesCompletion,
        Self::DropsNotice,
        Self::BlamesAnother,
        Self::MissesEnds,
        Self::ForgetsBye,
        Self::NeverAsks,
        Self::AwaitsAnother,
        Self::MissesTimeouts,
    ];

    /// Returns the name as it is displayed and parsed.
    pub fn name(self) -> &'static str {
        match self {
            Self::FoldsAsTheyCome => "folds-as-they-come",
            Self::SendsTooEarly => "sends-too-early",
            Self::SendsOldBlocks => "sends-old-blocks",
            Self::GrantsTooMany => "grants-too-many",
            Self::ReusesSlots => "reuses-slots",
            Self::KeepsSlots => "keeps-slots",
            Self::MisplacesWrite => "misplaces-write",
            Self::ReportsTwice => "reports-twice",
            Self::LosesWrite => "loses-write",
            Self::CompletesTwice => "completes-twice",
            Self::LosesCompletion => "loses-completion",
            Self::DropsNotice => "drops-notice",
            Self::BlamesAnother => "blames-another",
            Self::MissesEnds => "misses-ends",
            Self::ForgetsBye => "forgets-bye",
            Self::NeverAsks => "never-asks",
            Self::AwaitsAnother => "awaits-another",
            Self::MissesTimeouts => "misses-timeouts",
        }
    }
}

impl fmt::Display for TeamCanary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TeamCanary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|canary| canary.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|canary| canary.name()).collect();
            format!("{text:?} is no canary of teams; use one of {}", names.join(", "))
        })
    }
}
