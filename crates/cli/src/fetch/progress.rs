//! The progress of a fetch: a bar on a terminal, lines or objects elsewhere.

use std::time::{Duration, Instant};

use files::receiver::Reception;
use indicatif::{ProgressBar, ProgressStyle};
use plan::size;

use super::events::Events;
use crate::{failure::print_message, progress::Shown};

/// How often a line is printed where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of one fetch, from any number of servers.
pub enum Progress {
    Bar(ProgressBar),
    Lines { next: Instant },
    Events(Box<Events>),
    Hidden,
}

impl Progress {
    pub fn start(shown: Shown) -> Self {
        match shown {
            Shown::Bars => {
                let style = "{wide_bar} {percent:>3}% {bytes_per_sec:>12} eta {eta:>4}";
                let style = ProgressStyle::with_template(style);
                let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
                Self::Bar(ProgressBar::new(0).with_style(style))
            }
            Shown::Plain => Self::Lines { next: Instant::now() + LINE_INTERVAL },
            Shown::Json => Self::Events(Box::new(Events::start())),
            Shown::Nothing => Self::Hidden,
        }
    }

    /// Whether each verified file is shown.
    pub fn shows_files(&self) -> bool {
        matches!(self, Self::Events(_))
    }

    /// Shows how much has come.
    pub fn show(&mut self, reception: &Reception) {
        let (received, all) = (reception.received_bytes(), reception.offered_bytes());
        match self {
            Self::Bar(bar) => {
                if let Some(all) = all {
                    bar.set_length(all);
                    bar.set_position(received.min(all));
                }
            }
            Self::Lines { next } if Instant::now() >= *next => {
                *next = Instant::now() + LINE_INTERVAL;
                let of = all.map_or(String::new(), |all| format!(" of {}", size::show(all)));
                print_message(format_args!("{}{of}", size::show(received)));
            }
            Self::Events(events) => events.show(reception),
            Self::Lines { .. } | Self::Hidden => {}
        }
    }

    /// Clears the bar or prints the last object, and shows nothing more.
    pub fn finish(&mut self, is_published: bool) {
        match std::mem::replace(self, Self::Hidden) {
            Self::Bar(bar) => bar.finish_and_clear(),
            Self::Events(mut events) => events.finish(is_published),
            Self::Lines { .. } | Self::Hidden => {}
        }
    }
}
