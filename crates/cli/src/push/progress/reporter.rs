//! Prints lines of progress, even without events.

use std::{
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Instant,
};

use files::PushEvent;

use super::{
    hosts::Hosts,
    lines::{Format, Lines},
};
use crate::failure::print_message;

/// A thread that prints a line when one is due.
pub struct Reporter {
    shared: Arc<Shared>,
    started: Instant,
    /// `None` when finished.
    printer: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified at the end.
    ended: Condvar,
}

struct State {
    hosts: Hosts,
    lines: Lines,
    has_ended: bool,
}

impl Reporter {
    /// Starts the thread. Errors: the thread cannot be started.
    pub fn start(hosts: Hosts, lines: Lines) -> io::Result<Self> {
        let state = State { hosts, lines, has_ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), ended: Condvar::new() });
        let (watched, started) = (Arc::clone(&shared), Instant::now());
        let print = move || watched.print_until_the_end(started);
        let printer = thread::Builder::new().name("rdmc-lines".into()).spawn(print)?;
        Ok(Self { shared, started, printer: Some(printer) })
    }

    /// Processes an event.
    pub fn note(&self, event: &PushEvent) {
        self.shared.lock().hosts.note(event);
    }

    /// Ends the thread. With JSON a last object is printed.
    pub fn finish(&mut self) {
        let Some(printer) = self.printer.take() else { return };
        self.shared.lock().has_ended = true;
        self.shared.ended.notify_all();
        let _ = printer.join();
        let mut state = self.shared.lock();
        let State { hosts, lines, .. } = &mut *state;
        if lines.format() == Format::Json {
            print(Format::Json, &lines.line(self.started.elapsed(), hosts));
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print_until_the_end(&self, started: Instant) {
        let mut state = self.lock();
        while !state.has_ended {
            let now = started.elapsed();
            let wait = state.lines.due().saturating_sub(now);
            if !wait.is_zero() {
                let waited = self.ended.wait_timeout(state, wait);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let State { hosts, lines, .. } = &mut *state;
            let (format, line) = (lines.format(), lines.line(now, hosts));
            // Standard error may block; events must not wait for it.
            drop(state);
            print(format, &line);
            state = self.lock();
        }
    }
}

fn print(format: Format, line: &str) {
    match format {
        Format::Plain => print_message(line),
        // The push continues if standard error is closed.
        Format::Json => drop(writeln!(io::stderr(), "{line}")),
    }
}
