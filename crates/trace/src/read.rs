//! A trace file, read again by programs: what lasted, slice by slice.

use std::io::{self, BufRead, ErrorKind};

use serde::Deserialize;

use crate::file::LINE_BYTES_MAX;

/// What kind of thing lasted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lasting {
    /// A message at one member, from the first word of it to the end.
    Message,
    /// Nothing is being sent, and this is why.
    Wait(Reason),
    /// A block, from post to completion at the source.
    Send,
    /// A block, from the grant of its credit to its arrival at the target.
    Receive,
    /// The copy of a first block.
    Copy,
    /// From asking the application for memory until it is given.
    Memory,
}

/// Why a member sends nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// The next block of its schedule has not come.
    Block,
    /// The target has not posted the receive.
    Credit,
    /// The application has given no memory.
    Memory,
}

/// Something that lasted at a member. Times are in ns since the start of the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the documentation of the library has each of the facts")]
pub struct Slice {
    pub what: Lasting,
    pub start_ns: u64,
    pub end_ns: u64,
    pub group: u64,
    pub member: u32,
    pub peer: Option<u32>,
    pub message: Option<u64>,
    pub step: Option<u64>,
    pub block: Option<u32>,
    pub bytes: Option<u64>,
    /// Nobody has seen its end, which is that of the trace here.
    pub unfinished: bool,
}

/// The part of a trace that programs can rely on; arrows, names and other points are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Something that lasted.
    Slice(Slice),
    /// This many events are missing here, since they came too fast.
    Lost(u64),
}

/// Reads a file that this crate wrote, in its order, which is by the ends of slices within each
/// process. A file whose end is missing gives what there is.
///
/// Blocks while it reads, in memory for one line. Errors of the iterator: reading fails, or a line
/// is not an event of such a file (it is named by its number, from 1).
pub fn read(input: impl BufRead) -> impl Iterator<Item = io::Result<Shown>> {
    let mut lines = Lines { input, number: 0, line: Vec::new() };
    std::iter::from_fn(move || lines.next_shown().transpose())
}

struct Lines<R> {
    input: R,
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    fn next_shown(&mut self) -> io::Result<Option<Shown>> {
        loop {
            self.number += 1;
            self.line.clear();
            let mut limited = io::Read::take(&mut self.input, LINE_BYTES_MAX);
            if limited.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            let line = self.line.trim_ascii();
            let event = line.strip_suffix(b",").unwrap_or(line);
            if matches!(event, b"" | b"[" | b"]") {
                continue;
            }
            let wrong = |why: String| {
                let text = format!("line {} is not an event of an rdmc trace: {why}", self.number);
                io::Error::new(ErrorKind::InvalidData, text)
            };
            let event: Event =
                serde_json::from_slice(event).map_err(|error| wrong(error.to_string()))?;
            if let Some(shown) = event.shown().map_err(wrong)? {
                return Ok(Some(shown));
            }
        }
    }
}

/// Events as far as they matter here.
#[derive(Deserialize)]
#[serde(tag = "ph")]
enum Event {
    #[serde(rename = "X")]
    Slice { name: String, cat: String, ts: f64, dur: f64, args: Facts },
    #[serde(rename = "i")]
    Point { name: String },
    #[serde(rename = "s", alias = "f", alias = "M")]
    Other {},
}

#[derive(Deserialize)]
struct Facts {
    group: u64,
    member: u32,
    peer: Option<u32>,
    message: Option<u64>,
    step: Option<u64>,
    block: Option<u32>,
    bytes: Option<u64>,
    #[serde(default)]
    unfinished: bool,
}

impl Event {
    fn shown(self) -> Result<Option<Shown>, String> {
        let (name, cat, ts, dur, facts) = match self {
            Self::Slice { name, cat, ts, dur, args } => (name, cat, ts, dur, args),
            Self::Point { name } => {
                let lost = name.strip_suffix(" events were lost").map(str::parse);
                return Ok(lost.and_then(Result::ok).map(Shown::Lost));
            }
            Self::Other {} => return Ok(None),
        };
        let what = match cat.as_str() {
            "message" => Lasting::Message,
            "wait" if name.starts_with("waits for block") => Lasting::Wait(Reason::Block),
            "wait" if name.starts_with("waits for credit") => Lasting::Wait(Reason::Credit),
            "wait" if name.starts_with("waits for memory") => Lasting::Wait(Reason::Memory),
            "send" => Lasting::Send,
            "receive" => Lasting::Receive,
            "copy" => Lasting::Copy,
            "memory" => Lasting::Memory,
            other => return Err(format!("a slice \"{name}\" of category \"{other}\"")),
        };
        let (start_ns, end_ns) = (ns(ts)?, ns(ts + dur)?);
        let Facts { group, member, peer, message, step, block, bytes, unfinished } = facts;
        Ok(Some(Shown::Slice(Slice {
            what,
            start_ns,
            end_ns: end_ns.max(start_ns),
            group,
            member,
            peer,
            message,
            step,
            block,
            bytes,
            unfinished,
        })))
    }
}

fn ns(micros: f64) -> Result<u64, String> {
    // Up to a century, which u64 and f64 both have to the µs.
    let fits = (0.0..3e15).contains(&micros);
    if fits { Ok((micros * 1e3).round() as u64) } else { Err(format!("a time of {micros} µs")) }
}
