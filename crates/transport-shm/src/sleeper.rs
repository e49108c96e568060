//! How an end sleeps, and how the other one knows.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{
        EventfdFlags, Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
        eventfd,
    },
    io::Errno,
};
use transport::{EndpointId, Waker};

/// The events that one call returns.
const EVENTS: usize = 64;
/// Identifies the waker among the sockets.
const WAKER: u64 = u64::MAX;

/// The sleep of an end, as its peer sees it: a word with a number that counts sleeps, whether the end is asleep, and whether
/// it needs space in its ring.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sleep {
    count: u64,
    /// The peer's sleep out of which it was last woken.
    woken: u64,
}

const ASLEEP: u64 = 1;
const NEEDS_SPACE: u64 = 2;

impl Sleep {
    /// Returns the word of an end that falls asleep.
    pub(crate) fn doze(&mut self, needs_space: bool) -> u64 {
        self.count += 1;
        self.count << 2 | ASLEEP | if needs_space { NEEDS_SPACE } else { 0 }
    }

    /// Returns the word of an end that is awake.
    pub(crate) fn wake(&self) -> u64 {
        self.count << 2
    }

    /// Returns whether the peer with this word has to be woken, once for each of its sleeps. The word may be anything.
    pub(crate) fn has_to_wake(&mut self, word: u64, are_records: bool) -> bool {
        let concerns = are_records || word & NEEDS_SPACE != 0;
        let has_to = word & ASLEEP != 0 && concerns && word >> 2 != self.woken;
        if has_to {
            self.woken = word >> 2;
        }
        has_to
    }
}

/// Waits for the sockets of links, and for the waker.
pub(crate) struct Sleeper {
    queue: OwnedFd,
    waker: Arc<OwnedFd>,
}

impl Sleeper {
    /// Errors: the process has no file descriptors left.
    pub(crate) fn new() -> io::Result<Self> {
        let queue = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&queue, &waker, EventData::new_u64(WAKER), EventFlags::IN)?;
        Ok(Self { queue, waker: Arc::new(waker) })
    }

    pub(crate) fn waker(&self) -> Waker {
        let waker = Arc::clone(&self.waker);
        // A saturated counter also wakes.
        Arc::new(move || {
            let _ = rustix::io::write(&*waker, &1_u64.to_ne_bytes());
        })
    }

    /// Errors: the system refuses.
    pub(crate) fn add(&self, id: EndpointId, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::add(&self.queue, socket, EventData::new_u64(id.0), EventFlags::IN)
    }

    pub(crate) fn remove(&self, socket: BorrowedFd<'_>) {
        // It is there.
        let _ = epoll::delete(&self.queue, socket);
    }

    /// Waits until a socket has messages, the waker was used or the timeout (`None`: without limit), and returns the
    /// endpoints. The waker stays used until [`Sleeper::take_woken`].
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Vec<EndpointId> {
        let mut events =
            [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // An interrupted or failed wait ends early, which is harmless.
        let count = epoll::wait(&self.queue, &mut events, timeout.as_ref()).unwrap_or(0);
        let ids = events[..count].iter().map(|event| event.data.u64());
        ids.filter(|&id| id != WAKER).map(EndpointId).collect()
    }

    /// Returns whether the waker was used since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        rustix::io::read(&*self.waker, &mut [0_u8; 8]).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sleep_is_ended_once_by_what_concerns_it() {
        let (mut sleeper, mut other) = (Sleep::default(), Sleep::default());
        assert!(!other.has_to_wake(sleeper.wake(), true));
        let word = sleeper.doze(false);
        assert!(!other.has_to_wake(word, false), "space does not concern it");
        assert!(other.has_to_wake(word, true) && !other.has_to_wake(word, true));
        assert!(!other.has_to_wake(sleeper.wake(), true));
        let word = sleeper.doze(true);
        assert!(other.has_to_wake(word, false) && !other.has_to_wake(word, true));
    }
}
