//! The progress of a fetch: a bar on a terminal, lines elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use files::receiver::Reception;
use indicatif::{ProgressBar, ProgressStyle};
use plan::size;

use crate::failure::print_message;

/// How often a line is printed where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of one attempt.
pub struct Progress {
    bar: Option<ProgressBar>,
    /// When a line is due.
    next_line: Option<Instant>,
}

impl Progress {
    /// `is_hidden`: shows nothing.
    pub fn start(is_hidden: bool) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let style = "{wide_bar} {percent:>3}% {bytes_per_sec:>12} eta {eta:>4}";
        let bar = (!is_hidden && is_terminal).then(|| {
            let style = ProgressStyle::with_template(style);
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let has_lines = !is_hidden && !is_terminal;
        Self { bar, next_line: has_lines.then(|| Instant::now() + LINE_INTERVAL) }
    }

    /// Shows how much has come.
    pub fn show(&mut self, reception: &Reception) {
        let (received, all) = (reception.received_bytes(), reception.offered_bytes());
        if let (Some(bar), Some(all)) = (&self.bar, all) {
            bar.set_length(all);
            bar.set_position(received.min(all));
        }
        if self.next_line.is_some_and(|at| Instant::now() >= at) {
            self.next_line = Some(Instant::now() + LINE_INTERVAL);
            let of = all.map_or(String::new(), |all| format!(" of {}", size::show(all)));
            print_message(format_args!("{}{of}", size::show(received)));
        }
    }

    /// Clears the bar, and shows nothing more.
    pub fn finish(&mut self) {
        self.next_line = None;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
