//! Transports for which their owner waits.

use std::{io, os::fd::OwnedFd, time::Instant};

use crate::transport::Transport;

/// A transport that can be waited for among other things, and is then polled without waiting.
pub trait Watched: Transport {
    /// Returns a descriptor that is readable when [`Transport::poll`] would report something or could move bytes, or when the
    /// waker was used. It stays valid when the transport is dropped. From now on it is not readable for what a poll has handled.
    ///
    /// Errors: the process has no file descriptors left.
    fn watch(&mut self) -> io::Result<OwnedFd>;

    /// Returns when [`Transport::poll`] has to be called at the latest, whatever the descriptor reports: at once if it can move
    /// bytes.
    fn next_tick(&self) -> Option<Instant>;
}
