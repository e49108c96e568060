//! Which messages a trace has, and the course of those that are looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::File,
    io::BufReader,
    path::Path,
};

use plan::size;
use serde_json::json;
use trace::{Lasting, Shown, Slice};

use crate::{
    course::Course,
    outcome::Outcome,
    report::{Report, ms},
};

/// All messages of a trace.
#[derive(Debug, Default)]
pub struct Messages {
    /// By group and number.
    all: BTreeMap<(u64, u64), Facts>,
    /// Events that the trace lacks.
    pub lost: u64,
}

#[derive(Debug)]
struct Facts {
    bytes: u64,
    members: BTreeSet<u32>,
    sends: u64,
    start_ns: u64,
    end_ns: u64,
}

impl Default for Facts {
    fn default() -> Self {
        Self { bytes: 0, members: BTreeSet::new(), sends: 0, start_ns: u64::MAX, end_ns: 0 }
    }
}

/// The messages that are looked at.
#[derive(Debug)]
pub struct Chosen {
    group: u64,
    messages: BTreeSet<u64>,
    bytes: u64,
}

impl Messages {
    /// Errors: the file cannot be read, or is no trace.
    pub fn in_file(path: &Path) -> Outcome<Self> {
        let mut messages = Self::default();
        each(path, |shown| match shown {
            Shown::Slice(slice) => messages.add(&slice),
            Shown::Lost(lost) => messages.lost += lost,
        })?;
        Ok(messages)
    }

    fn add(&mut self, slice: &Slice) {
        let Some(message) = slice.message else { return };
        let facts = self.all.entry((slice.group, message)).or_default();
        match slice.what {
            Lasting::Message => {
                facts.bytes = facts.bytes.max(slice.bytes.unwrap_or(0));
                facts.start_ns = facts.start_ns.min(slice.start_ns);
                facts.end_ns = facts.end_ns.max(slice.end_ns);
                facts.members.insert(slice.member);
            }
            Lasting::Send => facts.sends += 1,
            _ => {}
        }
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// As requested; by default the largest message of which blocks were sent.
    pub fn choose(&self, group: Option<u64>, messages: &[u64]) -> Outcome<Chosen> {
        let wanted = |(of, number): (u64, u64)| {
            group.is_none_or(|group| of == group)
                && (messages.is_empty() || messages.contains(&number))
        };
        let found = self.all.iter().filter(|&(&key, facts)| wanted(key) && facts.sends > 0);
        let largest = found.max_by_key(|(_, facts)| (facts.bytes, facts.start_ns));
        let (&(group, number), _) = largest.ok_or(
            "the trace shows no blocks of such a message; --list shows what it has. Small messages \
             are not sent in blocks, and with --offload members do not see their sends",
        )?;
        let messages: BTreeSet<u64> =
            if messages.is_empty() { [number].into() } else { messages.iter().copied().collect() };
        let mut bytes = 0;
        for &message in &messages {
            let facts = self.all.get(&(group, message));
            bytes += facts.ok_or(format!("group {group} has no message {message}"))?.bytes;
        }
        Ok(Chosen { group, messages, bytes })
    }

    /// A table of them.
    pub fn report(&self, path: &Path) -> Report {
        let what = format!("messages of {}", path.display());
        let mut report = Report::new("trace-summary", what).without_machine();
        for (&(group, message), facts) in &self.all {
            report.row([
                ("group", json!(group)),
                ("message", json!(message)),
                ("length", json!(size::show(facts.bytes))),
                ("members", json!(facts.members.len())),
                ("sends", json!(facts.sends)),
                ("start_ms", ms(facts.start_ns)),
                ("time_ms", ms(facts.end_ns.saturating_sub(facts.start_ns))),
            ]);
        }
        report
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.messages.len() == 1 { "" } else { "s" };
        let numbers: Vec<String> = self.messages.iter().map(ToString::to_string).collect();
        let (numbers, length) = (numbers.join(", "), size::show(self.bytes));
        write!(f, "message{plural} {numbers} of group {} ({length})", self.group)
    }
}

/// What happened to the blocks of these messages.
pub fn course(path: &Path, chosen: &Chosen) -> Outcome<Course> {
    let mut slices = Vec::new();
    each(path, |shown| {
        let Shown::Slice(slice) = shown else { return };
        let is_chosen = slice.message.is_some_and(|message| chosen.messages.contains(&message));
        if slice.group == chosen.group && is_chosen {
            slices.push(slice);
        }
    })?;
    Ok(Course::of_slices(&slices))
}

fn each(path: &Path, mut take: impl FnMut(Shown)) -> Outcome<()> {
    let file = File::open(path).map_err(named(path))?;
    for shown in trace::read(BufReader::with_capacity(1 << 16, file)) {
        take(shown.map_err(named(path))?);
    }
    Ok(())
}

fn named(path: &Path) -> impl Fn(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}
