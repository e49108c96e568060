//! When members notice that a group failed: their logs, read as they are written.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    thread::{self, JoinHandle},
    time::Instant,
};

/// `RUST_LOG` for `rdmc push --verbose`, so that members log failures.
pub const LOGS: &str = "rdmc=debug";
/// What members log when a group fails.
const FAILED: &str = "group failed";
/// Precedes the host's name in lines of receivers.
const BEFORE_HOST: &str = "rdmc: ";

/// Reads until the push has ended.
pub struct Notices(JoinHandle<Vec<(Instant, String)>>);

impl Notices {
    /// Begins to read the standard error of a push.
    pub fn read(from: impl Read + Send + 'static) -> Self {
        let read = move || {
            let mut noticed = Vec::new();
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if line.contains(FAILED) {
                    noticed.push((Instant::now(), host_of(&line)));
                }
            }
            noticed
        };
        Self(thread::spawn(read))
    }

    /// The time from `failed_at` until each member noticed, in seconds, without the hosts in
    /// `excluded`. Blocks until the push has ended.
    pub fn since(self, failed_at: Instant, excluded: &[String]) -> Vec<f64> {
        let mut first: BTreeMap<String, f64> = BTreeMap::new();
        for (at, host) in self.0.join().unwrap_or_default() {
            if at >= failed_at && !excluded.contains(&host) {
                first.entry(host).or_insert((at - failed_at).as_secs_f64());
            }
        }
        first.into_values().collect()
    }
}

/// The host that wrote a line; empty for the root.
fn host_of(line: &str) -> String {
    let named = line.strip_prefix(BEFORE_HOST).and_then(|rest| rest.split_once(": "));
    named.map_or_else(String::new, |(host, _)| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_notice_of_each_survivor_counts() {
        let before = Instant::now();
        let log = "rdmc: h1: 2026 DEBUG rdmc::engine: group failed failure=x\n\
                   2026 DEBUG rdmc::engine: group failed failure=x\n\
                   rdmc: h1: 2026 DEBUG rdmc::engine: group failed failure=x\n\
                   rdmc: h2: 2026 DEBUG rdmc::engine: group closed\n\
                   rdmc: h3: 2026 DEBUG rdmc::engine: group failed failure=x\n";
        let noticed = Notices::read(log.as_bytes()).since(before, &["h3".to_owned()]);
        assert_eq!(noticed.len(), 2);
        let later = Instant::now();
        assert!(Notices::read(&b""[..]).since(later, &[]).is_empty());
    }
}
