//! How the progress of a command is shown.

use std::io::IsTerminal;

use clap::ValueEnum;

/// How progress is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mode {
    /// Bars on a terminal, otherwise plain
    Auto,
    /// A line every 10 seconds
    Plain,
    /// A JSON object every second, and one at the end (docs/reference/exit-codes.md)
    Json,
    /// Nothing
    None,
}

/// A mode once it is known what standard error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    Bars,
    Plain,
    Json,
    Nothing,
}

impl Mode {
    /// What is shown. `is_logged`: logs go to standard error too, and bars would overwrite them.
    pub fn shown(self, is_logged: bool) -> Shown {
        match self {
            Self::None => Shown::Nothing,
            Self::Auto if !is_logged && std::io::stderr().is_terminal() => Shown::Bars,
            Self::Auto | Self::Plain => Shown::Plain,
            Self::Json => Shown::Json,
        }
    }
}
