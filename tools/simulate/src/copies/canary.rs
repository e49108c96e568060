//! Planted bugs between the decisions of a receiver and its system calls.

use std::{fmt, str::FromStr};

use files::simulation::Bug;

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyCanary(Bug);

impl CopyCanary {
    /// All planted bugs.
    pub const ALL: [Self; 6] = [
        Self(Bug::CreatesOver),
        Self(Bug::RenamesOver),
        Self(Bug::ChangesByPath),
        Self(Bug::IgnoresChangeTime),
        Self(Bug::ExchangesAnything),
        Self(Bug::LinksEarly),
    ];

    /// Returns the name as it is displayed and parsed.
    pub fn name(self) -> &'static str {
        match self.0 {
            Bug::CreatesOver => "creates-over",
            Bug::RenamesOver => "renames-over",
            Bug::ChangesByPath => "changes-by-path",
            Bug::IgnoresChangeTime => "ignores-change-time",
            Bug::ExchangesAnything => "exchanges-anything",
            Bug::LinksEarly => "links-early",
        }
    }

    pub(super) fn bug(self) -> Bug {
        self.0
    }
}

impl fmt::Display for CopyCanary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CopyCanary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|canary| canary.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|canary| canary.name()).collect();
            format!("{text:?} is no canary of copies; use one of {}", names.join(", "))
        })
    }
}
