//! Progress of a push on standard error: bars on a terminal, lines elsewhere.

mod display;
mod hosts;
mod lines;
mod reporter;

use std::io::IsTerminal;

use clap::ValueEnum;
use files::PushEvent;

pub use display::Display;
use hosts::Hosts;
use lines::{Format, Lines};
use reporter::Reporter;

/// How progress is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mode {
    /// Bars on a terminal, else as plain
    Auto,
    /// A line each 10 seconds
    Plain,
    /// A JSON object each second, and one at the end (docs/exit-codes.md)
    Json,
    /// Nothing
    None,
}

/// The progress of one push.
pub enum Progress {
    Bars(Box<Display>),
    Lines(Reporter),
    Hidden,
}

impl Progress {
    /// Shows these hosts from now on. `is_logged`: logs are on standard error too, which bars would overwrite.
    pub fn start(mode: Mode, names: &[String], bytes: u64, is_logged: bool) -> Self {
        let has_bars = !is_logged && std::io::stderr().is_terminal();
        let format = match mode {
            Mode::None => return Self::Hidden,
            Mode::Auto if has_bars => {
                return Self::Bars(Box::new(Display::new(names, bytes, false)));
            }
            Mode::Auto | Mode::Plain => Format::Plain,
            Mode::Json => Format::Json,
        };
        // Without a thread the push goes on without lines.
        Reporter::start(Hosts::new(names, bytes), Lines::new(format))
            .map_or(Self::Hidden, Self::Lines)
    }

    /// Shows an event.
    pub fn show(&mut self, event: &PushEvent) {
        match self {
            Self::Bars(display) => display.show(event),
            Self::Lines(reporter) => reporter.note(event),
            Self::Hidden => {}
        }
    }

    /// Clears the bars, or ends the lines.
    pub fn finish(&mut self) {
        match self {
            Self::Bars(display) => display.finish(),
            Self::Lines(reporter) => reporter.finish(),
            Self::Hidden => {}
        }
    }
}
