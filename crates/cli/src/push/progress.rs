//! Progress of a push on a terminal.

use std::{io::IsTerminal, time::Duration};

use files::{HostState, PushEvent};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::plain;

/// The most hosts with a bar of their own.
const HOST_BARS_MAX: usize = 16;
/// The most columns of a name, so that a line needs 45 columns at most; messages are truncated to the rest.
const NAME_COLUMNS_MAX: usize = 24;

/// One bar for the slowest receiver, and one for each host if there are few. On standard error.
pub struct Display {
    bars: MultiProgress,
    overall: ProgressBar,
    hosts: Vec<HostLine>,
    /// Columns of the names.
    width: usize,
    bytes: u64,
    title: String,
}

struct HostLine {
    bar: Option<ProgressBar>,
    received: u64,
    /// Whether the overall bar includes it.
    counts: bool,
}

impl Display {
    /// A display for these hosts; hidden if `hidden`, or if standard error is not a terminal.
    pub fn new(names: &[String], bytes: u64, hidden: bool) -> Self {
        let hidden = hidden || !std::io::stderr().is_terminal();
        let target =
            if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bars = MultiProgress::with_draw_target(target);
        let overall = bars.add(ProgressBar::new(bytes));
        overall.set_style(style(
            "{msg:16!} {wide_bar} {percent:>3}% {binary_bytes_per_sec:>12} eta {eta:>4}",
        ));
        overall.set_message("starting");
        overall.enable_steady_tick(Duration::from_millis(250));
        let width = names.iter().map(String::len).max().unwrap_or(0).min(NAME_COLUMNS_MAX);
        let title = String::new();
        let mut display = Self { bars, overall, hosts: Vec::new(), width, bytes, title };
        let has_bars = names.len() <= HOST_BARS_MAX;
        display.hosts = names.iter().map(|name| display.line(name, has_bars)).collect();
        display
    }

    fn line(&self, name: &str, has_bar: bool) -> HostLine {
        let bar = has_bar.then(|| {
            let bar = self.bars.add(ProgressBar::new(self.bytes));
            bar.set_style(style("  {prefix} {bar:10} {wide_msg}"));
            bar.set_prefix(format!("{:width$.width$}", plain(name), width = self.width));
            bar.set_message("waiting");
            bar
        });
        HostLine { bar, received: 0, counts: true }
    }

    /// Adds a line for a host that has joined.
    fn add_host(&mut self, name: &str) {
        let has_bars = self.hosts.len() < HOST_BARS_MAX;
        self.hosts.push(self.line(name, has_bars));
    }

    /// Sets a title, shown instead of the number of receivers.
    pub fn set_title(&mut self, title: &str) {
        title.clone_into(&mut self.title);
    }

    /// Shows an event.
    pub fn show(&mut self, event: &PushEvent) {
        match event {
            PushEvent::Host { host, state } => self.show_state(*host, state),
            PushEvent::Joined { name, .. } => self.add_host(name),
            PushEvent::Round { members } => {
                self.overall.reset_eta();
                self.overall.set_message(match self.title.as_str() {
                    "" => format!("to {} receivers", members - 1),
                    title => title.to_owned(),
                });
            }
            PushEvent::Progress { host, bytes } => {
                if let Some(line) = self.hosts.get_mut(*host) {
                    line.set_received(*bytes);
                }
                self.update();
            }
            PushEvent::Retry { host, start, reason } => {
                if let Some(line) = self.hosts.get_mut(*host) {
                    line.set_received(0);
                    if let Some(bar) = &line.bar {
                        bar.set_message(format!("lost ({reason}), start {}", start + 1));
                    }
                }
                self.update();
            }
            PushEvent::Deferred { host, .. } => {
                if let Some(line) = self.hosts.get_mut(*host) {
                    line.counts = false;
                    if let Some(bar) = &line.bar {
                        bar.set_message("delays the others: deferred until they are done");
                    }
                }
                self.update();
            }
            // Part of the summary.
            PushEvent::FellBack { .. } => {}
            PushEvent::Publishing => self.overall.set_message("writing to disk"),
            PushEvent::Stopping { .. } => self.overall.set_message("ending"),
        }
    }

    /// Clears the display.
    pub fn finish(&self) {
        self.overall.finish_and_clear();
        self.hosts
            .iter()
            .filter_map(|host| host.bar.as_ref())
            .for_each(ProgressBar::finish_and_clear);
        // A broken terminal is no reason to fail.
        let _ = self.bars.clear();
    }

    fn show_state(&mut self, index: usize, state: &HostState) {
        let Some(line) = self.hosts.get_mut(index) else { return };
        let message = match state {
            HostState::Awaited => "waiting",
            HostState::Preparing => "preparing",
            HostState::Ready => "",
            HostState::Received => "verifying",
            HostState::Published => "done",
            HostState::Failed(reason) | HostState::Unknown(reason) => reason,
        };
        line.counts = !matches!(state, HostState::Failed(_) | HostState::Unknown(_));
        if matches!(state, HostState::Received | HostState::Published) {
            line.set_received(self.bytes);
        }
        if let Some(bar) = &line.bar {
            bar.set_message(plain(message));
        }
        self.update();
    }

    fn update(&self) {
        let counted = self.hosts.iter().filter(|host| host.counts);
        self.overall.set_position(counted.map(|host| host.received).min().unwrap_or(0));
    }
}

impl HostLine {
    fn set_received(&mut self, bytes: u64) {
        self.received = bytes;
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; an invalid one would give the default bar.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=>-")
}
