//! Names of planted bugs between a context's creations and its network.

use std::{fmt, str::FromStr};

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreationCanary {
    /// Answers are sometimes not sent.
    LosesAnswers,
    /// An answer names another channel.
    AnswersAnother,
    /// The end of a connection is not reported.
    MissesEnds,
    /// Nothing happens at its time.
    MissesTimeouts,
    /// A channel is never given back.
    KeepsChannels,
}

impl CreationCanary {
    /// All planted bugs.
    pub const ALL: [Self; 5] = [
        Self::LosesAnswers,
        Self::AnswersAnother,
        Self::MissesEnds,
        Self::MissesTimeouts,
        Self::KeepsChannels,
    ];

    /// Returns the name as it is displayed and parsed.
    pub fn name(self) -> &'static str {
        match self {
            Self::LosesAnswers => "loses-answers",
            Self::AnswersAnother => "answers-another",
            Self::MissesEnds => "misses-ends",
            Self::MissesTimeouts => "misses-timeouts",
            Self::KeepsChannels => "keeps-channels",
        }
    }
}

impl fmt::Display for CreationCanary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CreationCanary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|canary| canary.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|canary| canary.name()).collect();
            format!("{text:?} is no canary of creations; use one of {}", names.join(", "))
        })
    }
}
