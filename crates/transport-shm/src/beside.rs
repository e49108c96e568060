//! Shared memory for the peers on this machine, and another transport for all others, as one.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use transport::{
    Completion, EndpointId, OneSidedWrites, PeerMemory, PostError, ReadLease, Region, Token,
    Transport, Visibility, Waker, Watched, WriteLease,
};

use crate::{
    driver::{FIRST_ID, ShmTransport},
    error::ShmError,
    offer::ShmLink,
};

/// Two transports as one: each link is over shared memory or over the other transport.
///
/// While no endpoint is over the other transport, that is not polled. Else a wait polls both for a while
/// ([`crate::ShmSettings::spin`]), then sleeps until either has news.
pub struct Beside<T> {
    shm: ShmTransport,
    /// It numbers its endpoints from 0.
    other: T,
    /// The other transport's descriptor: see [`Watched::watch`]. Watched while it has endpoints.
    queue: OwnedFd,
    /// How many endpoints the other transport has.
    others: usize,
}

/// A link of [`Beside`].
#[derive(Debug)]
pub enum BesideLink<L> {
    /// To a process of this machine.
    Shm(ShmLink),
    /// Over the other transport.
    Other(L),
}

/// Calls a method of the transport that has an endpoint.
macro_rules! of {
    ($beside:expr, $endpoint:expr, $transport:ident => $call:expr) => {
        if $endpoint.0 >= FIRST_ID {
            let $transport = &mut $beside.shm;
            $call
        } else {
            let $transport = &mut $beside.other;
            $call
        }
    };
}

impl<T: Watched> Beside<T> {
    /// Joins two transports without endpoints. Only the waker of the result may be used.
    ///
    /// Errors: the process has no file descriptors left.
    pub fn new(shm: ShmTransport, mut other: T) -> Result<Self, ShmError> {
        let queue = other.watch().map_err(ShmError::at("watching the other transport"))?;
        Ok(Self { shm, other, queue, others: 0 })
    }

    fn open_other(&mut self, link: T::Link) -> Result<EndpointId, PostError> {
        if self.others == 0 {
            let watched = self.shm.sleeper().add_beside(self.queue.as_fd());
            watched
                .map_err(|error| PostError::System(format!("watching two networks: {error}")))?;
        }
        self.others += 1;
        self.other.open(link).inspect_err(|_| self.end_others(1))
    }

    fn end_others(&mut self, count: usize) {
        self.others -= count;
        if count > 0 && self.others == 0 {
            self.shm.sleeper().remove(self.queue.as_fd());
        }
    }

    /// Polls the other transport, without waiting.
    fn poll_other(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.other.poll(completions, Duration::ZERO);
        let is_end = |completion: &&Completion| {
            matches!(completion, Completion::Closed { .. } | Completion::Broken { .. })
        };
        let ended = completions[before..].iter().filter(is_end).count();
        self.end_others(ended);
    }
}

impl<T: Watched + OneSidedWrites> Transport for Beside<T> {
    type Link = BesideLink<T::Link>;

    /// Returns the time since the transport over shared memory was made.
    fn now(&self) -> Duration {
        self.shm.now()
    }

    /// Returns the lower limit of the two.
    fn block_bytes_max(&self) -> u64 {
        self.shm.block_bytes_max().min(self.other.block_bytes_max())
    }

    fn open(&mut self, link: Self::Link) -> Result<EndpointId, PostError> {
        match link {
            BesideLink::Shm(link) => self.shm.open(link),
            BesideLink::Other(link) => self.open_other(link),
        }
    }

    fn register(&mut self, region: &Region) -> Result<(), PostError> {
        self.other.register(region)
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        of!(self, endpoint, transport => transport.post_receive(endpoint, into, token))
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        of!(self, endpoint, transport => transport.post_send(endpoint, from, immediate, token))
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        of!(self, endpoint, transport => transport.write_control(endpoint, word))
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        Some(self)
    }

    fn close(&mut self, endpoint: EndpointId) {
        of!(self, endpoint, transport => transport.close(endpoint));
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        let mut now = Instant::now();
        let (until, mut moved, before) = (now.checked_add(wait), now, completions.len());
        let mut is_woken = false;
        loop {
            if self.others == 0 {
                let left = until.map_or(wait, |until| until.saturating_duration_since(now));
                let is_last = is_woken || completions.len() > before;
                return self.shm.poll(completions, if is_last { Duration::ZERO } else { left });
            }
            if self.shm.progress(now) {
                moved = now;
            }
            self.shm.hand_out(completions);
            self.poll_other(completions);
            let is_over = wait.is_zero() || until.is_some_and(|until| now >= until);
            if is_over || is_woken || completions.len() > before {
                return;
            }
            if now < moved + self.shm.spin() {
                std::hint::spin_loop();
            } else {
                let soonest = until.into_iter().chain(self.other.next_tick()).min();
                is_woken = self.shm.sleep(now, soonest);
            }
            now = Instant::now();
        }
    }

    fn flush(&mut self) {
        self.shm.flush();
        self.other.flush();
    }

    fn waker(&self) -> Waker {
        self.shm.waker()
    }

    fn finish(&mut self) {
        self.shm.finish();
        self.other.finish();
    }
}

impl<T: Watched + OneSidedWrites> OneSidedWrites for Beside<T> {
    fn visibility(&self, endpoint: EndpointId) -> Visibility {
        let shm = endpoint.0 >= FIRST_ID;
        if shm { self.shm.visibility(endpoint) } else { self.other.visibility(endpoint) }
    }

    fn ends_waits(&self, endpoint: EndpointId) -> bool {
        let shm = endpoint.0 >= FIRST_ID;
        if shm { self.shm.ends_waits(endpoint) } else { self.other.ends_waits(endpoint) }
    }

    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        of!(self, endpoint, transport => transport.expose(endpoint, key, memory))
    }

    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) -> Result<(), PostError> {
        of!(
            self, endpoint,
            transport => transport.post_write(endpoint, from, key, offset, immediate, token)
        )
    }
}
