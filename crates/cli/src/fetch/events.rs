//! The progress of a fetch as JSON objects, for programs.

use std::{
    collections::HashSet,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    time::{Duration, Instant},
};

use files::receiver::{Reception, VerifiedFile};
use serde::Serialize;

use crate::json;

/// The time between objects about the whole copy.
const PERIOD: Duration = Duration::from_secs(1);

/// Prints an object every second and one at the end, and one for each file as soon as it is verified.
pub struct Events {
    started: Instant,
    counted: Counted,
    /// Digests of destinations and versions of files: what is there is verified again with each further server.
    printed: HashSet<blake3::Hash>,
}

/// How much has come. Times are since the start.
#[derive(Default)]
struct Counted {
    bytes: Option<u64>,
    received_bytes: u64,
    /// When the last object about the whole copy was printed.
    last: Duration,
    /// What had come then; none if that was nothing, since the first of it may be from an earlier fetch.
    last_bytes: Option<u64>,
}

/// An object about the whole copy.
#[derive(PartialEq, Debug, Serialize)]
struct Whole {
    event: &'static str,
    /// The time since the start.
    seconds: f64,
    phase: &'static str,
    /// Length of the copy, once it is known.
    bytes: Option<u64>,
    /// The bytes of it that are in place.
    received_bytes: u64,
    /// The mean rate since the last object.
    rate_bits_per_second: u64,
}

/// An object about a file.
#[derive(Serialize)]
struct OneFile<'a> {
    event: &'static str,
    path: PathText<'a>,
    bytes: u64,
    at: PathText<'a>,
    destination: PathText<'a>,
    inode: u64,
}

/// A path: its text, or if that is not UTF-8 the list of its bytes.
#[derive(PartialEq, Debug, Serialize)]
#[serde(untagged)]
enum PathText<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> From<&'a Path> for PathText<'a> {
    fn from(path: &'a Path) -> Self {
        path.to_str().map_or_else(|| Self::Bytes(path.as_os_str().as_bytes()), Self::Text)
    }
}

impl Events {
    /// Counts times from now on.
    pub fn start() -> Self {
        Self { started: Instant::now(), counted: Counted::default(), printed: HashSet::new() }
    }

    /// Prints what is due.
    pub fn show(&mut self, reception: &Reception) {
        while let Some(file) = reception.take_verified_file() {
            if self.printed.insert(identity(&file)) {
                print(&OneFile::from(&file));
            }
        }
        self.counted.bytes = reception.offered_bytes();
        self.counted.received_bytes = reception.received_bytes();
        let now = self.started.elapsed();
        if now >= self.counted.last + PERIOD {
            let phase = self.counted.phase();
            print(&self.counted.object(now, phase));
        }
    }

    /// Prints the last object.
    pub fn finish(&mut self, is_published: bool) {
        let now = self.started.elapsed();
        if is_published {
            self.counted.received_bytes = self.counted.bytes.unwrap_or(0);
        }
        let phase = if is_published { "done" } else { "ending" };
        print(&self.counted.object(now, phase));
    }
}

impl Counted {
    fn phase(&self) -> &'static str {
        match (self.bytes, self.received_bytes) {
            (Some(bytes), received) if received >= bytes => "writing to disk",
            (None, _) | (_, 0) => "starting",
            _ => "replicating",
        }
    }

    fn object(&mut self, now: Duration, phase: &'static str) -> Whole {
        let Self { bytes, received_bytes, .. } = *self;
        let seconds = now.saturating_sub(self.last).as_secs_f64();
        let new = self.last_bytes.map_or(0, |last| received_bytes.saturating_sub(last));
        let rate_bits_per_second =
            if seconds > 0.0 { (new as f64 * 8.0 / seconds) as u64 } else { 0 };
        (self.last, self.last_bytes) = (now, Some(received_bytes).filter(|&bytes| bytes > 0));
        let (event, seconds) = ("progress", now.as_secs_f64());
        Whole { event, seconds, phase, bytes, received_bytes, rate_bits_per_second }
    }
}

impl<'a> From<&'a VerifiedFile> for OneFile<'a> {
    fn from(file: &'a VerifiedFile) -> Self {
        Self {
            event: "file",
            path: file.path.as_path().into(),
            bytes: file.bytes,
            at: file.at.as_path().into(),
            destination: file.destination.as_path().into(),
            inode: file.inode,
        }
    }
}

/// What is the same for a file that another server has as well.
fn identity(file: &VerifiedFile) -> blake3::Hash {
    blake3::keyed_hash(&file.version, file.destination.as_os_str().as_bytes())
}

fn print<T: Serialize>(object: &T) {
    // The fetch continues if standard error is closed.
    let _ = writeln!(io::stderr(), "{}", json::to_line(object));
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn the_rate_is_that_of_what_has_come_since_the_last_object() {
        let mut counted = Counted::default();
        let mut at = |seconds: u64, bytes, received_bytes| {
            (counted.bytes, counted.received_bytes) = (bytes, received_bytes);
            let phase = counted.phase();
            let object = counted.object(Duration::from_secs(seconds), phase);
            assert_eq!((object.bytes, object.received_bytes), (bytes, received_bytes));
            (object.phase, object.rate_bits_per_second)
        };
        assert_eq!(at(1, None, 0), ("starting", 0));
        assert_eq!(at(2, Some(5_000), 0), ("starting", 0));
        assert_eq!(at(3, Some(5_000), 1_000), ("replicating", 0), "it may have been there");
        assert_eq!(at(5, Some(5_000), 2_000), ("replicating", 4_000));
        assert_eq!(at(6, Some(5_000), 500), ("replicating", 0), "another server has begun");
        assert_eq!(at(7, Some(5_000), 5_000), ("writing to disk", 36_000));
        assert_eq!(at(8, Some(0), 0), ("writing to disk", 0), "an empty file");
    }

    #[test]
    fn a_path_is_text_or_the_list_of_its_bytes() {
        let path = |bytes: &'static [u8]| Path::new(OsStr::from_bytes(bytes));
        let file = VerifiedFile {
            path: path(b"in/gr\xc3\xb6\xc3\x9fer").to_owned(),
            bytes: 5,
            at: path(b"/\xff").to_owned(),
            destination: path(b"/copy").to_owned(),
            inode: 7,
            version: [0; 32],
        };
        let line = r#"{"schema":1,"event":"file","path":"in/größer","bytes":5,"at":[47,255],"destination":"/copy","inode":7}"#;
        assert_eq!(json::to_line(&OneFile::from(&file)), line);
    }
}
