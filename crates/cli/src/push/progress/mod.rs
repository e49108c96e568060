//! Progress of a push on standard error: bars on a terminal, lines elsewhere.

mod display;
mod hosts;
mod lines;
mod reporter;

use files::PushEvent;

pub use display::Display;
use hosts::Hosts;
use lines::{Format, Lines};
use reporter::Reporter;

use crate::progress::{Mode, Shown};

/// The progress of one push.
pub enum Progress {
    Bars(Box<Display>),
    Lines(Reporter),
    Hidden,
}

impl Progress {
    /// Starts to show the progress of these hosts. `is_logged`: logs go to standard error too, and bars would overwrite them.
    pub fn start(mode: Mode, names: &[String], bytes: u64, is_logged: bool) -> Self {
        let format = match mode.shown(is_logged) {
            Shown::Nothing => return Self::Hidden,
            Shown::Bars => return Self::Bars(Box::new(Display::new(names, bytes, false))),
            Shown::Plain => Format::Plain,
            Shown::Json => Format::Json,
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
