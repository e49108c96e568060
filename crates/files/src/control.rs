//! One end of a control connection: a thread that reads, and anybody who writes.

use std::{
    io,
    sync::{Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rdmc::{
    Error,
    bootstrap::{Channel, Deadline},
};
use serde::{Serialize, de::DeserializeOwned};

/// A peer of which nothing was heard for this long is gone. Both sides speak more often.
pub const SILENCE: Duration = Duration::from_secs(8);
/// How long a peer may take to make room for a small message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The writing end, and the way to end the connection.
#[derive(Debug)]
pub(crate) struct Control {
    handle: Channel,
    writer: Mutex<Channel>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl Control {
    /// Starts a thread that gives each message to `take`, and at last the reason why there are no
    /// more. The thread ends when `take` returns false, or on hanging up.
    ///
    /// Errors: no thread or descriptor can be had.
    pub(crate) fn start<M: DeserializeOwned + Send + 'static>(
        mut channel: Channel,
        mut take: impl FnMut(Result<M, Error>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let handle = channel.try_clone()?;
        let writer = Mutex::new(channel.try_clone()?);
        let read = move || {
            loop {
                let message = channel.receive(Deadline::after(SILENCE));
                let last = message.is_err();
                if !take(message) || last {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("rdmc-control".into()).spawn(read)?;
        Ok(Self { handle, writer, reader: Mutex::new(Some(thread)) })
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
