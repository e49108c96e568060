//! Names of planted bugs between connections and their streams, clock or owner.

use std::{fmt, str::FromStr};

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireCanary {
    /// A stream takes a byte more than it says, so that it is sent again.
    RepeatsBytes,
    /// Two bytes on the way change places.
    SwapsBytes,
    /// The completion of a post is not reported.
    LosesCompletion,
    /// The completion of a post is reported twice.
    CompletesTwice,
    /// Two control words are reported in the opposite order.
    ReordersWords,
    /// The end of a channel is not reported.
    MissesEnds,
    /// A close is forgotten.
    ForgetsClose,
    /// Memory stays leased after its post has completed.
    KeepsMemory,
    /// A block is sent on before it has arrived.
    SendsTooSoon,
    /// Streams are not protected, although both ends take them to be.
    LeavesUnprotected,
    /// Timers are not handled.
    MissesTimeouts,
    /// Timers are handled before it is told what has come.
    TellsLate,
}

impl WireCanary {
    /// All planted bugs.
    pub const ALL: [Self; 12] = [
        Self::RepeatsBytes,
        Self::SwapsBytes,
        Self::LosesCompletion,
        Self::CompletesTwice,
        Self::ReordersWords,
        Self::MissesEnds,
        Self::ForgetsClose,
        Self::KeepsMemory,
        Self::SendsTooSoon,
        Self::LeavesUnprotected,
        Self::MissesTimeouts,
        Self::TellsLate,
    ];

    /// Returns the name as it is displayed and parsed.
    pub fn name(self) -> &'static str {
        match self {
            Self::RepeatsBytes => "repeats-bytes",
            Self::SwapsBytes => "swaps-bytes",
            Self::LosesCompletion => "loses-completion",
            Self::CompletesTwice => "completes-twice",
            Self::ReordersWords => "reorders-words",
            Self::MissesEnds => "misses-ends",
            Self::ForgetsClose => "forgets-close",
            Self::KeepsMemory => "keeps-memory",
            Self::SendsTooSoon => "sends-too-soon",
            Self::LeavesUnprotected => "leaves-unprotected",
            Self::MissesTimeouts => "misses-timeouts",
            Self::TellsLate => "tells-late",
        }
    }
}

impl fmt::Display for WireCanary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for WireCanary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|canary| canary.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|canary| canary.name()).collect();
            format!("{text:?} is no canary of the wire; use one of {}", names.join(", "))
        })
    }
}
