//! What the library logs, for Python's `logging`. A thread of Python takes the records: threads of the library never wait for the
//! interpreter.

use std::{
    fmt::{self, Write as _},
    ptr,
    sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering},
};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use pyo3::prelude::*;
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber, callsite, dispatcher,
    field::{Field, Visit},
    span,
};

use crate::guard::Process;

/// How many records wait for Python at most. Later ones are left out, and counted.
const WAITING_MAX: usize = 1024;
/// Python's number of a warning.
const WARNING: u8 = 30;

/// A record: its level as a number of Python, its logger, and its text.
type Record = (u8, String, String);

/// Of a process: in a fork of it, threads that it lacks may wait for these channels.
struct Log {
    process: Process,
    /// The lowest level that is taken, as a number of Python.
    least: AtomicU8,
    give: Sender<Record>,
    records: Receiver<Record>,
    left_out: AtomicUsize,
    end: Sender<()>,
    ended: Receiver<()>,
}

/// Null, or one that is never freed.
static LOG: AtomicPtr<Log> = AtomicPtr::new(ptr::null_mut());

impl Log {
    fn new(least: u8) -> Self {
        let ((give, records), (end, ended)) = (bounded(WAITING_MAX), bounded(1));
        let (least, left_out) = (AtomicU8::new(least), AtomicUsize::new(0));
        Self { process: Process::this(), least, give, records, left_out, end, ended }
    }

    /// That of this process, or of the one that it is a fork of.
    fn current() -> Option<&'static Self> {
        // SAFETY: null, or leaked by `log_from`, so that it is valid as long as the process.
        unsafe { LOG.load(Ordering::Acquire).as_ref() }
    }

    fn next(&self) -> Option<Record> {
        if let Ok(record) = self.records.try_recv() {
            return Some(record);
        }
        match self.left_out.swap(0, Ordering::Relaxed) {
            0 => select! {
                recv(self.records) -> record => record.ok(),
                recv(self.ended) -> _ => None,
            },
            count => Some((WARNING, "rdmc".into(), format!("{count} records were left out"))),
        }
    }
}

/// Gives the library's records to the log.
struct ToLog;

impl Subscriber for ToLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Log::current().is_some_and(|log| level_of(metadata) >= log.least.load(Ordering::Relaxed))
    }

    fn event(&self, event: &Event<'_>) {
        let Some(log) = Log::current() else { return };
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let record = (level_of(metadata), logger_of(metadata.target()), text.0);
        if log.give.try_send(record).is_err() {
            log.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    // The library has no spans.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Python's number of a level.
fn level_of(metadata: &Metadata<'_>) -> u8 {
    match *metadata.level() {
        Level::ERROR => 40,
        Level::WARN => WARNING,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// All loggers are below "rdmc".
fn logger_of(target: &str) -> String {
    format!("rdmc.{}", target.trim_start_matches("rdmc::").replace("::", "."))
}

/// The message, and the other fields behind it.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        // Texts of other processes end no line.
        let value = value.replace(char::is_control, " ");
        // Writing to a text does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value}"),
            name => write!(self.0, " {name}={value}"),
        };
    }
}

/// Sets the minimum level of forwarded log records, as a level number of Python's `logging`.
#[pyfunction]
pub(crate) fn log_from(level: u8) {
    match Log::current() {
        Some(log) if log.process.is_this() => log.least.store(level, Ordering::Relaxed),
        other => {
            LOG.store(Box::leak(Box::new(Log::new(level))), Ordering::Release);
            if other.is_none() {
                // The library in this module has no other subscriber.
                let _ = dispatcher::set_global_default(Dispatch::new(ToLog));
            }
        }
    }
    callsite::rebuild_interest_cache();
}

/// The next record: its level, its logger, and its text. Blocks until there is one, or [`end_log`] was called: none then.
#[pyfunction]
pub(crate) fn next_record(py: Python<'_>) -> Option<Record> {
    py.detach(|| Log::current()?.next())
}

/// Ends [`next_record`] once it has returned all records.
#[pyfunction]
pub(crate) fn end_log() {
    if let Some(log) = Log::current() {
        // It is full if that was called before.
        let _ = log.end.try_send(());
    }
}
