//! The thread that writes one process's part while it runs.

use std::{
    fs::File,
    io::{self, BufWriter},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tracing::Subscriber;
use tracing_subscriber::{Layer, registry::LookupSpan};

use crate::{
    Moment,
    file::{Lines, Part, real_time_ns},
    layer,
    tracks::Tracks,
};

/// How often the thread looks for events. It is not woken by them, which would cost the threads that make
/// them more than the events themselves.
const TICK: Duration = Duration::from_millis(10);
/// Events that may wait for the thread, some 6 MB. A million a second fit.
const WAITING_MAX: usize = 1 << 16;

/// Writes a part of a trace until it is closed. Dropping closes too, and loses the error.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<Summary>>>,
}

/// What became of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Events that were written.
    pub events: u64,
    /// Events that were not, since they came faster than the disk took them.
    pub lost: u64,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// The part's time when `began` was read.
    offset_ns: u64,
    began: Instant,
}

#[derive(Debug, Default)]
struct Queue {
    moments: Vec<Moment>,
    lost: u64,
    closed: bool,
}

impl Writer {
    /// Starts the thread, which writes to `out` from now on.
    ///
    /// Errors: no thread can be had.
    pub fn start(out: File, part: &Part) -> io::Result<Self> {
        let (now_ns, began) = real_time();
        let offset_ns = now_ns.saturating_sub(part.origin_ns);
        let shared = Arc::new(Shared { queue: Mutex::default(), offset_ns, began });
        let (source, tracks) = (Arc::clone(&shared), Tracks::new(part.process.clone()));
        let write = move || write(&source, tracks, out);
        let thread = thread::Builder::new().name("rdmc-trace".into()).spawn(write)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The layer of `tracing` that feeds this writer; it does nothing once the writer is closed.
    #[must_use]
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let shared = Arc::clone(&self.shared);
        layer(move |moment| shared.take(moment))
    }

    /// Writes what there is and ends the thread; blocks until the disk has taken it.
    ///
    /// Errors: writing has failed, now or before.
    pub fn close(mut self) -> io::Result<Summary> {
        self.end().unwrap_or_else(|| Ok(Summary::default()))
    }

    fn end(&mut self) -> Option<io::Result<Summary>> {
        let thread = self.thread.take()?;
        self.shared.lock().closed = true;
        thread.thread().unpark();
        let panicked = |_| Err(io::Error::other("the thread that writes the trace has panicked"));
        Some(thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Shared {
    fn take(&self, moment: Moment) {
        let since = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let at_ns = self.offset_ns.saturating_add(since);
        let mut queue = self.lock();
        match queue.moments.len() {
            _ if queue.closed => {}
            0..WAITING_MAX => queue.moments.push(Moment { at_ns, ..moment }),
            _ => queue.lost += 1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes until the queue is closed. After an error it only drops what comes, and returns the error at the end.
fn write(shared: &Shared, mut tracks: Tracks, out: File) -> io::Result<Summary> {
    let mut summary = Summary::default();
    let mut lines = Lines::begin(BufWriter::with_capacity(1 << 16, out));
    let mut moments = Vec::new();
    loop {
        let (lost, closed) = {
            let mut queue = shared.lock();
            std::mem::swap(&mut queue.moments, &mut moments);
            (std::mem::take(&mut queue.lost), queue.closed)
        };
        summary.lost += lost;
        if let Ok(open) = &mut lines
            && let Err(error) = write_batch(open, &mut tracks, &moments, lost, &mut summary.events)
        {
            lines = Err(error);
        }
        moments.clear();
        if closed {
            break;
        }
        thread::park_timeout(TICK);
    }
    let mut lines = lines?;
    tracks.finish(&mut |event| lines.event(event))?;
    lines.end()?;
    Ok(summary)
}

fn write_batch(
    lines: &mut Lines<BufWriter<File>>,
    tracks: &mut Tracks,
    moments: &[Moment],
    lost: u64,
    events: &mut u64,
) -> io::Result<()> {
    for moment in moments {
        tracks.take(moment, &mut |event| lines.event(event))?;
    }
    if lost > 0 {
        tracks.skip(lost, &mut |event| lines.event(event))?;
    }
    *events += moments.len() as u64;
    // So that a process that is killed leaves what it has done.
    if moments.is_empty() { Ok(()) } else { lines.flush() }
}

/// The real-time clock, and the moment at which it was read: the tightest of a few attempts, since
/// a thread may lose its processor between two clocks.
fn real_time() -> (u64, Instant) {
    let attempt = |_| {
        let before = Instant::now();
        let now_ns = real_time_ns();
        (before.elapsed(), now_ns, before)
    };
    let tightest = (0..8).map(attempt).min_by_key(|&(width, ..)| width);
    tightest.map_or_else(|| (real_time_ns(), Instant::now()), |(_, now_ns, began)| (now_ns, began))
}
