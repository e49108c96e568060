//! How a transport sleeps, and for how long it waits for the network's answers.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    device::Device,
    driver::{EAGER_POLLS, FabricTransport, LOOK_INTERVAL, NAP},
    sys,
};

/// How often links are looked at whether the network answers.
const ANSWERS_INTERVAL: Duration = Duration::from_secs(1);

impl FabricTransport {
    /// Breaks links over which nothing that was posted completes, though the peer lives: some
    /// adapters send again for ever.
    pub(crate) fn check_answers(&mut self, now: Instant) {
        if now < self.answers_checked + ANSWERS_INTERVAL {
            return;
        }
        self.answers_checked = now;
        for (&id, link) in &mut self.links {
            if link.misses_answers(now, self.settings.answer_timeout) {
                self.busy.insert(id);
            }
        }
    }

    /// Sleeps until something happens or the time has come. True if the waker was used.
    pub(crate) fn sleep(&mut self, until: Option<Instant>, now: Instant) -> bool {
        let deadlines = self.timed.iter().filter_map(|id| self.links.get(id)?.deadline());
        let soonest = deadlines.chain(until).chain(self.lifelines.next_tick()).min();
        let mut timeout = soonest.map(|soonest| soonest.saturating_duration_since(now));
        if self.offload.is_busy() {
            // Counters wake nobody.
            timeout = Some(timeout.map_or(LOOK_INTERVAL, |timeout| timeout.min(LOOK_INTERVAL)));
        }
        if self.is_behind || !self.openings.is_empty() {
            timeout = Some(Duration::ZERO);
        }
        let queues: Option<Vec<_>> = self.devices.iter().map(Device::waitable).collect();
        let Some(queues) = queues else {
            self.idle_polls = self.idle_polls.saturating_add(1);
            let nap = if self.idle_polls < EAGER_POLLS { Duration::ZERO } else { NAP };
            timeout = Some(timeout.map_or(nap, |timeout| timeout.min(nap)));
            return self.wait_for(&[], timeout);
        };
        for (device, queues) in self.devices.iter().zip(&queues) {
            let objects: Vec<&sys::Object> = queues.iter().map(|&(queue, _)| queue).collect();
            if !sys::may_wait(&device.fabric, &objects) {
                timeout = Some(Duration::ZERO);
            }
        }
        let queues: Vec<(&sys::Object, i32)> = queues.into_iter().flatten().collect();
        let woken = self.wait_for(&queues, timeout);
        self.looked = None;
        woken
    }

    fn wait_for(&self, queues: &[(&sys::Object, i32)], timeout: Option<Duration>) -> bool {
        let lifelines = self.lifelines.event_queue();
        let mut fds: Vec<PollFd<'_>> =
            vec![PollFd::new(&*self.waker, PollFlags::IN), PollFd::new(&lifelines, PollFlags::IN)];
        for &(queue, fd) in queues {
            fds.push(PollFd::from_borrowed_fd(sys::borrow_fd(queue, fd), PollFlags::IN));
        }
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // An interrupted or failed wait is a short one.
        let _ = poll(&mut fds, timeout.as_ref());
        let woken = fds[0].revents().contains(PollFlags::IN);
        if woken {
            let _ = rustix::io::read(&*self.waker, &mut [0_u8; 8]);
        }
        woken
    }
}
