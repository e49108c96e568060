//! What a program with an event loop waits for.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, epoll, eventfd},
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

/// Setting a timer to zero would stop it.
const SOONEST: Duration = Duration::from_nanos(1);

/// The events are not read: the descriptor is only waited for.
const UNUSED: epoll::EventData = epoll::EventData::new_u64(0);

/// A descriptor that is readable while one of three others is: the network's, a timer, and an event that threads signal to each other.
#[derive(Debug)]
pub(crate) struct Descriptor {
    epoll: OwnedFd,
    /// Which stays valid when the network is dropped.
    network: OwnedFd,
    timer: OwnedFd,
    /// When the timer expires, or has.
    expires: Mutex<Option<Instant>>,
    signal: OwnedFd,
}

impl Descriptor {
    /// Errors: the process has no file descriptors left.
    pub(crate) fn new(network: OwnedFd) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [&network, &timer, &signal] {
            epoll::add(&epoll, fd, UNUSED, epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll, network, timer, expires: Mutex::default(), signal })
    }

    /// Sets whether it is readable by a signal only, or also by network and timer: while another thread takes care of these,
    /// who waits would be woken for nothing.
    pub(crate) fn set_paused(&self, is_paused: bool) {
        let events = if is_paused { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        for fd in [&self.network, &self.timer] {
            // It was added, so this cannot fail.
            let _ = epoll::modify(&self.epoll, fd, UNUSED, events);
        }
    }

    /// Makes it readable at this time, at once if that has passed, instead of at the time that was set before. `None`: by the others only.
    pub(crate) fn set_timer(&self, at: Option<Instant>) {
        let mut expires = self.expires.lock().unwrap_or_else(PoisonError::into_inner);
        let left = at.map(|at| at.saturating_duration_since(Instant::now()));
        // A timer that has expired is set again even for the same time, or to none: that makes it unreadable.
        if at == *expires && left.is_none_or(|left| !left.is_zero()) {
            return;
        }
        *expires = at;
        let left = left.map_or(Duration::ZERO, |left| left.max(SOONEST));
        // A time that the system cannot express is so far away that it is never.
        let value = Timespec::try_from(left).unwrap_or_default();
        let time = Itimerspec { it_interval: Timespec::default(), it_value: value };
        // With a timer and a valid time it cannot fail.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time);
    }

    /// Makes it readable until [`Descriptor::take_signal`].
    pub(crate) fn signal(&self) {
        // A saturated counter is readable as well.
        let _ = rustix::io::write(&self.signal, &1_u64.to_ne_bytes());
    }

    /// Ends what [`Descriptor::signal`] has begun.
    pub(crate) fn take_signal(&self) {
        let _ = rustix::io::read(&self.signal, &mut [0_u8; 8]);
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    /// Waits for at most this long, and returns whether it is readable.
    fn is_readable(descriptor: &Descriptor, wait: Duration) -> bool {
        let wait = Timespec::try_from(wait).unwrap();
        poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&wait)).unwrap() > 0
    }

    #[test]
    fn it_is_readable_while_one_of_its_parts_is() {
        let (now, timeout) = (Duration::ZERO, Duration::from_secs(600));
        let (mut network, mut peer) = UnixStream::pair().unwrap();
        let descriptor = Descriptor::new(network.try_clone().unwrap().into()).unwrap();
        assert!(!is_readable(&descriptor, now));

        peer.write_all(b"x").unwrap();
        assert!(is_readable(&descriptor, now));
        network.read_exact(&mut [0; 1]).unwrap();
        assert!(!is_readable(&descriptor, now));

        descriptor.signal();
        descriptor.signal();
        assert!(is_readable(&descriptor, now));
        descriptor.take_signal();
        descriptor.take_signal();
        assert!(!is_readable(&descriptor, now));

        let past = Instant::now();
        for _ in 0..2 {
            descriptor.set_timer(Some(past));
            assert!(is_readable(&descriptor, timeout));
        }
        descriptor.set_paused(true);
        assert!(!is_readable(&descriptor, now));
        descriptor.set_paused(false);
        assert!(is_readable(&descriptor, now));
        descriptor.set_timer(Some(past + timeout));
        assert!(!is_readable(&descriptor, now));
        descriptor.set_timer(Some(Instant::now() + Duration::from_millis(1)));
        assert!(is_readable(&descriptor, timeout));
        descriptor.set_timer(None);
        assert!(!is_readable(&descriptor, now));
    }
}
