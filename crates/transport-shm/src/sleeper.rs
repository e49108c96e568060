//! How a transport waits.

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
/// Identifies what the owner watches besides.
const BESIDE: u64 = u64::MAX - 1;

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

    /// Lets waits end also when this descriptor can be read. Errors: the system refuses.
    pub(crate) fn add_beside(&self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::add(&self.queue, descriptor, EventData::new_u64(BESIDE), EventFlags::IN)
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
        ids.filter(|&id| id < BESIDE).map(EndpointId).collect()
    }

    /// Returns whether the waker was used since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        rustix::io::read(&*self.waker, &mut [0_u8; 8]).is_ok()
    }
}
