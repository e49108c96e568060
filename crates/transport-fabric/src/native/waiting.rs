//! How a transport waits.

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
};
use transport::Waker;
use transport_tcp::TcpTransport;

use crate::native::{device::Device, sys};

/// For devices that cannot end a wait: the number of polls without a pause, before pauses between
/// polls.
const EAGER_POLLS: u32 = 200;
const NAP: Duration = Duration::from_micros(100);

/// Waits until a device, a lifeline or the waker has an event.
pub struct Sleeper {
    waker: Arc<OwnedFd>,
    /// Polls since the last completion.
    idle_polls: u32,
}

impl Sleeper {
    /// Errors: the process has no descriptors left.
    pub fn new() -> Result<Self, Errno> {
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { waker: Arc::new(waker), idle_polls: 0 })
    }

    pub fn waker(&self) -> Waker {
        let waker = Arc::clone(&self.waker);
        // A saturated counter also wakes.
        Arc::new(move || {
            let _ = rustix::io::write(&*waker, &1_u64.to_ne_bytes());
        })
    }

    /// Records that something has completed.
    pub fn note_completion(&mut self) {
        self.idle_polls = 0;
    }

    /// Waits for an event, or until the timeout (`None`: without limit). Returns whether the waker
    /// was used, and whether the devices could end the wait. Without links (`has_links`) a device
    /// that cannot end a wait has nothing to end it for.
    pub fn sleep(
        &mut self,
        devices: &[Device],
        lifelines: &TcpTransport,
        has_links: bool,
        mut timeout: Option<Duration>,
    ) -> Woken {
        let queues: Option<Vec<_>> = devices.iter().map(Device::waitable).collect();
        if queues.is_none() && !has_links {
            return Woken { by_waker: self.wait_for(lifelines, &[], timeout), has_slept: true };
        }
        let Some(queues) = queues else {
            self.idle_polls = self.idle_polls.saturating_add(1);
            let nap = if self.idle_polls < EAGER_POLLS { Duration::ZERO } else { NAP };
            timeout = Some(timeout.map_or(nap, |timeout| timeout.min(nap)));
            return Woken { by_waker: self.wait_for(lifelines, &[], timeout), has_slept: false };
        };
        for (device, queues) in devices.iter().zip(&queues) {
            let objects: Vec<&sys::Object> = queues.iter().map(|&(queue, _)| queue).collect();
            if !sys::may_wait(&device.fabric, &objects) {
                timeout = Some(Duration::ZERO);
            }
        }
        let queues: Vec<(&sys::Object, i32)> = queues.into_iter().flatten().collect();
        Woken { by_waker: self.wait_for(lifelines, &queues, timeout), has_slept: true }
    }

    fn wait_for(
        &self,
        lifelines: &TcpTransport,
        queues: &[(&sys::Object, i32)],
        timeout: Option<Duration>,
    ) -> bool {
        let lifelines = lifelines.event_queue();
        let mut fds: Vec<PollFd<'_>> =
            vec![PollFd::new(&*self.waker, PollFlags::IN), PollFd::new(&lifelines, PollFlags::IN)];
        for &(queue, fd) in queues {
            fds.push(PollFd::from_borrowed_fd(sys::borrow_fd(queue, fd), PollFlags::IN));
        }
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // An interrupted or failed wait ends early, which is harmless.
        let _ = poll(&mut fds, timeout.as_ref());
        let woken = fds[0].revents().contains(PollFlags::IN);
        if woken {
            let _ = rustix::io::read(&*self.waker, &mut [0_u8; 8]);
        }
        woken
    }
}

/// Why a wait has ended.
pub struct Woken {
    pub by_waker: bool,
    /// Whether all devices could have ended it: lifelines and connections may then have events.
    pub has_slept: bool,
}
