//! Bounds the memory of messages that the root has sent and the session has not taken.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// The most bytes of queued messages: one of the longest, or very many keepalives.
const BYTES_MAX: usize = session::MESSAGE_BYTES_MAX;
/// What a message costs beside its bytes.
const MESSAGE_BYTES: usize = 64;

/// The lengths of messages between the thread that reads them and the session. When full, the reading thread waits, and so does
/// the root: its connection is not read.
#[derive(Default)]
pub(super) struct Backlog {
    lengths: Mutex<Lengths>,
    taken: Condvar,
}

#[derive(Default)]
struct Lengths {
    /// In order.
    queued: VecDeque<usize>,
    bytes: usize,
    is_closed: bool,
}

impl Backlog {
    /// Waits until a message of this many bytes has room; one alone always has. False once closed.
    pub(super) fn add(&self, bytes: usize) -> bool {
        let bytes = bytes.saturating_add(MESSAGE_BYTES);
        let is_full = |lengths: &mut Lengths| {
            let is_alone = lengths.queued.is_empty();
            !lengths.is_closed && !is_alone && lengths.bytes.saturating_add(bytes) > BYTES_MAX
        };
        let lengths = self.taken.wait_while(self.lock(), is_full);
        let mut lengths = lengths.unwrap_or_else(PoisonError::into_inner);
        lengths.queued.push_back(bytes);
        lengths.bytes = lengths.bytes.saturating_add(bytes);
        !lengths.is_closed
    }

    /// The session has taken the oldest message.
    pub(super) fn remove(&self) {
        let mut lengths = self.lock();
        if let Some(bytes) = lengths.queued.pop_front() {
            lengths.bytes -= bytes;
        }
        self.taken.notify_all();
    }

    /// Ends all waits, now and later: the session takes no more messages.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.taken.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Lengths> {
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, thread, time::Duration};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(50);

    #[test]
    fn a_full_backlog_holds_the_reading_thread_until_a_message_is_taken() {
        let backlog = Backlog::default();
        assert!(backlog.add(BYTES_MAX * 2), "one alone");
        let (sender, added) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(backlog.add(1));
                sender.send(()).unwrap();
            });
            assert!(added.recv_timeout(Duration::from_millis(20)).is_err());
            backlog.remove();
            added.recv_timeout(TIMEOUT).unwrap();
        });
        assert_eq!(backlog.lock().bytes, 1 + MESSAGE_BYTES);
    }

    #[test]
    fn small_messages_are_counted() {
        let backlog = Backlog::default();
        for _ in 0..BYTES_MAX / MESSAGE_BYTES {
            assert!(backlog.add(0));
        }
        thread::scope(|scope| {
            let last = scope.spawn(|| backlog.add(0));
            thread::sleep(Duration::from_millis(5));
            backlog.close();
            assert!(!last.join().unwrap());
        });
    }
}
