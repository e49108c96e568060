//! The log of a receiver that listens: who pushed what, and who was rejected.

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

/// The most roots whose lines are counted apart.
const ROOTS_MAX: usize = 1000;

/// Prints lines to standard error. Lines that cost a peer nothing are limited and counted; those of copies are not.
#[derive(Debug)]
pub struct Log {
    started: Instant,
    /// Of peers that did not authenticate.
    rejected: LineLimit,
    /// Of roots without a copy, by [`Root::identity`].
    failed: BTreeMap<String, LineLimit>,
    /// Of all further roots.
    others: LineLimit,
}

impl Log {
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            rejected: LineLimit::default(),
            failed: BTreeMap::new(),
            others: LineLimit::default(),
        }
    }

    /// Since the start, for what counts time.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// A peer has not authenticated.
    pub fn rejected(&mut self, error: impl Display) {
        self.count();
        if self.rejected.admits(self.now()) {
            print_message(format_args!("rejected: {}", shortened(&error.to_string())));
        }
    }

    /// A session is not served.
    pub fn refused(&mut self, root: &Root, reason: &str) {
        self.failure(root, format_args!("refused a push from {root}: {reason}"));
    }

    /// A session has ended.
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
                let what = path.as_ref().map_or("a stream".into(), |path| path.to_string_lossy());
                let digest = record.digest.map(|digest| blake3::Hash::from_bytes(digest).to_hex());
                let digest = digest.map_or(String::new(), |hex| format!(", blake3 {hex}"));
                print_message(format_args!("{what}{length}{digest} from {root}"));
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

    /// Prints how many lines were left out, once a minute.
    pub fn count(&mut self) {
        let now = self.now();
        print_rejected(self.rejected.left_out(now));
        print_failed("other roots", self.others.left_out(now));
        self.failed.retain(|root, limit| {
            print_failed(root, limit.left_out(now));
            !limit.is_idle()
        });
    }

    /// Prints how many lines were left out since.
    pub fn end(&mut self) {
        print_rejected(self.rejected.end());
        print_failed("other roots", self.others.end());
        self.failed.iter_mut().for_each(|(root, limit)| print_failed(root, limit.end()));
    }

    fn failure(&mut self, root: &Root, line: impl Display) {
        self.count();
        let (now, identity) = (self.now(), root.identity());
        let is_known = self.failed.contains_key(&identity);
        let limit = match is_known || self.failed.len() < ROOTS_MAX {
            true => self.failed.entry(identity).or_default(),
            false => &mut self.others,
        };
        if limit.admits(now) {
            print_message(line);
        }
    }
}

fn print_rejected(left_out: Option<u64>) {
    if let Some(count) = left_out {
        print_message(format_args!("{count} more connections were rejected in the last minute"));
    }
}

fn print_failed(root: &str, left_out: Option<u64>) {
    if let Some(count) = left_out {
        print_message(format_args!(
            "{count} more lines about {root} were left out in the last minute"
        ));
    }
}
