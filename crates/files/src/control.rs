//! One end of a control connection: a thread that reads, and anybody who writes.

use std::{
    io,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdmc::{
    Error,
    bootstrap::{Channel, Deadline},
};
use serde::{Serialize, de::DeserializeOwned};

/// The default of [`crate::PushSettings::failure_deadline`].
pub const FAILURE_DEADLINE: Duration = Duration::from_secs(5);

/// What failure deadlines can be: heartbeats cost little, and threads are not always on time.
const FAILURE_DEADLINES: RangeInclusive<Duration> =
    Duration::from_millis(200)..=Duration::from_secs(3600);

/// Errors: no failure deadline can be as short or as long.
pub fn check_failure_deadline(deadline: Duration) -> Result<(), String> {
    if FAILURE_DEADLINES.contains(&deadline) {
        return Ok(());
    }
    Err(format!(
        "a failure deadline of {} s; use {} to {} s",
        deadline.as_secs_f64(),
        FAILURE_DEADLINES.start().as_secs_f64(),
        FAILURE_DEADLINES.end().as_secs_f64()
    ))
}

/// A peer of which nothing was heard on a control connection for this long is gone. Both sides
/// speak more often. Longer than the links of groups wait, so that those are first to say so: then
/// it is known what was going on.
pub const fn silence(failure_deadline: Duration) -> Duration {
    failure_deadline.saturating_add(Duration::from_secs(3))
}
/// How long a peer may take to make room for a small message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The writing end, and the way to end the connection.
#[derive(Debug)]
pub(crate) struct Control {
    handle: Channel,
    writer: Mutex<Channel>,
    reader: Mutex<Option<JoinHandle<()>>>,
    silence_ms: Arc<AtomicU64>,
}

impl Control {
    /// Starts a thread that gives each message to `take`, and at last the reason why there are no
    /// more: one is that nothing was heard for as long as [`silence`] says. The thread ends when
    /// `take` returns false, or on hanging up.
    ///
    /// Errors: no thread or descriptor can be had.
    pub(crate) fn start<M: DeserializeOwned + Send + 'static>(
        mut channel: Channel,
        failure_deadline: Duration,
        mut take: impl FnMut(Result<M, Error>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let handle = channel.try_clone()?;
        let writer = Mutex::new(channel.try_clone()?);
        let silence_ms = Arc::new(AtomicU64::new(silence(failure_deadline).as_millis() as u64));
        let patience = Arc::clone(&silence_ms);
        let read = move || {
            loop {
                let silence = Duration::from_millis(patience.load(Ordering::Relaxed));
                let message = channel.receive(Deadline::after(silence));
                let last = message.is_err();
                if !take(message) || last {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("rdmc-control".into()).spawn(read)?;
        Ok(Self { handle, writer, reader: Mutex::new(Some(thread)), silence_ms })
    }

    /// Another deadline, from the message after the next on.
    pub(crate) fn set_failure_deadline(&self, deadline: Duration) {
        self.silence_ms.store(silence(deadline).as_millis() as u64, Ordering::Relaxed);
    }

    /// Sends one message. Errors: connection lost, or no room for it in time.
    pub(crate) fn send<M: Serialize>(&self, message: &M) -> Result<(), Error> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.send(message, Deadline::after(SEND_TIMEOUT))
    }

    /// Ends the connection and the thread. Not to be called from that thread.
    pub(crate) fn hang_up(&self) {
        self.handle.shutdown();
        let thread = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.hang_up();
    }
}
