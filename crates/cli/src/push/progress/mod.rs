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
    /// Bars on a terminal, otherwise plain
    Auto,
    /// A line every 10 seconds
    Plain,
    /// A JSON object every second, and one at the end (docs/reference/exit-codes.md)
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
    /// Starts to show the progress of these hosts. `is_logged`: logs go to standard error too, and bars would overwrite them.
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
        // If no thread can be started, the push continues without lines.
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
