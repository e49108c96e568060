//! How the progress thread waits.

use std::{fmt, str::FromStr};

use crate::Error;

/// How the progress thread waits for completions (DSN 2018 sections 4.2 and 5.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum CompletionMode {
    /// Sleeps until the next completion. For members that share a core.
    #[default]
    EventOnly,
    /// Polls for 50 ms after the last completion, then sleeps until the next.
    Hybrid,
    /// Never sleeps; requires a core of its own.
    Polling,
}

impl CompletionMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::EventOnly, Self::Hybrid, Self::Polling];

    /// Returns `event`, `hybrid` or `polling`.
    pub fn name(self) -> &'static str {
        match self {
            Self::EventOnly => "event",
            Self::Hybrid => "hybrid",
            Self::Polling => "polling",
        }
    }
}

impl fmt::Display for CompletionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CompletionMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            Error::setting("completion", format!("{text:?}"), "event, hybrid or polling")
        })
    }
}
