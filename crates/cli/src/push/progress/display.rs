//! Progress on a terminal.

use std::{
    fmt::Write,
    io::IsTerminal,
    time::{Duration, Instant},
};

use console::Term;
use files::PushEvent;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use plan::size;

use super::{
    hosts::{Host, Hosts, Overview, Phase, Stage},
    lines::name_with_state,
};
use crate::failure::plain;

/// Lines of the terminal that are not for hosts: the overall bar, the slowest host, the shell's lines.
const OTHER_LINES: usize = 4;
/// The maximum number of hosts with a line, on any terminal.
const HOST_LINES_MAX: usize = 100;
/// The maximum number of columns of a name: a line then needs at most 45 columns; messages are truncated to the rest.
const NAME_COLUMNS_MAX: usize = 24;
/// The time between updates while only byte counts change.
const UPDATE_PERIOD: Duration = Duration::from_millis(100);

/// A bar for the bytes that every host has, the slowest host, and a bar for each host, or for the slowest ones if not all fit. On
/// standard error.
pub struct Display {
    bars: MultiProgress,
    overall: ProgressBar,
    /// The line for the slowest host, once it has a text.
    slowest: Option<ProgressBar>,
    lines: Vec<ProgressBar>,
    lines_max: usize,
    hosts: Hosts,
    title: String,
    updated: Instant,
}

impl Display {
    /// A display for these hosts; hidden if `hidden`, or if standard error is not a terminal.
    pub fn new(names: &[String], bytes: u64, hidden: bool) -> Self {
        let hidden = hidden || !std::io::stderr().is_terminal();
        let target =
            if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bars = MultiProgress::with_draw_target(target);
        let overall = bars.add(ProgressBar::new(bytes));
        let with_rate = style("{msg:16!} {wide_bar} {percent:>3}% {rate:>9} eta {eta:>4}")
            .with_key("rate", write_rate);
        overall.set_style(with_rate);
        overall.set_message(Phase::Starting.name());
        overall.enable_steady_tick(Duration::from_millis(250));
        let (rows, _) = Term::stderr().size();
        let lines_max = usize::from(rows).saturating_sub(OTHER_LINES).clamp(1, HOST_LINES_MAX);
        let (hosts, title) = (Hosts::new(names, bytes), String::new());
        let (slowest, lines, updated) = (None, Vec::new(), Instant::now());
        let mut display = Self { bars, overall, slowest, lines, lines_max, hosts, title, updated };
        display.update();
        display
    }

    /// Sets a title, shown instead of the number of receivers.
    pub fn set_title(&mut self, title: &str) {
        title.clone_into(&mut self.title);
    }

    /// Shows an event.
    pub fn show(&mut self, event: &PushEvent) {
        self.hosts.note(event);
        match event {
            PushEvent::Round { members } => {
                self.overall.reset_eta();
                self.overall.set_message(match self.title.as_str() {
                    "" => format!("to {} receivers", members - 1),
                    title => title.to_owned(),
                });
            }
            PushEvent::Publishing | PushEvent::Stopping { .. } => {
                self.overall.set_message(self.hosts.phase().name());
            }
            PushEvent::Progress { .. } if self.updated.elapsed() < UPDATE_PERIOD => return,
            _ => {}
        }
        self.update();
    }

    /// Clears the display.
    pub fn finish(&self) {
        for bar in [&self.overall].into_iter().chain(&self.slowest).chain(&self.lines) {
            bar.finish_and_clear();
        }
        // A broken terminal is no reason to fail.
        let _ = self.bars.clear();
    }

    fn update(&mut self) {
        self.updated = Instant::now();
        let shown = self.hosts.most_relevant(self.lines_max);
        let overview = self.hosts.overview();
        self.overall.set_position(overview.received);
        let text = plain(&summary(&overview, self.hosts.all().len(), shown.len()));
        if !text.is_empty() {
            let make = || {
                let line = self.bars.insert_after(&self.overall, ProgressBar::new(0));
                line.set_style(style("  {wide_msg}"));
                line
            };
            self.slowest.get_or_insert_with(make).set_message(text);
        }
        while self.lines.len() < shown.len() {
            let bar = self.bars.add(ProgressBar::new(self.hosts.bytes()));
            bar.set_style(style("  {prefix} {bar:10} {wide_msg}"));
            self.lines.push(bar);
        }
        let names = shown.iter().map(|&index| self.hosts.all()[index].name.chars().count());
        let width = names.max().unwrap_or(0).min(NAME_COLUMNS_MAX);
        for (bar, &index) in self.lines.iter().zip(&shown) {
            let host = &self.hosts.all()[index];
            bar.set_prefix(format!("{:width$.width$}", plain(&host.name)));
            bar.set_position(host.received);
            bar.set_message(plain(words(host)));
        }
    }
}

/// The text after the bar of a host.
fn words(host: &Host) -> &str {
    match host.stage {
        Stage::Receiving => "",
        _ if !host.reason.is_empty() => &host.reason,
        stage => stage.name(),
    }
}

/// The line below the overall bar; empty for a single host.
fn summary(overview: &Overview<'_>, all: usize, shown: usize) -> String {
    let mut parts = Vec::new();
    if all > 1 {
        parts.extend(overview.slowest.map(|host| format!("slowest {}", name_with_state(host))));
        parts.push(format!("{} of {all} hosts done", overview.done));
    }
    if overview.failed > 0 {
        parts.push(format!("{} failed", overview.failed));
    }
    if all > shown {
        parts.push(format!("{} not shown", all - shown));
    }
    parts.join(", ")
}

fn write_rate(state: &ProgressState, out: &mut dyn Write) {
    // Writing to memory does not fail.
    let _ = out.write_str(&size::show_rate((state.per_sec() * 8.0) as u64));
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; an invalid one would give the default bar.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=>-")
}

#[cfg(test)]
mod tests {
    use files::HostState;

    use super::*;

    #[test]
    fn the_slowest_host_and_what_is_not_shown_are_named() {
        let names: Vec<String> = (0..120).map(|index| format!("h{index}")).collect();
        let mut display = Display::new(&names, 1000, true);
        display.lines_max = 20;
        (0..120).for_each(|host| display.show(&PushEvent::Host { host, state: HostState::Ready }));
        for host in 0..120 {
            let bytes = if host == 77 { 1 } else { 500 };
            display.show(&PushEvent::Progress { host, bytes });
        }
        display.show(&PushEvent::Host { host: 0, state: HostState::Published });
        display.show(&PushEvent::Host { host: 1, state: HostState::Failed("it died".into()) });
        assert_eq!(
            display.slowest.as_ref().unwrap().message(),
            "slowest h77 (1 B), 1 of 120 hosts done, 1 failed, 100 not shown"
        );
        assert_eq!(display.lines[0].prefix(), "h77");
        assert_eq!(display.overall.position(), 1);
    }

    #[test]
    fn few_hosts_keep_their_lines() {
        let mut display = Display::new(&["a".into(), "b".into()], 1000, true);
        display.lines_max = 20;
        let lost = PushEvent::Retry { host: 1, start: 1, reason: "it died".into() };
        display.show(&lost);
        let lines: Vec<_> = display.lines.iter().map(|bar| (bar.prefix(), bar.message())).collect();
        assert_eq!(
            lines,
            [("a".into(), "waiting".into()), ("b".into(), "lost (it died), start 2".into())]
        );
        display.show(&PushEvent::Joined { host: 2, name: "late".into() });
        assert_eq!(display.lines[2].prefix(), "late");
    }
}
