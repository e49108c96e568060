//! Ends blocking calls of another thread on its connection.

use std::{
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, Weak},
};

/// Ends the attempts of a thread that connects, from another thread. Clones are the same interruption.
#[derive(Clone, Debug, Default)]
pub struct Interruption(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    interrupted: bool,
    /// The connection on which the thread may be waiting. It belongs to that thread.
    stream: Weak<TcpStream>,
}

impl Interruption {
    /// Shuts down the connection that is being made, so that calls on it fail at once, and prevents further ones. Does not
    /// block.
    pub fn interrupt(&self) {
        let mut state = self.lock();
        state.interrupted = true;
        if let Some(stream) = state.stream.upgrade() {
            // Also ends a connect in progress. One that has ended by itself needs nothing.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Returns whether [`Interruption::interrupt`] was called.
    pub fn is_interrupted(&self) -> bool {
        self.lock().interrupted
    }

    /// Makes this the connection to shut down. Returns false if it was interrupted before.
    pub(crate) fn watch(&self, stream: &Arc<TcpStream>) -> bool {
        let mut state = self.lock();
        state.stream = Arc::downgrade(stream);
        !state.interrupted
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
