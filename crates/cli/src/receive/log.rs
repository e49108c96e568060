//! The log of a receiver that listens: pushes, refusals and rejected connections.

use std::{
    collections::BTreeMap,
    fmt::Display,
    path::PathBuf,
    time::{Duration, Instant},
};

use files::{
    receiver::{ReceiveError, Record},
    shortened,
};

use super::{line_limit::LineLimit, root::Root};
use crate::failure::print_message;

/// The maximum number of roots whose lines are counted separately.
const ROOTS_MAX: usize = 1000;

/// Prints lines to standard error. Lines that a peer can cause are limited and counted.
#[derive(Debug)]
pub struct Log {
    started: Instant,
    /// Lines about peers that did not authenticate.
    rejected: LineLimit,
    /// Lines about pushes without a copy.
    failed: RootLines,
    /// Lines about copies.
    copied: RootLines,
}

/// Lines about roots, counted separately for each root.
#[derive(Debug)]
struct RootLines {
    limit: fn() -> LineLimit,
    /// The description of the lines, in the plural.
    what: &'static str,
    /// By [`Root::identity`].
    roots: BTreeMap<String, LineLimit>,
    /// The limit for all further roots together.
    others: LineLimit,
}

impl Log {
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            rejected: LineLimit::of_failures(),
            failed: RootLines::new(LineLimit::of_failures, "lines about"),
            copied: RootLines::new(LineLimit::of_copies, "lines about copies of"),
        }
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Logs that a peer has not authenticated.
    pub fn rejected(&mut self, error: impl Display) {
        self.count();
        if self.rejected.admits(self.now()) {
            print_message(format_args!("rejected: {}", shortened(&error.to_string())));
        }
    }

    /// Logs that a push was refused.
    pub fn refused(&mut self, root: &Root, reason: &str) {
        self.failure(root, format_args!("refused a push from {root}: {reason}"));
    }

    /// Logs the end of a session.
    pub fn ended(
        &mut self,
        root: &Root,
        outcome: &Result<Option<PathBuf>, ReceiveError>,
        record: &Record,
    ) {
        for note in &record.notes {
            self.failure(root, format_args!("for a push from {root}: {note}"));
        }
        let length = record.bytes.map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
        match (outcome, &record.destination) {
            (Ok(path), Some(_)) => {
                // Quotes keep a name from imitating the rest of the line.
                let what = path.as_ref().map_or("a stream".into(), |path| format!("{path:?}"));
                let digest = record.digest.map(|digest| blake3::Hash::from_bytes(digest).to_hex());
                let digest = digest.map_or(String::new(), |hex| format!(", blake3 {hex}"));
                self.count();
                if self.copied.admits(root, self.now()) {
                    print_message(format_args!("{what}{length}{digest} from {root}"));
                }
            }
            (Ok(_), None) => self.failure(root, format_args!("measured by {root}")),
            (Err(error), destination) => {
                let destination = destination.as_ref().map(|name| format!(" at {name:?}{length}"));
                let destination = destination.unwrap_or_default();
                let error = shortened(&error.to_string());
                self.failure(root, format_args!("no file{destination} from {root}: {error}"));
            }
        }
    }

    /// Prints the number of omitted lines, once a minute.
    pub fn count(&mut self) {
        let now = self.now();
        print_rejected(self.rejected.left_out(now));
        self.failed.count(now);
        self.copied.count(now);
    }

    /// Prints the number of lines that were omitted in the last, incomplete period.
    pub fn end(&mut self) {
        print_rejected(self.rejected.end());
        self.failed.end();
        self.copied.end();
    }

    fn failure(&mut self, root: &Root, line: impl Display) {
        self.count();
        if self.failed.admits(root, self.now()) {
            print_message(line);
        }
    }
}

impl RootLines {
    fn new(limit: fn() -> LineLimit, what: &'static str) -> Self {
        Self { limit, what, roots: BTreeMap::new(), others: limit() }
    }

    /// Whether one more line about this root may be printed now.
    fn admits(&mut self, root: &Root, now: Duration) -> bool {
        let identity = root.identity();
        let is_known = self.roots.contains_key(&identity);
        match is_known || self.roots.len() < ROOTS_MAX {
            true => self.roots.entry(identity).or_insert_with(self.limit).admits(now),
            false => self.others.admits(now),
        }
    }

    fn count(&mut self, now: Duration) {
        let Self { what, others, .. } = self;
        print_left_out(what, "other roots", others.left_out(now));
        self.roots.retain(|root, limit| {
            print_left_out(what, root, limit.left_out(now));
            !limit.is_idle()
        });
    }

    fn end(&mut self) {
        print_left_out(self.what, "other roots", self.others.end());
        for (root, limit) in &mut self.roots {
            print_left_out(self.what, root, limit.end());
        }
    }
}

fn print_rejected(left_out: Option<u64>) {
    if let Some(count) = left_out {
        print_message(format_args!("{count} more connections were rejected in the last minute"));
    }
}

fn print_left_out(what: &str, root: &str, left_out: Option<u64>) {
    if let Some(count) = left_out {
        print_message(format_args!(
            "{count} more {what} {root} were suppressed in the last minute"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_one_root_take_no_lines_of_failures_and_of_other_roots() {
        let (mut log, now) = (Log::start(), Duration::ZERO);
        let root = |address: &str| Root::at(address.parse().unwrap());
        let one = root("10.0.0.1:5");
        let admitted = (0..1000).filter(|_| log.copied.admits(&one, now)).count();
        assert_eq!(admitted, 200);
        assert!(log.copied.admits(&root("10.0.0.2:5"), now));
        let admitted = (0..1000).filter(|_| log.failed.admits(&one, now)).count();
        assert_eq!(admitted, 20);
    }
}
