//! A trace file: a JSON array with one event on each line, of one process or joined from several.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longer lines are no events of ours.
pub(crate) const LINE_BYTES_MAX: u64 = 64 << 10;

/// What the process that writes a part needs of the whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Time 0 of the trace: ns since the epoch by the real-time clock.
    pub origin_ns: u64,
    /// Which process of the trace this is; `None` to show each member as a process, which is right
    /// where several members of a group live in one.
    pub process: Option<Process>,
}

/// How a trace shows the process that writes a part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Its place, from 0; unique in the trace.
    pub number: u32,
    /// Its name.
    pub name: String,
}

impl Part {
    /// A trace of its own that begins now.
    #[must_use]
    pub fn alone(process: Option<Process>) -> Self {
        Self { origin_ns: real_time_ns(), process }
    }
}

/// Ns since the epoch by this host's real-time clock.
pub(crate) fn real_time_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A trace that several processes write parts of, each into a file of its own.
#[derive(Debug)]
pub struct Trace {
    lines: Lines<BufWriter<File>>,
    origin_ns: u64,
}

impl Trace {
    /// Writes to this file, which should be empty; the trace begins now.
    ///
    /// Errors: writing fails.
    pub fn begin(out: File) -> io::Result<Self> {
        let lines = Lines::begin(BufWriter::new(out))?;
        Ok(Self { lines, origin_ns: real_time_ns() })
    }

    /// For the process that writes a part.
    #[must_use]
    pub fn part(&self, number: u32, name: impl Into<String>) -> Part {
        let process = Some(Process { number, name: name.into() });
        Part { origin_ns: self.origin_ns, process }
    }

    /// Adds what a process has written, as far as it got. Lines that are no JSON objects are left
    /// out: a process that was killed leaves half a line, and another host may write anything.
    ///
    /// Blocks while it copies. Errors: reading or writing fails.
    pub fn add(&mut self, part: impl Read) -> io::Result<()> {
        copy_events(&mut self.lines, part)
    }

    /// Ends the file. Errors: writing fails.
    pub fn finish(self) -> io::Result<()> {
        self.lines.end()
    }
}

/// Copies the lines that are events; see [`Trace::add`].
pub(crate) fn copy_events<W: Write>(to: &mut Lines<W>, part: impl Read) -> io::Result<()> {
    let mut part = BufReader::new(part);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = part.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let event = line.trim_ascii_end();
        let event = event.strip_suffix(b",").unwrap_or(event);
        // Read whole, and not only skipped, which would let pass what is no text.
        if serde_json::from_slice::<Map<String, Value>>(event).is_ok() {
            to.raw(event)?;
        }
    }
}

/// Events on lines of an array.
#[derive(Debug)]
pub(crate) struct Lines<W> {
    out: W,
    started: bool,
}

impl<W: Write> Lines<W> {
    pub(crate) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"[")?;
        Ok(Self { out, started: false })
    }

    pub(crate) fn event(&mut self, event: &impl Serialize) -> io::Result<()> {
        self.separate()?;
        Ok(serde_json::to_writer(&mut self.out, event)?)
    }

    fn raw(&mut self, event: &[u8]) -> io::Result<()> {
        self.separate()?;
        self.out.write_all(event)
    }

    fn separate(&mut self) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.started, true);
        self.out.write_all(if first { b"\n" } else { b",\n" })
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(crate) fn end(mut self) -> io::Result<()> {
        self.out.write_all(b"\n]\n")?;
        self.out.flush()
    }
}
