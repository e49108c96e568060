//! Names of planted bugs between a context's creations and its network.

use std::{fmt, str::FromStr};

use rdmc::creation::messages::Message;

use super::node::choice;
use crate::dice::Dice;

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreationCanary {
    /// Answers are sometimes not sent.
    LosesAnswers,
    /// An answer names another channel.
    AnswersAnother,
    /// Others are told something else than the root has chosen.
    TellsAnother,
    /// The end of a connection is not reported.
    MissesEnds,
    /// Nothing happens at its time.
    MissesTimeouts,
    /// A channel is never given back.
    KeepsChannels,
}

impl CreationCanary {
    /// All planted bugs.
    pub const ALL: [Self; 6] = [
        Self::LosesAnswers,
        Self::AnswersAnother,
        Self::TellsAnother,
        Self::MissesEnds,
        Self::MissesTimeouts,
        Self::KeepsChannels,
    ];

    /// Returns the name as it is displayed and parsed.
    pub fn name(self) -> &'static str {
        match self {
            Self::LosesAnswers => "loses-answers",
            Self::AnswersAnother => "answers-another",
            Self::TellsAnother => "tells-another",
            Self::MissesEnds => "misses-ends",
            Self::MissesTimeouts => "misses-timeouts",
            Self::KeepsChannels => "keeps-channels",
        }
    }
}

impl CreationCanary {
    /// Changes a message that is to be sent. Returns whether it is sent.
    pub(super) fn passes(self, message: &mut Message, dice: &mut Dice) -> bool {
        match (self, message) {
            (Self::LosesAnswers, Message::Accepts { .. } | Message::Chose { .. }) => {
                !dice.percent(30)
            }
            (
                Self::AnswersAnother,
                Message::Accepts { channel } | Message::Chose { channel, .. },
            ) => {
                *channel += 2;
                true
            }
            (Self::TellsAnother, Message::Chose { choice: told, .. }) => {
                *told = choice(*told == choice(false));
                true
            }
            _ => true,
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
