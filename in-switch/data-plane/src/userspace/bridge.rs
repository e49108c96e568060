//! What the threads of a userspace switch share.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mcrdma::{Port, Switch};
use packet_socket::Interface;
use roce::Mac;
use rustix::{
    event::{EventfdFlags, eventfd},
    io,
};

/// Ageing time of learnt addresses (IEEE 802.1Q).
const AGEING: Duration = Duration::from_secs(300);
/// Learnt addresses; frames to others are flooded.
const STATIONS_MAX: usize = 65_536;

/// Counters of the bridge, besides those of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forwarded {
    /// Frames that were sent by a port.
    pub frames: u64,
    /// Frames that a port did not take.
    pub refused: u64,
}

/// Ports, tables and counters.
pub(super) struct Bridge {
    pub(super) ports: Vec<Interface>,
    pub(super) switch: Arc<Mutex<Switch>>,
    pub(super) stations: Arc<Mutex<Stations>>,
    pub(super) due: Arc<Due>,
    frames: AtomicU64,
    refused: AtomicU64,
    pub(super) started: Instant,
}

impl Bridge {
    pub(super) fn new(ports: Vec<Interface>) -> io::Result<Self> {
        Ok(Self {
            ports,
            switch: Arc::default(),
            stations: Arc::default(),
            due: Arc::new(Due::new()?),
            frames: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            started: Instant::now(),
        })
    }

    /// Frames of no group were sent by a port, or refused.
    pub(super) fn count(&self, forwarded: Forwarded) {
        self.frames.fetch_add(forwarded.frames, Ordering::Relaxed);
        self.refused.fetch_add(forwarded.refused, Ordering::Relaxed);
    }

    pub(super) fn forwarded(&self) -> Forwarded {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Forwarded { frames: read(&self.frames), refused: read(&self.refused) }
    }
}

/// Frames to be handled as if ports had received them.
pub(super) struct Due {
    frames: Mutex<Vec<(Port, Vec<u8>)>>,
    /// Readable exactly when there are some: both change under the lock.
    pub(super) wake: OwnedFd,
}

impl Due {
    fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { frames: Mutex::default(), wake })
    }

    pub(super) fn add(&self, port: Port, frame: Vec<u8>) {
        let mut frames = lock(&self.frames);
        frames.push((port, frame));
        // It fails only if it is readable already.
        let _ = io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(super) fn take(&self) -> Vec<(Port, Vec<u8>)> {
        let mut frames = lock(&self.frames);
        if !frames.is_empty() {
            let _ = io::read(&self.wake, &mut [0; 8]);
        }
        std::mem::take(&mut *frames)
    }
}

/// Learnt addresses: port, and time of the last frame.
#[derive(Default)]
pub(super) struct Stations(HashMap<Mac, (Port, Instant)>);

impl Stations {
    pub(super) fn find(&self, mac: Mac, now: Instant) -> Option<Port> {
        let learnt = self.0.get(&mac);
        let (port, _) = learnt.filter(|(_, at)| now.duration_since(*at) < AGEING)?;
        Some(*port)
    }

    pub(super) fn learn(&mut self, mac: Mac, port: Port, now: Instant) {
        if self.0.len() >= STATIONS_MAX {
            self.0.retain(|_, (_, at)| now.duration_since(*at) < AGEING);
        }
        let has_capacity = self.0.len() < STATIONS_MAX || self.0.contains_key(&mac);
        if !is_multicast(mac) && has_capacity {
            self.0.insert(mac, (port, now));
        }
    }
}

pub(super) const fn is_multicast(mac: Mac) -> bool {
    mac.0[0] & 1 == 1
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
